"""History of all changes, and its subscribers: waiting tills and streams.

A waiter subscribes *before* it reads the state, so that it misses no change. A waiter does not poll.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import msgspec

from posd.storage import database_id
from posd.storage.batch import RecordedChange, WriteTransaction

#: Subject of every change (the feed).
ANY = ""

Kind = TypeVar("Kind", bound=RecordedChange)

_ATTENTION = msgspec.json.Decoder(tuple[str, ...])


class Waiter(asyncio.Event):
    """Subscription to the wanted changes of a subject within a `with` block. The stop of posd sets it too."""

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
    """Wake the waiters of a changed subject. Used on the event loop only."""

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

        So the caller of the COMMIT continues first, and logs its own event before the effects.
        """
        self._later.append((kind, tell))

    def publish(self, changes: Sequence[RecordedChange]) -> None:
        """Wake the waiters of these changes. Called after the COMMIT."""
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


_INSERT = (
    "INSERT INTO changes (seq, at, kind, id, reason, phase, status, result, attention, terminal)"  # noqa: S608
    f" VALUES ({database_id.next_number('changes')}, ?,?,?,?,?,?,?,?,?)"
)


def record(unit: WriteTransaction, change: RecordedChange) -> None:
    """Write a row of the history, and publish it after the COMMIT. The database sets its `seq`."""
    cursor = unit.db.execute(
        _INSERT,
        (
            change.at,
            change.kind,
            change.id,
            change.reason,
            change.phase,
            change.status,
            change.result,
            msgspec.json.encode(change.attention).decode(),
            change.terminal,
        ),
    )
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT into a rowid table has one
    unit.changes.append(msgspec.structs.replace(change, seq=cursor.lastrowid))


def after(db: sqlite3.Connection, seq: int, limit: int) -> list[RecordedChange]:
    """Return the changes after `seq`, ascending, at most `limit`."""
    rows = db.execute(
        "SELECT seq, at, kind, id, reason, phase, status, result, attention, terminal FROM changes"
        " WHERE seq > ? ORDER BY seq LIMIT ?",
        (seq, limit),
    )
    return [RecordedChange(*[*before, _ATTENTION.decode(attention), terminal]) for *before, attention, terminal in rows]


def newest_seq(db: sqlite3.Connection) -> int:
    """Return the number of the newest change, or 0."""
    row = db.execute("SELECT seq FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else 0


def newest_at(db: sqlite3.Connection) -> str | None:
    """Return the time of the newest change, or None."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None
