"""The feed of all changes, the identities of the database, and subscribers: waiting tills and streams.

Together, the identity of the database and the number in the feed identify a change permanently. The identities are
stored as marks, and the newest one is valid. Within an identity, each number from `first_seq` on is used once, without
gaps. A number is reused only if its transaction or savepoint was rolled back.

A waiter subscribes *before* it reads the state, so that it misses no change. So it need not poll.
"""
# ruff: noqa: S608 - only names of tables are inserted into SQL here

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta

from posd.storage import marks
from posd.storage.batch import RecordedChange, WriteTransaction

#: Subject that stands for all changes (the feed).
ANY = ""

Kind = TypeVar("Kind", bound=RecordedChange)

_ATTENTION = msgspec.json.Decoder(tuple[str, ...])


class Waiter(asyncio.Event):
    """Subscription to a subject within a `with` block. A wanted change, or the stop of posd, wakes the waiter."""

    def __init__(self, hub: "Hub", subject: str, wanted: Callable[[RecordedChange], bool]) -> None:
        super().__init__()
        self.wanted = wanted
        self._hub = hub
        self._subject = subject

    def __enter__(self) -> Self:
        self._hub.waiters.setdefault(self._subject, {})[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        waiters = self._hub.waiters[self._subject]
        waiters.pop(self, None)
        if not waiters:
            del self._hub.waiters[self._subject]


class Hub:
    """Subscribers to changes, by subject. Used on the event loop only."""

    def __init__(self) -> None:
        #: Subject -> waiters, in the order of arrival. A `Waiter` adds itself.
        self.waiters: dict[str, dict[Waiter, None]] = {}
        self._first: list[tuple[type[RecordedChange], Callable[[Sequence[Any]], None]]] = []
        self._later: list[tuple[type[RecordedChange], Callable[[Any], None]]] = []
        self.draining = False

    def subscribe(self, subject: str = ANY, wanted: Callable[[RecordedChange], bool] = lambda _: True) -> Waiter:
        """Return a waiter for the wanted changes of a subject.

        The caller enters the waiter before it reads the state.
        """
        return Waiter(self, subject, wanted)

    def awaited(self, subject: str) -> bool:
        """Return whether a caller waits for changes of the subject."""
        return subject in self.waiters

    def listen(self, listener: Callable[[Sequence[Kind]], None], kind: type[Kind]) -> None:
        """Call `listener` on the event loop with the changes of that kind in each COMMIT."""
        self._first.append((kind, listener))

    def listen_later(self, tell: Callable[[Kind], None], kind: type[Kind]) -> None:
        """Call `tell` with each change of that kind, one step of the event loop after its COMMIT.

        So the caller of the COMMIT continues first, and logs its own event before `tell` logs the effects.
        """
        self._later.append((kind, tell))

    def publish(self, changes: Sequence[RecordedChange]) -> None:
        """Call the listeners with these changes, and wake the waiters. Called after the COMMIT."""
        if not changes:
            return
        for kind, listener in self._first:
            if wanted := [change for change in changes if isinstance(change, kind)]:
                listener(wanted)
        if self._later:
            asyncio.get_running_loop().call_soon(self._publish_later, changes)
        for change in changes:
            for subject in (change.id, ANY):
                for waiter in self.waiters.get(subject, ()):
                    if waiter.wanted(change):
                        waiter.set()

    def _publish_later(self, changes: Sequence[RecordedChange]) -> None:
        for kind, tell in self._later:
            for change in changes:
                if isinstance(change, kind):
                    tell(change)

    def drain(self) -> None:
        """Wake all waiters for the last time, because posd is stopping."""
        self.draining = True
        for waiters in self.waiters.values():
            for waiter in waiters:
                waiter.set()


# Numbers of rows (`seq`). Each number is used once, even if the newest row is removed.
#
# The next number is above all numbers in the table, and above the table's number in sqlite_sequence. A trigger updates
# sqlite_sequence when the newest row is deleted. `advance_sequence` updates it to skip numbers. AUTOINCREMENT would
# update it for each row.


@cache
def next_number(table: str) -> str:
    """Return the SQL expression of the next number of a table."""
    return f"1 + {_newest_sql('main', table)}"


@cache
def used_outside(table: str, schema: str = "main") -> str:
    """Return the SQL expression of the table's highest used number in sqlite_sequence, or 0."""
    return f"coalesce((SELECT seq FROM {schema}.sqlite_sequence WHERE name = '{table}'), 0)"


@cache
def _newest_sql(schema: str, table: str) -> str:
    return f"max(coalesce((SELECT max(rowid) FROM {schema}.{table}), 0), {used_outside(table, schema)})"


def newest_number(db: sqlite3.Connection, table: str, schema: str = "main") -> int:
    """Return the highest number that was used, whether its row still exists or not."""
    number: int = db.execute(f"SELECT {_newest_sql(schema, table)}").fetchone()[0]
    return number


def advance_sequence(db: sqlite3.Connection, table: str, number: int) -> None:
    """Skip all numbers up to `number`."""
    if not db.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table)).rowcount:
        db.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))


