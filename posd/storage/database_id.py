"""Identities of a database, stored as marks; the newest counts.

An identity and a number of the feed name a change for good. Within an identity each number is used once, without gaps
from `first_seq` on. SQLite takes a number back with its transaction or savepoint.
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


class IdentityCause(StrEnum):
    """Reason for an identity of a database."""

    MADE = "made"
    RESTORED = "restored"
    GONE_BACK = "gone_back"


class DatabaseIdentity(msgspec.Struct, frozen=True):
    """One identity: its id, its first number of the feed, and its cause."""

    database_id: str
    first_seq: int
    cause: IdentityCause


class IdentityRange(msgspec.Struct, frozen=True):
    """Numbers of one identity: the first, and the last in the database, or None."""

    database_id: str
    first_seq: int
    last_seq: int | None


def all_of(db: sqlite3.Connection) -> list[DatabaseIdentity]:
    """Return all identities of a database, the present one last, without earlier damaged ones.

    Raise ValueError if the present one is damaged or missing.
    """
    found = []
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid", (KIND,)):
        with suppress(ValueError):
            found.append(msgspec.json.decode(detail, type=DatabaseIdentity))
    if not found or found[-1] != present(db):
        raise ValueError("the identity of the database is damaged")
    return found


def present(db: sqlite3.Connection) -> DatabaseIdentity:
    """Return the newest identity. Raise ValueError if it is damaged or missing."""
    detail = marks.newest_detail(db, KIND)
    if detail is None:
        raise ValueError("the database has no identity")
    return msgspec.json.decode(detail, type=DatabaseIdentity)


def ranges(db: sqlite3.Connection) -> list[IdentityRange]:
    """Return the numbers of each identity; for an earlier one, those that were copied with it.

    Raise ValueError as `all_of`.
    """
    known = all_of(db)
    ends = [_last_before(db, later.first_seq) for later in known[1:]] + [last_seq(db)]
    return [
        IdentityRange(item.database_id, item.first_seq, end if end >= item.first_seq else None)
        for item, end in zip(known, ends, strict=True)
    ]


def _last_before(db: sqlite3.Connection, seq: int) -> int:
    row = db.execute("SELECT max(seq) FROM changes WHERE seq < ?", (seq,)).fetchone()
    return row[0] or 0


def renew(db: sqlite3.Connection, at: str, first_seq: int, cause: IdentityCause) -> DatabaseIdentity:
    """Add a new identity, whose changes begin with `first_seq`."""
    fresh = DatabaseIdentity(secrets.token_hex(ID_BYTES), first_seq, cause)
    marks.add(db, at, KIND, fresh)
    return fresh


def newest_change_at(db: sqlite3.Connection) -> str | None:
    """Return the time of the newest line of the feed, or None."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None


def last_seq(db: sqlite3.Connection) -> int:
    """Return the highest number that a change ever had, also if that change was removed."""
    return numbers.newest(db, "changes")
