"""What is written to a terminal so that it shows the next frame: only the cells that differ, in one piece.

Nothing flickers, because nothing is wiped that stays, and a slow line carries a few bytes for a clock that ticks.
"""

from collections.abc import Sequence

from posd.cli.watch.cells import DRAWN, Line, width

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
