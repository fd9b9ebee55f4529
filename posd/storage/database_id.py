"""Which database this is: its identities, which are marks; the newest counts.

An identity and a number of the feed name a change for ever: within an identity each number is given out once, and
none is left out from `first_seq` on. SQLite takes a number back with the transaction or savepoint in which it was given
out.
"""

import secrets
import sqlite3
from contextlib import suppress
from enum import StrEnum

import msgspec

from posd.storage import marks, numbers

#: Kind of the marks.
KIND = "identity"
#: Bytes of a database_id.
ID_BYTES = 16


class Cause(StrEnum):
    """Why a database got an identity."""

    MADE = "made"
    RESTORED = "restored"
    GONE_BACK = "gone_back"


class Identity(msgspec.Struct, frozen=True):
    """One identity: from which number of the feed on it counts, and where it came from."""

    database_id: str
    first_seq: int
    cause: Cause


class Range(msgspec.Struct, frozen=True):
    """The numbers of one identity: the first, and the last that the database has of it, None where it has none."""

    database_id: str
    first_seq: int
    last_seq: int | None


def all_of(db: sqlite3.Connection) -> list[Identity]:
    """Return the identities that a database had, the present one last; earlier ones that are damaged are left out.

    Raise ValueError where the present one is damaged, or not there.
    """
    found = []
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid", (KIND,)):
        with suppress(ValueError):
            found.append(msgspec.json.decode(detail, type=Identity))
    if not found or found[-1] != present(db):
        raise ValueError("the identity of the database is damaged")
    return found


def present(db: sqlite3.Connection) -> Identity:
    """Return the identity that counts. Raise ValueError where it is damaged, or not there."""
    detail = marks.newest_detail(db, KIND)
    if detail is None:
        raise ValueError("the database has no identity")
    return msgspec.json.decode(detail, type=Identity)


def ranges(db: sqlite3.Connection) -> list[Range]:
    """Return the numbers of each identity, as `all_of`: of an earlier one, those that were copied with it.

    Raise ValueError as `all_of`.
    """
    known = all_of(db)
    ends = [_last_before(db, later.first_seq) for later in known[1:]] + [last_seq(db)]
    return [
        Range(item.database_id, item.first_seq, end if end >= item.first_seq else None)
        for item, end in zip(known, ends, strict=True)
    ]


def _last_before(db: sqlite3.Connection, seq: int) -> int:
    row = db.execute("SELECT max(seq) FROM changes WHERE seq < ?", (seq,)).fetchone()
    return row[0] or 0


def renew(db: sqlite3.Connection, at: str, first_seq: int, cause: Cause) -> Identity:
    """Give a database a new identity, whose changes begin with that number."""
    fresh = Identity(secrets.token_hex(ID_BYTES), first_seq, cause)
    marks.add(db, at, KIND, fresh)
    return fresh


def newest_change_at(db: sqlite3.Connection) -> str | None:
    """Return the time of the newest line of the feed, None where there is none."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None


def last_seq(db: sqlite3.Connection) -> int:
    """Return the highest number of a change that was given out, whether the change is still there or not."""
    return numbers.newest(db, "changes")
