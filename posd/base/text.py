"""Text for people: safe display of untrusted text, and languages.

A serial, a terminal's message or a till's note may contain line ends, cursor movements, reversed text or invisible
characters. All output for people and for the log uses these functions (docs/design/architecture.md, Rules that hold
everywhere).
"""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

#: Unicode's wide and narrow spaces (category Zs) except the usual space. The spaces are listed here, because
#: `unicodedata` takes a megabyte.
_SPACES = frozenset("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")


def shown(text: str) -> str:
    """Return a text as one line, with unprintable characters escaped.

    The escapes are JSON's (\\n, \\u001b, \\u202e): control and format characters, line and paragraph separators, lone
    surrogates, unassigned characters. A wide or narrow space becomes a space.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def composed(text: str) -> str:
    """Return a text in Unicode's composed form (NFC), so that equal letters from any keyboard are equal."""
    if text.isascii():
        return text
    import unicodedata  # takes a megabyte

    return unicodedata.normalize("NFC", text)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a question with the known name nearest to `name`, with a leading space, or "" if no name is near."""
    near = nearest(name.lower(), known)
    return f" (did you mean {near}?)" if near is not None else ""


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name nearest to `name`, or None."""
    import difflib  # the module takes a quarter of a megabyte, and most daemons never need it

    near = difflib.get_close_matches(name, known, cutoff=0.5)
    return near[0] if near else None


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char in _SPACES else _as_json(char)


def escaped(document: str) -> str:
    """Return a JSON document with unprintable characters escaped, except line feeds.

    The document stays valid, with the same values.
    """
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else _as_json(char) for char in document)


def _as_json(char: str) -> str:
    return json.dumps(char)[1:-1]


# Preferences of a client for a response: the headers `Accept` and `Accept-Language` (RFC 9110, 12.5).

#: Maximum number of parts of a header `Accept` or `Accept-Language`. posd ignores the other parts.
MAX_PARTS = 32


class Language(StrEnum):
    """Languages of the texts for a cashier."""

    EN = "en"
    ES = "es"


class Text(NamedTuple):
    """A text in each language. {amount} is the amount with a leading space, or empty if it is unknown."""

    en: str
    es: str

    def of(self, language: Language, amount: str = "") -> str:
        """Return the text in one language."""
        return (self.es if language is Language.ES else self.en).format(amount=amount)


def accepted_weights(headers: Iterable[str]) -> dict[str, float]:
    """Return the names in a header, in lower case and in order, each with its highest weight (0 to 1).

    A header may be repeated. An invalid weight counts as 1.
    """
    found: dict[str, float] = {}
    for part in ",".join(headers).split(",", MAX_PARTS)[:MAX_PARTS]:
        name, *options = (item.strip().lower() for item in part.split(";", MAX_PARTS))
        found[name] = max(_weight(options), found.get(name, 0.0))
    return found


def _weight(options: list[str]) -> float:
    for option in options:
        name, _, value = option.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 1.0
    return 1.0


def preferred_language(headers: Iterable[str], otherwise: Language) -> Language:
    """Return the language with the highest weight in `Accept-Language`. Of equal weights the first counts.

    A regional tag (`es-EC`) selects its language. `*` selects `otherwise`, which is also the default.
    """
    best, highest = otherwise, 0.0
    for name, weight in accepted_weights(headers).items():
        asked = otherwise if name == "*" else _LANGUAGES.get(name.partition("-")[0])
        if asked is not None and weight > highest:
            best, highest = asked, weight
    return best


_LANGUAGES = {str(item): item for item in Language}
