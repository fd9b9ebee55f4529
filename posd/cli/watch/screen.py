"""The terminal: text in cells, what is written so that it shows the next frame, and the keys that come from it.

Only the cells that differ are written, in one piece. Nothing flickers, because nothing is wiped that stays, and a slow
line carries a few bytes for a clock that ticks.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from posd.base.text import shown
from posd.cli.app import cells
from posd.cli.app.cells import head, width

# Text in the cells of a terminal: what a character takes, what is safe to write, and lines of a given width.
#
# What is shown comes from outside (serials, metadata, a terminal's messages). `Glyphs.safe` lets nothing through that
# is not printable (`posd.base.text`), nor what a terminal may measure otherwise: what is left takes one cell or two.

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
        return "".join(map(self._safe, unicodedata.normalize("NFC", shown(text))))

    def _safe(self, char: str) -> str:
        if " " <= char <= "~":
            return char
        if not self.unicode:
            return DRAWN.get(char, "?")
        known = not unicodedata.combining(char) and width(char) in (1, 2)
        return char if known else "\N{REPLACEMENT CHARACTER}"


UNICODE = Glyphs(unicode=True)
ASCII = Glyphs(unicode=False)


def clip(text: str, room: int) -> str:
    """Return the text in at most `room` cells; where it is cut, its last cell says so."""
    if width(text) <= room:
        return text
    return head(text, room - 1) + "…" if room > 0 else ""


def fit(text: str, room: int, *, right: bool = False) -> str:
    """Return the text in exactly `room` cells."""
    text = clip(text, room)
    pad = " " * (room - width(text))
    return pad + text if right else text + pad


def wrap(text: str, room: int) -> list[str]:
    """Break a text into lines of at most `room` cells, between words where that is possible, safe to write."""
    return cells.wrap(UNICODE.safe(text), room)


def at_most(lines: list[str], most: int, room: int) -> list[str]:
    """Return so many lines of a text of that width; where there are more, the end of the last one says so."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], head(lines[most - 1], room - 2) + " …"] if most > 0 else []


def clip_line(line: Iterable[Span], room: int, glyphs: Glyphs) -> Line:
    """Return the spans in at most `room` cells, safe to write."""
    result = []
    for text, style in line:
        shown = head(glyphs.safe(text), room)
        room -= width(shown)
        if shown:
            result.append((shown, style))
    return tuple(result)


def lines_of(texts: Iterable[str], style: str = "") -> list[Line]:
    """Return texts as lines of one style."""
    return [((text, style),) for text in texts]


def text_of(line: Sequence[Span]) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


#: name of a style -> its parameters of the sequence "select graphic rendition". A name may join several: "bold red".
STYLES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
COLOURS = frozenset({"red", "green", "yellow", "cyan"})

