"""The history of every change, and who hears of it: waiting tills and streams.

A waiter subscribes *before* it reads the state, so that nothing can fall between the two, and then sleeps: there is no
polling.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import msgspec

from posd.storage import numbers
from posd.storage.writer import Change, Unit

#: Subject of those who wait for any change at all (the feed).
ANY = ""

Kind = TypeVar("Kind", bound=Change)

_ATTENTION = msgspec.json.Decoder(tuple[str, ...])


def _any(_change: "Change") -> bool:
    return True


class Waiter:
    """Hears of changes within a `with` block: it is set at each that is wanted, and when posd stops.

    One task waits for it. It is no asyncio.Event, of which each holds a deque: there may be a thousand waiters.
    """

    __slots__ = ("_future", "_hub", "_set", "_subject", "_wanted")

    def __init__(self, hub: "Hub", subject: str, wanted: Callable[[Change], bool]) -> None:
        self._hub = hub
        self._subject = subject
        self._wanted = wanted
        self._set = False
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._hub.waiters.setdefault(self._subject, {})[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        waiters = self._hub.waiters[self._subject]
        waiters.pop(self, None)
        if not waiters:
            del self._hub.waiters[self._subject]

    def hear(self, change: Change) -> None:
        """Take a change of the subject."""
        if self._wanted(change):
            self.set()

    def set(self) -> None:
        """Wake it."""
        self._set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def clear(self) -> None:
        """Forget what was heard: the state is read after this."""
        self._set = False

    def is_set(self) -> bool:
        """Whether something was heard since `clear`."""
        return self._set

    async def wait(self) -> None:
        """Wait until it is set."""
        if not self._set:
            self._future = asyncio.get_running_loop().create_future()
            await self._future


class _Listeners:
    """Those that listen, each for one kind of changes and those derived from it."""

    def __init__(self) -> None:
        self._all: list[tuple[type[Change], Callable[[Sequence[Any]], None]]] = []
        self._of: dict[type[Change], tuple[Callable[[Sequence[Any]], None], ...]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, listener: Callable[[Sequence[Kind]], None], kind: type[Kind]) -> None:
        """Have `listener` hear of changes of that kind."""
        self._all.append((kind, listener))
        self._of.clear()

    def tell(self, changes: Sequence[Change]) -> None:
        """Call each with those of its kind, if there are any."""
        kinds = {type(change) for change in changes}
        if len(kinds) == 1:  # as nearly always
            (kind,) = kinds
            for listener in self._of.get(kind) or self._find(kind):
                listener(changes)
            return
        for kind, listener in self._all:
            if wanted := [change for change in changes if isinstance(change, kind)]:
                listener(wanted)

    def _find(self, kind: type[Change]) -> tuple[Callable[[Sequence[Any]], None], ...]:
        found = self._of[kind] = tuple(listener for wanted, listener in self._all if issubclass(kind, wanted))
        return found


class Hub:
    """Wakes those who wait for a change of a subject. Used on the event loop only."""

    def __init__(self) -> None:
        #: Who waits now, by subject, in the order in which they came; a `Waiter` enters itself.
        self.waiters: dict[str, dict[Waiter, None]] = {}
        self._first = _Listeners()
        self._later = _Listeners()
        self.draining = False

    def subscribe(self, subject: str = ANY, wanted: Callable[[Change], bool] = _any) -> Waiter:
        """Return what is set at each change of the subject that is wanted; to be entered before the state is read."""
        return Waiter(self, subject, wanted)

    def awaited(self, subject: str) -> bool:
        """Whether a caller waits for changes of the subject now."""
        return subject in self.waiters

    def listen(self, listener: Callable[[Sequence[Kind]], None], kind: type[Kind]) -> None:
        """Call `listener` with the changes of that kind of each COMMIT that has some, on the loop."""
        self._first.add(listener, kind)

    def listen_later(self, tell: Callable[[Kind], None], kind: type[Kind]) -> None:
        """Call `tell` with each change of that kind, one turn of the loop after its COMMIT.

        The caller that waited for the COMMIT goes on first, and logs what it was about. Then come its effects.
        """

        def tell_all(changes: Sequence[Kind]) -> None:
            for change in changes:
                tell(change)

        self._later.add(tell_all, kind)

    def publish(self, changes: Sequence[Change]) -> None:
        """Wake the waiters of these changes; called after their COMMIT."""
        if not changes:
            return
        self._first.tell(changes)
        if self._later:
            asyncio.get_running_loop().call_soon(self._later.tell, changes)
        for change in changes:
            for subject in (change.id, ANY):
                for waiter in self.waiters.get(subject, ()):
                    waiter.hear(change)

    def drain(self) -> None:
        """Wake all waiters for the last time: posd is stopping."""
        self.draining = True
        for waiters in self.waiters.values():
            for waiter in waiters:
                waiter.set()


_INSERT = (
    "INSERT INTO changes (seq, at, kind, id, reason, phase, status, result, attention, terminal)"  # noqa: S608
    f" VALUES ({numbers.following('changes')}, ?,?,?,?,?,?,?,?,?)"
)


def record(unit: Unit, change: Change) -> None:
    """Write a row of the history (its `seq` is given by the database) and make it known after the COMMIT."""
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


def newest_seq(db: sqlite3.Connection) -> int:
    """Return the number of the newest change, 0 where there is none."""
    row = db.execute("SELECT seq FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else 0


def newest_at(db: sqlite3.Connection) -> str | None:
    """Return when the newest change was recorded, None where there is none."""
    row = db.execute("SELECT at FROM changes ORDER BY seq DESC LIMIT 1").fetchone()
    return row[0] if row else None
