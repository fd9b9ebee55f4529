"""Tables that fit the width of a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len

from posd.base.ids import canonical_uuid
from posd.base.text import shown
from posd.cli.app import times
from posd.cli.app.times import TimeCell

#: Content of a cell: one text, or several, each of which begins a new line.
Lines: TypeAlias = str | Sequence[str]
#: Cells of a row of a table.
Cells: TypeAlias = Sequence[Lines]

#: Number of characters of a short id.
SHORT_ID = 8
#: Number of spaces between two columns.
GAP = 2
#: Widths of texts that stay on one line. A table omits optional columns before it breaks a text of up to EASIER, and
#: shortens ids before it breaks a text of up to EASY.
EASY, EASIER = 24, 48
#: Minimum length of a shortened word, in characters.
LEAST = 12


def width(text: str) -> int:
    """Return the number of character cells that a text needs on a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def head(text: str, room: int) -> str:
    """Return the longest beginning of a text that fits into `room` cells."""
    if text.isascii():
        return text[: max(0, room)]
    used = 0
    for place, char in enumerate(text):
        used += width(char)
        if used > room:
            return text[:place]
    return text


def wrap(text: str, room: int) -> list[str]:
    """Break a text into lines of at most `room` cells, between words if possible."""
    lines = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        line = word
        while room > 0 and width(line) > room:
            first = head(line, room) or line[0]
            lines.append(first)
            line = line[len(first) :]
    return [*lines, line]


