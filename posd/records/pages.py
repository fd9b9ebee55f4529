"""Where a reader goes on: in a list, by filters, an order and a cursor that survives inserts; and in the feed.

A list is walked in the index of its own filter, newest first, until the page is full. Which one is said here, and not
left to SQLite: it does not know how few are open, and would look for them among all.
"""

import binascii
import re
import sqlite3
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from posd.records.model import Phase
from posd.storage import changes, database_id
from posd.storage.writer import RecordedChange, WriteTransaction

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


# Places in the feed, and whether a reader can go on from one without missing anything.
#
# A place is the number of the last change that a reader has. Numbers go back where an operator puts an older copy of
# the database in place (`posd restore` goes on above all numbers that were given out): then 9000 is another change than
# it was, and nothing in the number says so. So a place can have a check with it, made of the change that it stands for:
# `9000-5f3a9c01`. And changes go where retention removes what they are about: up to which number is kept as a mark.

#: Where a reader begins who wants places with a check.
START = "start"
#: The check of a change that is not there any more.
NO_CHECK = "00000000"
#: Kind of the mark that says up to which number retention has removed changes.
REMOVED = "feed_removed"
#: SQLite's largest integer: no change has a higher number.
MAX_SEQ = 2**63 - 1

_TEXT = re.compile(r"(\d{1,19})(?:-([0-9a-f]{8}))?", re.ASCII)


class FeedPosition(msgspec.Struct, frozen=True):
    """The number of a change, 0 before the first. `check` is empty if the number alone is known."""

    seq: int = 0
    check: str = ""
    #: Whether the reader wants checks with the places that it is given.
    checked: bool = False

    @classmethod
    def parse(cls, text: str) -> "FeedPosition":
        """Read a place. Raise ValueError."""
        if text == START:
            return cls(checked=True)
        found = _TEXT.fullmatch(text)
        if found is None or int(found[1]) > MAX_SEQ:
            raise ValueError(
                f"must be a whole number from 0 to {MAX_SEQ}, or a place as this feed gave it (`12-5f3a9c01`), "
                "or `start`"
            )
        return cls(int(found[1]), found[2] or "", checked=found[2] is not None)

    @classmethod
    def of(cls, change: RecordedChange, *, checked: bool) -> "FeedPosition":
        """Return the place behind a change."""
        return cls(change.seq, _check(change) if checked else "", checked)

    @classmethod
    def behind(cls, db: sqlite3.Connection, seq: int) -> "FeedPosition":
        """Return the place behind the change of a number, with a check."""
        found = _at(db, seq) if seq else None
        return cls.of(found, checked=True) if found is not None else cls(seq, NO_CHECK if seq else "", checked=True)

    def stand(self, db: sqlite3.Connection) -> tuple[bool, int]:
        """Return whether the feed knows a place, and the number to go on after.

        If it does not know it, the reader may have missed something.
        """
        if self.seq == 0:
            return True, 0
        found = _at(db, self.seq)
        if found is not None:
            same = self.check in ("", _check(found))
            return same, self.seq if same else 0
        if self.seq > database_id.last_seq(db):
            return False, 0  # given by a database that was ahead of this one
        return self.seq <= removed_up_to(db), self.seq  # else it is between the numbers of two databases

    def __str__(self) -> str:
        if self.checked and not self.seq:
            return START
        return f"{self.seq}-{self.check}" if self.check else str(self.seq)


def removed_up_to(db: sqlite3.Connection) -> int:
    """Return the highest number of a change that retention has removed, 0 where it removed none."""
    row = db.execute("SELECT max(CAST(detail AS INTEGER)) FROM marks WHERE kind = ?", (REMOVED,)).fetchone()
    return row[0] or 0


def note_removed(unit: WriteTransaction, seq: int) -> None:
    """Record that changes up to this number were removed, in the commit that removes them."""
    if seq > removed_up_to(unit.db):
        unit.db.execute("DELETE FROM marks WHERE kind = ?", (REMOVED,)).close()
        unit.db.execute(
            "INSERT INTO marks (at, kind, detail) VALUES (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?, ?)",
            (REMOVED, str(seq)),
        ).close()


def _at(db: sqlite3.Connection, seq: int) -> RecordedChange | None:
    found = changes.after(db, seq - 1, 1)
    return found[0] if found and found[0].seq == seq else None


def _check(change: RecordedChange) -> str:
    return f"{zlib.crc32(f'{change.seq} {change.at} {change.kind} {change.id} {change.reason}'.encode()):08x}"