# Rows of the feed.

#: Columns of a row: the fields of `RecordedChange`, with the attentions as JSON.
_COLUMNS = ", ".join(RecordedChange.__struct_fields__)
#: Values of a row without its number. The values are read by name, because a subclass has its fields in another order.
_VALUES = attrgetter(*RecordedChange.__struct_fields__[1:])
_INSERT = f"INSERT INTO changes ({_COLUMNS}) VALUES ({next_number('changes')}, ?,?,?,?,?,?,?,?,?)"


def record(unit: WriteTransaction, change: RecordedChange) -> None:
    """Write a row of the feed. The database sets its `seq`, and the writer publishes it after the COMMIT."""
    *others, attention, terminal = _VALUES(change)
    cursor = unit.db.execute(_INSERT, (*others, msgspec.json.encode(attention).decode(), terminal))
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT into a rowid table has one
    unit.changes.append(msgspec.structs.replace(change, seq=cursor.lastrowid))


def after(db: sqlite3.Connection, seq: int, limit: int) -> list[RecordedChange]:
    """Return the changes after `seq`, ascending, at most `limit`."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))
    return [RecordedChange(*[*before, _ATTENTION.decode(attention), terminal]) for *before, attention, terminal in rows]


def newest_seq(db: sqlite3.Connection) -> int:
    """Return the number of the newest change, or 0."""
    row = db.execute("SELECT seq FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else 0


def newest_at(db: sqlite3.Connection) -> str | None:
    """Return the time of the newest change, or None."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None


# Identities of the database.

#: Kind of the marks with the identities.
IDENTITY = "identity"
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

    database_id: Annotated[str, Meta(description="id of the database")]
    first_seq: Annotated[int, Meta(description="its first number; that change may have been removed")]
    last_seq: Annotated[
        int | None,
        Meta(description="its last number that this database knows, or null; a lost database may have used later ones"),
    ]


def identities(db: sqlite3.Connection) -> list[DatabaseIdentity]:
    """Return all identities of a database, the present one last. Omit damaged earlier identities.

    Raise ValueError if the present identity is damaged or missing.
    """
    found = []
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid", (IDENTITY,)):
        with suppress(ValueError):
            found.append(msgspec.json.decode(detail, type=DatabaseIdentity))
    if not found or found[-1] != present_identity(db):
        raise ValueError("the identity of the database is damaged")
    return found


def present_identity(db: sqlite3.Connection) -> DatabaseIdentity:
    """Return the newest identity. Raise ValueError if that identity is damaged or missing."""
    if (identity := marks.newest_detail(db, IDENTITY, DatabaseIdentity)) is None:
        raise ValueError("the database has no identity")
    return identity


def ranges(db: sqlite3.Connection) -> list[FeedDatabase]:
    """Return the range of feed numbers of each identity.

    The range of an earlier identity ends with its last change in this database. Raise ValueError as `identities` does.
    """
    known = identities(db)
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
    marks.add(db, at, IDENTITY, fresh)
    return fresh


def last_seq(db: sqlite3.Connection) -> int:
    """Return the highest number that any change ever had, even if that change was removed."""
    return newest_number(db, "changes")
