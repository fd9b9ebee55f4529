"""Text in the cells of a terminal: what a character takes, what is safe to write, and lines of a given width.

What is shown comes from strangers (serials, metadata, a terminal's messages). `Glyphs.safe` lets no control character
through, and nothing whose width a terminal may see otherwise than we do: what is left takes one cell or two.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

#: A piece of a line: its text and its style (a name of `screen.STYLES`).
Span = tuple[str, str]
#: A line of the screen.
Line = tuple[Span, ...]

#: What we draw with ourselves -> how it is written where the locale has no UTF-8; each takes one cell.
DRAWN = {"·": "-", "─": "-", "▸": ">", "…": "~", "↑": "^", "↓": "v", "\N{REPLACEMENT CHARACTER}": "?"}


class Glyphs(NamedTuple):
    """Whether the terminal has more than ASCII."""

    unicode: bool

    def safe(self, text: str) -> str:
        """Return the text in one line, with only what a terminal shows and measures as we do."""
        return "".join(map(self._safe, unicodedata.normalize("NFC", text)))

    def _safe(self, char: str) -> str:
        if " " <= char <= "~":
            return char
        if char in "\n\t\r":
            return " "
        if not self.unicode:
            return DRAWN.get(char, "?")
        known = char.isprintable() and not unicodedata.combining(char) and width(char) in (1, 2)
        return char if known else "\N{REPLACEMENT CHARACTER}"


UNICODE = Glyphs(unicode=True)
ASCII = Glyphs(unicode=False)


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def clip(text: str, room: int) -> str:
    """Return the text in at most `room` cells; where it is cut, its last cell says so."""
    if width(text) <= room:
        return text
    return _head(text, room - 1) + "…" if room > 0 else ""


def fit(text: str, room: int, *, right: bool = False) -> str:
    """Return the text in exactly `room` cells."""
    text = clip(text, room)
    pad = " " * (room - width(text))
    return pad + text if right else text + pad


def wrap(text: str, room: int) -> list[str]:
    """Break a text into lines of at most `room` cells, between words where that is possible; line feeds break too."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in UNICODE.safe(paragraph).split(" "):
            longer = f"{line} {word}" if line else word
            if width(longer) <= room:
                line = longer
                continue
            if line:
                lines.append(line)
            line = word
            while room > 0 and width(line) > room:
                head = _head(line, room) or line[0]
                lines.append(head)
                line = line[len(head) :]
        lines.append(line)
    return lines


def at_most(lines: list[str], most: int, room: int) -> list[str]:
    """Return so many lines of a text of that width; where there are more, the end of the last one says so."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], _head(lines[most - 1], room - 2) + " …"] if most > 0 else []


def clip_line(line: Iterable[Span], room: int, glyphs: Glyphs) -> Line:
    """Return the spans in at most `room` cells, safe to write."""
    result = []
    for text, style in line:
        shown = _head(glyphs.safe(text), room)
        room -= width(shown)
        if shown:
            result.append((shown, style))
    return tuple(result)


def text_of(line: Sequence[Span]) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def _head(text: str, room: int) -> str:
    """Return as much of the text as takes at most `room` cells."""
    if text.isascii():
        return text[: max(0, room)]
    used = 0
    for place, char in enumerate(text):
        used += width(char)
        if used > room:
            return text[:place]
    return text
