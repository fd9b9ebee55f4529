"""What lists share: the filters that rows of either kind have, their order, and a cursor that survives inserts.

A list is walked in the index of its own filter, newest first, until the page is full. Which one is said here, and not
left to SQLite: it does not know how few are open, and would look for them among all.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from posd.records.model import Phase

#: A page ends with the row that reaches this size in bytes. It bounds what is read for one answer.
PAGE_BYTES = 1024 * 1024

T = TypeVar("T")

#: SQL and its parameters.
Condition = tuple[str, tuple[Any, ...]]


def fill(rows: Iterable[T], size: Callable[[T], int]) -> tuple[list[T], bool]:
    """Return the rows that fit on a page by their size in bytes, and whether the page ended with them."""
    found, count = [], 0
    for row in rows:
        found.append(row)
        count += size(row)
        if count >= PAGE_BYTES:
            return found, True
    return found, False


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What to list, of either kind; times are as stored."""

    limit: int
    phase: Phase | None = None
    open: bool = False
    terminal: str | None = None
    attention: bool = False
    since: str | None = None
    until: str | None = None
    cursor: tuple[str, str] | None = None
    id: str | None = None

    @property
    def by_id(self) -> bool:
        """Whether ids are asked for that begin so, and nothing else."""
        return self.id is not None and self == type(self)(limit=self.limit, id=self.id)

    def conditions(self) -> dict[str, Condition]:
        """Return the conditions that a row has to meet, but for its place, by the names of the filters."""
        conditions: dict[str, Condition] = {}
        if self.phase is not None:
            conditions["phase"] = ("phase = ?", (self.phase,))
        if self._open_ones:
            conditions["open"] = ("phase <> 'final'", ())
        if self.attention:
            conditions["attention"] = ("attention <> '[]'", ())
        if self.terminal is not None:
            conditions["terminal"] = ("terminal = ?", (self.terminal,))
        return conditions

    def places(self, at: str, identity: str) -> list[Condition]:
        """Return the conditions on where in the list a row is, by the names of the two columns of its order."""
        conditions: list[Condition] = []
        if self.since is not None:
            conditions.append((f"{at} >= ?", (self.since,)))
        if self.until is not None:
            conditions.append((f"{at} < ?", (self.until,)))
        if self.cursor is not None:
            conditions.append((f"({at}, {identity}) < (?, ?)", self.cursor))
        return conditions

    @property
    def _open_ones(self) -> bool:
        return self.open or self.phase not in (None, Phase.FINAL)

    def index(self) -> str:
        """Return the index to walk, without the name of its table: of what is asked for, the filter that few pass."""
        if self._open_ones:
            return "open"
        if self.attention:
            return "attention"
        return "newest" if self.terminal is None else "terminal"


def beginning(column: str, prefix: str) -> Condition:
    """Return the condition that a column begins so, as a range of its index. No id has a character above `-._0-z`."""
    return f"{column} >= ? AND {column} < ?", (prefix, prefix + "~")


def joined(conditions: Iterable[Condition]) -> Condition:
    """Return one condition that holds where all of them do."""
    pairs = list(conditions)
    return " AND ".join(sql for sql, _ in pairs) or "1", tuple(value for _, values in pairs for value in values)


def encode_cursor(created_at: str, identity: str) -> str:
    """Return the place after a row, as an opaque text."""
    return urlsafe_b64encode(f"{created_at} {identity}".encode()).decode()


def decode_cursor(text: str) -> tuple[str, str]:
    """Read a cursor. Raise ValueError if it is none of ours."""
    try:
        created_at, identity = urlsafe_b64decode(text.encode("ascii")).decode("ascii").split(" ")
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise ValueError("is not a cursor that this list gave out") from error
    return created_at, identity