def shortened(text: str, room: int, mark: str = "…") -> str:
    """Return a text shortened to `room` cells. `mark` replaces the middle, because the ends identify a text."""
    if width(text) <= room:
        return text
    last = head(text[::-1], (room - 1) // 2)[::-1]
    return head(text, room - 1 - width(last)) + mark + last if room > 0 else ""


class Id(str):
    """Id in a cell, shortened if the table has too little room."""

    __slots__ = ()


class Number(str):
    """Number in a cell, never broken, right-aligned."""

    __slots__ = ()


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the shortest beginning of each UUID by which it differs from the others. Other texts stay whole."""
    short: dict[str, str] = {}
    before = ""
    for whole in sorted(filter(canonical_uuid, set(ids))):
        common = next((n for n, pair in enumerate(zip(before, whole, strict=False)) if len(set(pair)) > 1), 0)
        if before:
            short[before] = before[: max(len(short[before]), common + 1)]
        short[whole] = whole[: max(SHORT_ID, common + 1)]
        before = whole
    return [short.get(identity, identity) for identity in ids]


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    `whole`: cells are never broken into lines; other cells may be, between words. `right`: cells are right-aligned.
    `cut`: a long word may lose its middle. `extra`: the column may be omitted. `floor`: minimum width.
    """

    name: str
    cells: Sequence[Lines]
    whole: bool = False
    right: bool = False
    cut: bool = False
    extra: bool = False
    floor: int = 0

    @cached_property
    def least(self) -> int:
        """Minimum width of the column: with its text broken and shortened as far as allowed."""
        lines = [line for cell in self.cells for line in lines_of(cell)]
        parts = lines if self.whole else [word for line in lines for word in line.split(" ")]
        longest = max(map(width, parts), default=0)
        return max(self.floor, min(longest, LEAST) if self.cut else longest, *map(width, self.name.split(" ")))

    @cached_property
    def most(self) -> int:
        """Width of the column without any break or shortening."""
        return max([self.least, width(self.name), *(width(line) for cell in self.cells for line in lines_of(cell))])


class Table(NamedTuple):
    """Table as text: lines of the head, the rule below it, and lines of the body."""

    head: list[str]
    rule: str
    body: list[str]


#: Characters of the rule below the head, and of the mark in a shortened word.
UNICODE, ASCII = ("─", "…"), ("-", "~")


class Layout(NamedTuple):
    """Names of columns that are treated specially if a table has little room.

    `whole`: column whose cells are not broken. `cut`: column whose long words may lose their middle. `under`: column
    whose text is written below that of `whole` if the table has no room for both. Other columns follow it if needed.
    `extra`: columns that are omitted if there is no room, or if they are empty in all rows.
    """

    whole: str = ""
    under: str = ""
    cut: str = ""
    extra: tuple[str, ...] = ()


#: Layout without specially treated columns.
EVEN = Layout()


def lines_of(cell: Lines) -> Sequence[str]:
    """Return the lines of a cell."""
    return (cell,) if isinstance(cell, str) else cell


def laid_out(
    columns: Sequence[str],
    rows: Iterable[Cells],
    room: int,
    layout: Layout = EVEN,
    *,
    glyphs: tuple[str, str] = UNICODE,
) -> Table:
    """Return a table that fits into `room` cells, with escaped texts."""
    whole, under, cut, extra = layout
    table = list(zip(*rows, strict=True)) or [()] * len(columns)
    made = [
        _column(name, cells, whole=name == whole, cut=name == cut, extra=name in extra)
        for name, cells in zip(columns, table, strict=True)
    ]
    chosen = _chosen(made, room)
    for below in ((under,), [column.name for column in chosen][1:]) if under else ():
        if _needed(chosen, 0) > room:
            chosen = _stacked(chosen, whole, below)
    return _drawn(chosen, _widths(chosen, room), glyphs)


def _column(name: str, cells: Sequence[Lines], *, whole: bool, cut: bool, extra: bool) -> TableColumn:
    whens = [cell for cell in cells if isinstance(cell, TimeCell)]
    numbers = any(isinstance(cell, Number) for cell in cells)
    if whens:
        name = f"{name} ({times.zone(times.local(when) for when in whens if when)})".removesuffix(" ()")
    whole = whole or numbers or bool(whens) or any(isinstance(cell, Id) for cell in cells)
    return TableColumn(shown(name), list(map(_written, cells)), whole=whole, right=numbers, cut=cut, extra=extra)


def _written(cell: Lines) -> Lines:
    match cell:
        case TimeCell():
            return times.short(cell) if cell else "-"
        case Id():
            return Id(shown(cell))
        case str():
            return shown(cell)
        case _:
            return [shown(line) for line in cell]


def _chosen(columns: Sequence[TableColumn], room: int) -> list[TableColumn]:
    """Return the required columns and the optional ones that fit. If the required ones do not fit, shorten ids."""
    chosen = [column for column in columns if not column.extra]
    if _needed(chosen) > room:
        return _shortened(chosen)
    for column in filter(_says, columns):
        with_it = [each for each in columns if each in chosen or each is column]
        if _needed(with_it, EASIER) <= room:
            chosen = with_it
    return chosen


def _says(column: TableColumn) -> bool:
    return any(line not in {"", "-"} for cell in column.cells for line in lines_of(cell))


def _shortened(columns: Sequence[TableColumn]) -> list[TableColumn]:
    ids = list(dict.fromkeys(cell for column in columns for cell in column.cells if isinstance(cell, Id)))
    short = dict(zip(ids, short_ids(ids), strict=True))
    return [
        replace(column, cells=[short[cell] if isinstance(cell, Id) else cell for cell in column.cells])
        for column in columns
    ]


def _stacked(columns: Sequence[TableColumn], top: str, below: Sequence[str]) -> list[TableColumn]:
    """Join columns: the texts of `below` are written in one line below the text of `top`."""
    upper = next(column for column in columns if column.name.startswith(top))
    lower = [column for column in columns if column.name in below and column is not upper]
    cells = [
        [*lines_of(first), *(["  ".join(line for cell in others for line in lines_of(cell))] if lower else [])]
        for first, *others in zip(upper.cells, *(column.cells for column in lower), strict=True)
    ]
    name = ", ".join(column.name for column in (upper, *lower))
    both = replace(upper, name=name, cells=cells, whole=False, cut=True, floor=upper.floor or upper.least)
    return [both if column is upper else column for column in columns if column not in lower]


def _needed(columns: Sequence[TableColumn], easy: int = EASY) -> int:
    """Return the width that columns need if text that is wider than `easy` may be broken."""
    cells = [max(column.least, min(column.most, easy)) for column in columns]
    return sum(cells) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[TableColumn], room: int) -> list[int]:
    """Return the width of each column, so that all with their gaps fit into `room`.

    If even the minimum widths do not fit, the widest columns shrink.
    """
    widths = [column.least for column in columns]
    left = room - GAP * (len(columns) - 1) - sum(widths)
    while left < 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        left += 1
    while left > 0:
        wanting = [place for place, column in enumerate(columns) if widths[place] < column.most]
        if not wanting:
            break
        widths[min(wanting, key=lambda place: widths[place])] += 1
        left -= 1
    return widths


def _drawn(columns: Sequence[TableColumn], widths: Sequence[int], glyphs: tuple[str, str]) -> Table:
    rule, mark = glyphs
    head = _row([wrap(column.name, room) for column, room in zip(columns, widths, strict=True)], columns, widths)
    body: list[str] = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        broken = [
            [part for line in lines_of(cell) for part in wrap(_fitted(line, column, room, mark), room)]
            for cell, column, room in zip(cells, columns, widths, strict=True)
        ]
        body += _row(broken, columns, widths)
    return Table(head, (GAP * " ").join(rule * room for room in widths), body)


def _fitted(line: str, column: TableColumn, room: int, mark: str) -> str:
    """Return a line of a cell. In a column that may be cut, words are shortened to `room`."""
    return " ".join(shortened(word, room, mark) for word in line.split(" ")) if column.cut else line


def _row(cells: Sequence[Sequence[str]], columns: Sequence[TableColumn], widths: Sequence[int]) -> list[str]:
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = []
        for cell, column, room in zip(cells, columns, widths, strict=True):
            text = cell[number] if number < len(cell) else ""
            space = " " * (room - width(text))
            parts.append(space + text if column.right else text + space)
        lines.append((GAP * " ").join(parts).rstrip())
    return lines
