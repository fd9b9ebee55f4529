"""Text that a stranger wrote, as it may be shown (architecture, Rules that hold everywhere).

A serial, a terminal's message, a till's note: any of them may hold what starts a new line, moves the cursor, turns the
direction of the text or is not seen at all. Whatever writes for people or for the log writes it by one of these.
"""

import json
from collections.abc import Sequence

#: Unicode's wide and narrow spaces (category Zs) beside the usual one. Written out: `unicodedata` takes a megabyte.
_SPACES = frozenset("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")


def shown(text: str) -> str:
    """Return a text in one line, in which nothing is left that is not printable.

    What is not printable is written as JSON does (\\n, \\u001b, \\u202e): control and format characters, line and
    paragraph separators, lone surrogates, characters that Unicode does not assign. A wide or narrow space is a space.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def composed(text: str) -> str:
    """Return a text in Unicode's composed form (NFC): the same letters from any keyboard are the same text."""
    if text.isascii():
        return text
    import unicodedata  # a megabyte

    return unicodedata.normalize("NFC", text)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return the question for one who wrote `name`, with a space after it, or "" where no known name is like it."""
    near = nearest(name.lower(), known)
    return f"Did you mean {near}? " if near is not None else ""


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that one who wrote `name` may have meant, None where none is like it."""
    import difflib  # a quarter of a megabyte, and nobody has to be asked what they meant in most lives of a daemon

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return near[0] if near else None


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char in _SPACES else _as_json(char)


def escaped(document: str) -> str:
    """Write what is not printable in a JSON document as JSON does; line feeds stay. It stays valid, with its values."""
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else _as_json(char) for char in document)


def _as_json(char: str) -> str:
    return json.dumps(char)[1:-1]
