"""Identities of a database, and numbers of its rows.

The identities are stored as marks, and the newest one is valid. An identity and a feed number together identify a
change permanently. Within an identity, each number from `first_seq` on is used once, without gaps. A number is reused
only if its transaction or savepoint was rolled back.
"""
# ruff: noqa: S608 - only names of tables are inserted into SQL here

import secrets
import sqlite3
from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.storage import marks

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


class FeedDatabase(msgspec.Struct, frozen=True):
    """Feed numbers that belong to one database_id."""

    database_id: Annotated[str, Meta(description="id of their database")]
    first_seq: Annotated[int, Meta(description="its first number, whether that change is still there or not")]
    last_seq: Annotated[
        int | None,
        Meta(
            description="its last number known to this database; a lost database may have given out later ones; or null"
        ),
    ]


def all_of(db: sqlite3.Connection) -> list[DatabaseIdentity]:
    """Return all identities of a database, the present one last. Omit damaged earlier identities.

    Raise ValueError if the present identity is damaged or missing.
    """
    found = []
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid", (KIND,)):
        with suppress(ValueError):
            found.append(msgspec.json.decode(detail, type=DatabaseIdentity))
    if not found or found[-1] != present(db):
        raise ValueError("the identity of the database is damaged")
    return found


def present(db: sqlite3.Connection) -> DatabaseIdentity:
    """Return the newest identity. Raise ValueError if that identity is damaged or missing."""
    detail = marks.newest_detail(db, KIND)
    if detail is None:
        raise ValueError("the database has no identity")
    return msgspec.json.decode(detail, type=DatabaseIdentity)


def ranges(db: sqlite3.Connection) -> list[FeedDatabase]:
    """Return the feed numbers of each identity. For an earlier identity, these are the numbers that were copied with
    that identity.

    Raise ValueError as `all_of`.
    """
    known = all_of(db)
    ends = [_last_before(db, later.first_seq) for later in known[1:]] + [last_seq(db)]
    return [
        FeedDatabase(item.database_id, item.first_seq, end if end >= item.first_seq else None)
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


def last_seq(db: sqlite3.Connection) -> int:
    """Return the highest number that any change ever had, even if that change was removed."""
    return newest_number(db, "changes")


# Numbers of rows (`seq`). Each number is used once, even if the newest row is removed.
#
# The next number is above all numbers in the table, and above that in sqlite_sequence. A trigger updates
# sqlite_sequence when the newest row is deleted, and so does code that skips numbers. AUTOINCREMENT would update it for
# each row.


@cache
def next_number(table: str) -> str:
    """Return the SQL expression of the next number of a table."""
    return f"1 + {_newest_sql('main', table)}"


@cache
def used_outside(table: str, schema: str = "main") -> str:
    """Return the SQL expression of the highest number that is recorded as used outside the table."""
    return f"coalesce((SELECT seq FROM {schema}.sqlite_sequence WHERE name = '{table}'), 0)"


@cache
def _newest_sql(schema: str, table: str) -> str:
    return f"max(coalesce((SELECT max(rowid) FROM {schema}.{table}), 0), {used_outside(table, schema)})"


def newest_number(db: sqlite3.Connection, table: str, schema: str = "main") -> int:
    """Return the highest number that was used, whether its row still exists or not."""
    number: int = db.execute(f"SELECT {_newest_sql(schema, table)}").fetchone()[0]
    return number


def advance_sequence(db: sqlite3.Connection, table: str, number: int) -> None:
    """Reserve all numbers up to `number`."""
    if not db.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table)).rowcount:
        db.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
