"""What every handler of the local API needs: the store's reads, word of changes, the clock."""

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

from starlette.requests import Request

from posd.base.problems import Problem
from posd.calls.long_poll import HungUp, T
from posd.calls.streams import Streams
from posd.httpd.connection import Pieces
from posd.records.intake import Intake
from posd.records.start import Missing, not_here
from posd.storage.changes import Hub
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit


class Context:
    """Shared by the handlers."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        intake: Intake | None = None,
        missing: Missing = lambda: None,
        on_read: Callable[[Sequence[str]], None] = lambda _approvals: None,
    ) -> None:
        """`on_read` is told which approvals a client was handed."""
        self._store = store
        self._missing = missing
        self.now = now
        self.intake = intake or Intake()
        self._on_read = on_read
        self.streams = Streams(store.hub, self.intake.reached, on_read)

    def shows(self, request: Request, approvals: Sequence[str]) -> None:
        """Mark these approvals as read, once the client was handed the response."""
        if approvals:
            request.state.handed_over = partial(self._on_read, approvals)

    @property
    def hub(self) -> Hub:
        """Who hears of changes."""
        return self._store.hub

    @property
    def write_error(self) -> str | None:
        """Why the newest commit failed, None where it did not."""
        return self._store.write_error

    @property
    def moved(self) -> str | None:
        """Which file of the database is not where it was opened, None where all are."""
        return self._store.writer.moved

    def not_here(self, problem: Problem) -> Problem:
        """Return the problem of an id that is not here; of one that is not known it says whether it never was."""
        return not_here(problem, self._missing())

    async def probe_write(self) -> None:
        """Commit something that is never read, to see whether it can be: a full disk takes an empty commit."""
        with suppress(StorageUnavailable, CommitUncertain):
            await self._store.write(_probe)

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read from the database (see Store.read). Raise Problem storage_unavailable."""
        with _told():
            return await self._store.read(function)

    async def read_in_steps(
        self, function: Callable[[sqlite3.Connection], Generator[None, None, T]], pieces: Pieces
    ) -> T:
        """Read much for a client (see Store.read_in_steps). Raise Problem storage_unavailable, HungUp where it goes."""
        with _told():
            found = await self._store.read_in_steps(function, lambda: not pieces.gone)
        if found is None:
            raise HungUp
        return found

    async def look_up(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows of the database (see Store.look_up). Raise Problem storage_unavailable."""
        with _told():
            return await self._store.look_up(function)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StorageUnavailable as error:
        raise Problem("storage_unavailable", f"{error}; try again, and check the disk") from error


def _probe(unit: Unit) -> None:
    unit.db.execute("DELETE FROM marks WHERE kind = 'probe'")
    unit.db.execute("INSERT INTO marks (at, kind, detail) VALUES (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'probe', '')")
