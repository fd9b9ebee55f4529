"""The history of every change, and who hears of it: waiting tills and streams.

A waiter subscribes *before* it reads the state, so that nothing can fall between the two, and then sleeps: there is no
polling.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from posd.store.writer import Change, Unit

#: Subject of those who wait for any change at all (the feed).
ANY = ""

_ATTENTION = msgspec.json.Decoder(tuple[str, ...])


class Hub:
    """Wakes whoever waits for a change of a subject. Used on the event loop only."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._listeners: list[Callable[[Sequence[Change]], None]] = []
        self.draining = False

    @contextmanager
    def subscribe(self, subject: str = ANY) -> Iterator[asyncio.Event]:
        """Give an event that is set at each change of the subject (its waiter clears it), and when posd stops."""
        event = asyncio.Event()
        waiters = self._waiters.setdefault(subject, set())
        waiters.add(event)
        try:
            yield event
        finally:
            waiters.discard(event)
            if not waiters and self._waiters.get(subject) is waiters:
                del self._waiters[subject]

    def listen(self, listener: Callable[[Sequence[Change]], None]) -> None:
        """Call `listener` with the changes of each COMMIT, on the loop."""
        self._listeners.append(listener)

    def publish(self, changes: Sequence[Change]) -> None:
        """Wake the waiters of these changes; called after their COMMIT."""
        for listener in self._listeners if changes else ():
            listener(changes)
        for subject in {ANY, *(change.id for change in changes)}:
            for event in self._waiters.get(subject, ()):
                event.set()

    def drain(self) -> None:
        """Wake everybody for the last time: posd is stopping."""
        self.draining = True
        for waiters in self._waiters.values():
            for event in waiters:
                event.set()


def record(unit: Unit, change: Change) -> None:
    """Write a row of the history (its `seq` is given by the database) and make it known after the COMMIT."""
    cursor = unit.db.execute(
        "INSERT INTO changes (at, kind, id, reason, phase, status, result, attention, terminal)"
        " VALUES (?,?,?,?,?,?,?,?,?)",
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


def after(db: sqlite3.Connection, seq: int, limit: int) -> list[Change]:
    """Return the changes after `seq`, ascending, at most `limit`."""
    rows = db.execute(
        "SELECT seq, at, kind, id, reason, phase, status, result, attention, terminal FROM changes"
        " WHERE seq > ? ORDER BY seq LIMIT ?",
        (seq, limit),
    )
    return [_change(*row) for row in rows]


def _change(
    seq: int,
    at: str,
    kind: str,
    subject: str,
    reason: str,
    phase: str,
    status: str,
    result: str,
    attention: str,
    terminal: str,
) -> Change:
    return Change(seq, at, kind, subject, reason, phase, status, result, _ATTENTION.decode(attention), terminal)


def newest_at(db: sqlite3.Connection) -> str | None:
    """Return when the newest change was recorded, None where there is none."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None
