"""Positions of a client in a list and in the feed. The cursor of a list stays valid after inserts.

A list is read by the index of its filter, newest first, until the page is full. The SQL names the index, because SQLite
has no statistics about open records, and would read all records.
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
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction

#: Size of rows at which a page ends, in bytes. It limits the data that is read for one response.
PAGE_BYTES = 1024 * 1024

T = TypeVar("T")

#: SQL text with its parameters.
Condition = tuple[str, tuple[Any, ...]]


def fill(rows: Iterable[T], size: Callable[[T], int], most: int = PAGE_BYTES) -> tuple[list[T], bool]:
    """Return rows until their size reaches `most`, and whether that limit ended the page."""
    found, count = [], 0
    for row in rows:
        found.append(row)
        count += size(row)
        if count >= most:
            return found, True
    return found, False


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a list of payments or print jobs. Times have the stored format."""

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
        """Whether the only filter is the beginning of an id."""
        return self.id is not None and self == type(self)(limit=self.limit, id=self.id)

    def conditions(self) -> dict[str, Condition]:
        """Return filter name -> SQL condition on a row, without the conditions on the position (`places`)."""
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
        """Return the SQL conditions on the position of a row. `at`, `identity`: columns by which rows are sorted."""
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
        """Return the name of the index to read, without the name of its table. It is the index with the fewest rows."""
        if self._open_ones:
            return "open"
        if self.attention:
            return "attention"
        return "newest" if self.terminal is None else "terminal"


def beginning(column: str, prefix: str) -> Condition:
    """Return the condition that an id in a column begins with a text, as a range of the column's index.

    All characters of ids sort before `~`.
    """
    return f"{column} >= ? AND {column} < ?", (prefix, prefix + "~")


def joined(conditions: Iterable[Condition]) -> Condition:
    """Return the conjunction of conditions."""
    pairs = list(conditions)
    return " AND ".join(sql for sql, _ in pairs) or "1", tuple(value for _, values in pairs for value in values)


def encode_cursor(created_at: str, identity: str) -> str:
    """Return the cursor after a row, a text without a meaning for clients."""
    return urlsafe_b64encode(f"{created_at} {identity}".encode()).decode()


def decode_cursor(text: str) -> tuple[str, str]:
    """Return time and id in a cursor. Raise ValueError if the text is not a cursor."""
    try:
        created_at, identity = urlsafe_b64decode(text.encode("ascii")).decode("ascii").split(" ")
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise ValueError("is not a cursor that this list gave out") from error
    return created_at, identity


# Positions in the feed, and whether a client can continue from a position without a gap.
#
# A position is the number of the last change that a client has. After `posd restore`, new numbers are above all used
# ones. But if an operator copies an older file over the database, numbers are used again. Then number 9000 is another
# change, and the number alone does not show this. So a position can have a checksum of its change: `9000-5f3a9c01`.
# Retention removes the changes of removed records. A row of `marks` has the highest removed number.

#: Position before the first change, for a client that wants positions with checksums.
START = "start"
#: Checksum of a change that no longer exists.
NO_CHECK = "00000000"
#: Kind of the row of `marks` with the highest number that retention has removed.
REMOVED = "feed_removed"
#: Largest possible number of a change: SQLite's largest integer.
MAX_SEQ = 2**63 - 1

_TEXT = re.compile(r"(\d{1,19})(?:-([0-9a-f]{8}))?", re.ASCII)


class FeedPosition(msgspec.Struct, frozen=True):
    """Position in the feed. `seq`: number of the last change that the client has, or 0 before the first change.

    `check`: checksum of that change, or empty if only the number is known.
    """

    seq: int = 0
    check: str = ""
    #: Whether the client wants positions with checksums (`9000-5f3a9c01`).
    checked: bool = False

    @classmethod
    def parse(cls, text: str) -> "FeedPosition":
        """Return the position in a text. Raise ValueError."""
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
        """Return the position after a change. `checked`: whether to add its checksum."""
        return cls(change.seq, _check(change) if checked else "", checked)

    @classmethod
    def behind(cls, db: sqlite3.Connection, seq: int) -> "FeedPosition":
        """Return the position after the change with this number, with its checksum."""
        found = _at(db, seq) if seq else None
        return cls.of(found, checked=True) if found is not None else cls(seq, NO_CHECK if seq else "", checked=True)

    def stand(self, db: sqlite3.Connection) -> tuple[bool, int]:
        """Return whether this position is in the feed, and the number after which the client continues.

        If the position is not in the feed, the client may have missed changes.
        """
        if self.seq == 0:
            return True, 0
        found = _at(db, self.seq)
        if found is not None:
            same = self.check in ("", _check(found))
            return same, self.seq if same else 0
        if self.seq > changes.last_seq(db):
            return False, 0  # the position is from a database that was ahead of this one
        return self.seq <= removed_up_to(db), self.seq  # False for a number that a restore has skipped

    def __str__(self) -> str:
        if self.checked and not self.seq:
            return START
        return f"{self.seq}-{self.check}" if self.check else str(self.seq)


def removed_up_to(db: sqlite3.Connection) -> int:
    """Return the highest number of a change that retention has removed, or 0."""
    row = db.execute("SELECT max(CAST(detail AS INTEGER)) FROM marks WHERE kind = ?", (REMOVED,)).fetchone()
    return row[0] or 0


def note_removed(unit: WriteTransaction, seq: int) -> None:
    """Record that retention has removed changes up to this number. Runs inside the commit that removes them."""
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