#: The other screen, so that what stood there comes back; no cursor; a full last column does not scroll.
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[m\x1b[2J"
LEAVE = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
WIPE = "\x1b[m\x1b[2J"
WIPE_REST_OF_LINE = "\x1b[K"

#: Equal cells between two that differ: to write them anew is shorter than to move the cursor past them.
BRIDGE = 5

#: A character and its style. The second cell of a wide character has no character.
Cell = tuple[str, str]
BLANK: Cell = (" ", "")
Row = tuple[Cell, ...]


class Screen:
    """Knows what the terminal shows, and what to write so that it shows something else."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._size = (0, 0)
        self._shown: list[Row] = []

    def forget(self) -> None:
        """Take nothing for granted: the next frame is drawn in full."""
        self._size = (0, 0)

    def frame(self, lines: Sequence[Line], columns: int, height: int) -> str:
        """Return what to write so that these lines are shown; empty where they are already."""
        rows = [row_of(line, columns) for line in lines[:height]]
        rows += [(BLANK,) * columns] * (height - len(rows))
        written = []
        if self._size != (columns, height):
            written.append(WIPE)
            self._size = (columns, height)
            self._shown = [(BLANK,) * columns] * height
        pen = _Pen(self._colour)
        for number, (before, after) in enumerate(zip(self._shown, rows, strict=True)):
            if before != after:
                written.append(pen.change(number, before, after))
        self._shown = rows
        return "".join(written) + pen.style("")


class _Pen:
    """Writes cells; it knows the style that the terminal writes in."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour
        self._style = ""

    def style(self, style: str) -> str:
        """Return what changes the style."""
        if style == self._style:
            return ""
        self._style = style
        return sequence(style, colour=self._colour)

    def change(self, number: int, before: Row, after: Row) -> str:
        """Return what makes one row of the other."""
        end = len(after)
        while end and after[end - 1] == BLANK:
            end -= 1
        if _unsure(before) or _unsure(after):
            # A terminal that sees another width than we do has moved all that follows in the row.
            spans, rest = [(0, end)], True
        else:
            spans, rest = spans_of(before, after, end), any(cell != BLANK for cell in before[end:])
        parts = []
        for first, last in spans:
            parts.append(_move(number, first))
            parts += [self.style(style) + char for char, style in after[first:last]]
        if rest and end < len(after):
            parts.append(self.style(""))
            if not spans or spans[-1][1] != end:
                parts.append(_move(number, end))
            parts.append(WIPE_REST_OF_LINE)
        return "".join(parts)


def row_of(line: Line, columns: int) -> Row:
    """Return the cells of a line."""
    cells: list[Cell] = []
    for text, style in line:
        for char in text:
            cells.append((char, style))
            cells += [("", style)] * (width(char) - 1)
    return (*cells[:columns], *[BLANK] * (columns - len(cells)))


def spans_of(before: Row, after: Row, end: int) -> list[tuple[int, int]]:
    """Return the spans of cells to write, first and behind the last."""
    spans: list[tuple[int, int]] = []
    for place in range(end):
        if before[place] == after[place]:
            continue
        if spans and place - spans[-1][1] <= BRIDGE:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
    return spans


def sequence(style: str, *, colour: bool) -> str:
    """Return what makes a terminal write in that style and no other."""
    names = [name for name in style.split() if colour or name not in COLOURS]
    return "\x1b[" + ";".join(["0", *(STYLES[name] for name in names)] if names else []) + "m"


def styled(line: Line, *, colour: bool) -> str:
    """Return a line as it is written where it stands, with its styles."""
    pen = _Pen(colour)
    return "".join(pen.style(style) + text for text, style in line) + pen.style("")


def _move(row: int, column: int) -> str:
    return f"\x1b[{row + 1};{column + 1}H" if column else f"\x1b[{row + 1}H"


def _unsure(row: Row) -> bool:
    """Whether it holds what another terminal may measure otherwise: wide characters, accents, all that is not ours."""
    return any(not char.isascii() and char not in DRAWN for char, _ in row)


# Keys: what a terminal sends for them, and what the help says of them.

ESCAPE = "\x1b"

#: seconds: a lone Escape is the key; what follows sooner makes a sequence of it, over a slow line too.
ESCAPE_SECONDS = 0.3

#: Characters: a longer sequence is of no key, and ends here.
_LONGEST = 12

#: What a terminal sends -> the key. Both forms of the arrows: a terminal may be in either mode.
SEQUENCES: Mapping[str, str] = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}

CHARACTERS: Mapping[str, str] = {"\r": "enter", "\n": "enter", "\t": "tab", "\x0c": "redraw", "\x04": "q"}


class Decoder:
    """Makes keys of characters that come one by one."""

    def __init__(self) -> None:
        self._begun = ""

    @property
    def waiting(self) -> bool:
        """Whether an Escape came that may yet become a sequence."""
        return bool(self._begun)

    def feed(self, char: str) -> str | None:
        """Take a character; return the key that it ends, None where none ends by it."""
        if not self._begun:
            if char == ESCAPE:
                self._begun = char
                return None
            return CHARACTERS.get(char, char)
        if char == ESCAPE:
            before, self._begun = self._begun, char
            return "escape" if before == ESCAPE else None
        self._begun += char
        sequence = self._begun[1:]
        if sequence in ("[", "O"):
            return None
        if sequence[0] not in "[O":  # Alt and a letter, or Escape and then one: the letter
            self._begun = ""
            return CHARACTERS.get(char, char)
        if "@" <= char <= "~" or len(sequence) > _LONGEST:
            self._begun = ""
            return SEQUENCES.get(sequence)
        return None

    def flush(self) -> str | None:
        """Nothing followed for a while: a lone Escape is a key, the begin of a sequence is none."""
        begun, self._begun = self._begun, ""
        return "escape" if begun == ESCAPE else None


class Binding(NamedTuple):
    """A key as the help tells it, and a word for the bottom line; without one it stands in the help alone.

    Where there is no room for all, those with the highest ranks go.
    """

    keys: str
    words: str
    short: str = ""
    rank: int = 0


#: In the order of the bottom line.
BINDINGS: tuple[Binding, ...] = (
    Binding("↑ ↓", "select a row (also PgUp, PgDn, Home, End)", "select", 5),
    Binding("Tab", "go to the next list"),
    Binding("s", "show all about the selected row (also Enter)", "show", 2),
    Binding("a", "ask the terminal to abort the selected payment; asks first", "abort", 3),
    Binding("r", "ask the terminal now how the selected payment stands", "reconcile", 4),
    Binding("?", "this help (also h)", "help", 1),
    Binding("q", "quit (also Ctrl-C); on a page: back (also Escape)", "quit"),
    Binding("Ctrl-L", "draw the screen anew"),
)
