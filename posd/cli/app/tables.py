"""Tables on a terminal: as much as its width has room for, and nothing broken within a word that has to be read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from posd.base.ids import canonical_uuid
from posd.base.text import shown
from posd.cli.app import times
from posd.cli.app.cells import cut, width, wrap
from posd.cli.app.times import When

#: What is written in a line, or in several: each stays one line.
Lines: TypeAlias = str | Sequence[str]
#: The cells of a row of a table.
Cells: TypeAlias = Sequence[Lines]

#: Characters of a short id.
SHORT_ID = 8
#: Cells between two columns.
GAP = 2
#: Text that is longer than this may be broken between words before whole ids and further columns are left out.
EASY = 24
#: A column is not cut to less than this.
LEAST = 8


class Id(str):
    """An id in a cell: its beginning, where a table has no room for all of it."""

    __slots__ = ()


class Number(str):
    """A number in a cell: never broken, and set flush right."""

    __slots__ = ()


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the beginnings of UUIDs, as long as it takes to tell them apart; what is no UUID is left whole."""
    wholes = {identity for identity in ids if canonical_uuid(identity)}
    length = next((n for n in range(SHORT_ID, 36) if len({whole[:n] for whole in wholes}) == len(wholes)), 36)
    return [identity[:length] if identity in wholes else identity for identity in ids]


@dataclass(frozen=True)
class Column:
    """A column of a table. `whole`: none of its cells is broken or cut. `extra`: it may be left out."""

    name: str
    cells: Sequence[Lines]
    whole: bool = False
    right: bool = False
    extra: bool = False

    @cached_property
    def words(self) -> list[str]:
        """What is not broken: the words of its name, and its cells or their words."""
        lines = [line for cell in self.cells for line in lines_of(cell)]
        return [*self.name.split(" "), *(lines if self.whole else [word for line in lines for word in line.split(" ")])]

    @cached_property
    def least(self) -> int:
        """The cells that it takes where it is broken between all words."""
        return max(map(width, self.words))

    @cached_property
    def most(self) -> int:
        """The cells that it takes where it is not broken."""
        return max([self.least, *(width(line) for cell in self.cells for line in lines_of(cell))])


class Table(NamedTuple):
    """The lines of a table as it is drawn."""

    head: list[str]
    rule: str
    body: list[str]


class Drawn(NamedTuple):
    """What tables are drawn with."""

    rule: str
    cut: str


UNICODE = Drawn("─", "…")
ASCII = Drawn("-", "~")


def lines_of(cell: Lines) -> Sequence[str]:
    """Return the lines of a cell."""
    return (cell,) if isinstance(cell, str) else cell


def laid_out(
    columns: Sequence[str],
    rows: Iterable[Cells],
    room: int,
    *,
    whole: str = "",
    under: str = "",
    extra: Sequence[str] = (),
    full_ids: bool = False,
    glyphs: Drawn = UNICODE,
) -> Table:
    """Return a table in at most `room` cells.

    `whole` names a column whose cells are not broken, `under` one that stands below it where they have no room beside
    each other, `extra` those that are left out where they have none. What a stranger wrote is made harmless here.
    """
    table = list(zip(*rows, strict=True)) or [()] * len(columns)
    made = [
        _column(name, cells, whole=name == whole, extra=name in extra)
        for name, cells in zip(columns, table, strict=True)
    ]
    chosen = _chosen(made, room, full_ids=full_ids)
    if under and _needed(chosen, least=True) > room:
        chosen = _stacked(chosen, whole, under)
    return _drawn(chosen, _widths(chosen, room), glyphs)


def _column(name: str, cells: Sequence[Lines], *, whole: bool, extra: bool) -> Column:
    whens = [cell for cell in cells if isinstance(cell, When)]
    numbers = any(isinstance(cell, Number) for cell in cells)
    if whens:
        name = f"{name} ({times.zone(times.local(when) for when in whens if when)})".removesuffix(" ()")
    whole = whole or numbers or bool(whens) or any(isinstance(cell, Id) for cell in cells)
    return Column(shown(name), list(map(_written, cells)), whole, numbers, extra)


