"""Places in the feed, and whether a reader can go on from one without missing anything.

A place is the number of the last change that a reader has. Numbers go back where an operator puts an older copy of the
database in place (`posd restore` goes on above all numbers that were given out): then 9000 is another change than it
was, and nothing in the number says so. So a place can have a check with it, made of the change that it stands for:
`9000-5f3a9c01`. And changes go where retention removes what they are about: up to which number is kept as a mark.
"""

import re
import sqlite3
import zlib

import msgspec

from posd.storage import changes, database_id
from posd.storage.writer import RecordedChange, WriteTransaction

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

    def __str__(self) -> str:
        if self.checked and not self.seq:
            return START
        return f"{self.seq}-{self.check}" if self.check else str(self.seq)


def parse(text: str) -> FeedPosition:
    """Read a place. Raise ValueError."""
    if text == START:
        return FeedPosition(checked=True)
    found = _TEXT.fullmatch(text)
    if found is None or int(found[1]) > MAX_SEQ:
        raise ValueError(
            f"must be a whole number from 0 to {MAX_SEQ}, or a place as this feed gave it (`12-5f3a9c01`), or `start`"
        )
    return FeedPosition(int(found[1]), found[2] or "", checked=found[2] is not None)


def of(change: RecordedChange, *, checked: bool) -> FeedPosition:
    """Return the place behind a change."""
    return FeedPosition(change.seq, _check(change) if checked else "", checked)


def behind(db: sqlite3.Connection, seq: int) -> FeedPosition:
    """Return the place behind the change of a number, with a check."""
    found = _at(db, seq) if seq else None
    return of(found, checked=True) if found is not None else FeedPosition(seq, NO_CHECK if seq else "", checked=True)


def stand(db: sqlite3.Connection, place: FeedPosition) -> tuple[bool, int]:
    """Return whether the feed knows a place, and the number to go on after.

    If it does not know it, the reader may have missed something.
    """
    if place.seq == 0:
        return True, 0
    found = _at(db, place.seq)
    if found is not None:
        same = place.check in ("", _check(found))
        return same, place.seq if same else 0
    if place.seq > database_id.last_seq(db):
        return False, 0  # given by a database that was ahead of this one
    return place.seq <= removed_up_to(db), place.seq  # else it is between the numbers of two databases


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