def _written(cell: Lines) -> Lines:
    match cell:
        case When():
            return times.short(cell) if cell else "-"
        case Id():
            return Id(shown(cell))
        case str():
            return shown(cell)
        case _:
            return [shown(line) for line in cell]


def _chosen(columns: Sequence[Column], room: int, *, full_ids: bool) -> list[Column]:
    """Return the columns with whole ids and as many of the further ones as have room, else with short ids."""
    chosen = [column for column in columns if not column.extra]
    if not full_ids and _needed(chosen) > room:
        return _shortened(chosen)
    for column in columns:
        with_it = [each for each in columns if each in chosen or each is column]
        if _needed(with_it) <= room:
            chosen = with_it
    return chosen


def _shortened(columns: Sequence[Column]) -> list[Column]:
    ids = list(dict.fromkeys(cell for column in columns for cell in column.cells if isinstance(cell, Id)))
    short = dict(zip(ids, short_ids(ids), strict=True))
    return [
        replace(column, cells=[short[cell] if isinstance(cell, Id) else cell for cell in column.cells])
        for column in columns
    ]


def _stacked(columns: Sequence[Column], top: str, below: str) -> list[Column]:
    """Put one column below another, which stands before it."""
    upper, lower = (next(column for column in columns if column.name == name) for name in (top, below))
    cells = [[*lines_of(one), *lines_of(other)] for one, other in zip(upper.cells, lower.cells, strict=True)]
    both = replace(upper, name=f"{upper.name}, {lower.name}", cells=cells)
    return [both if column is upper else column for column in columns if column is not lower]


def _needed(columns: Sequence[Column], *, least: bool = False) -> int:
    """Return the cells that columns need to be read with ease, or at least."""
    cells = [column.least if least else max(column.least, min(column.most, EASY)) for column in columns]
    return sum(cells) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """Return the cells of each column, together with the gaps at most `room`."""
    widths = [column.least for column in columns]
    left = room - GAP * (len(columns) - 1) - sum(widths)
    # First what may be cut, the widest of it; then, on a screen that is hardly one, anything.
    for cuttable in ([not column.whole for column in columns], [True for _ in columns]):
        while left < 0:
            widest = max(
                (place for place, may in enumerate(cuttable) if may and widths[place] > LEAST),
                key=lambda place: widths[place],
                default=None,
            )
            if widest is None:
                break
            widths[widest] -= 1
            left += 1
    while left > 0:
        wanting = [place for place, column in enumerate(columns) if widths[place] < column.most]
        if not wanting:
            break
        widths[min(wanting, key=lambda place: widths[place])] += 1
        left -= 1
    return widths


def _drawn(columns: Sequence[Column], widths: Sequence[int], glyphs: Drawn) -> Table:
    head = _row([wrap(column.name, room) for column, room in zip(columns, widths, strict=True)], columns, widths)
    body: list[str] = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        broken = [
            [part for line in lines_of(cell) for part in wrap(_fitted(line, column, room, glyphs.cut), room)]
            for cell, column, room in zip(cells, columns, widths, strict=True)
        ]
        body += _row(broken, columns, widths)
    return Table(head, (GAP * " ").join(glyphs.rule * room for room in widths), body)


def _fitted(line: str, column: Column, room: int, mark: str) -> str:
    """Return a line whose words have room each, but in a column that is not cut."""
    return line if column.whole else " ".join(cut(word, room, mark) for word in line.split(" "))


def _row(cells: Sequence[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = []
        for cell, column, room in zip(cells, columns, widths, strict=True):
            text = cell[number] if number < len(cell) else ""
            space = " " * (room - width(text))
            parts.append(space + text if column.right else text + space)
        lines.append((GAP * " ").join(parts).rstrip())
    return lines
