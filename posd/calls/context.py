"""Common needs of all handlers of the local API: the store's reads, changes, the clock."""

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from starlette.requests import Request

from posd.base.problems import Problem
from posd.calls.app import ClientGone
from posd.calls.streams import Streams, T
from posd.httpd.bodies import BodyChannel
from posd.records.quotas import Quotas
from posd.records.service import Missing
from posd.records.start import not_here
from posd.storage.errors import StorageUnavailable
from posd.storage.store import Store


class CallContext:
    """Context that all handlers share."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        quotas: Quotas,
        missing: Missing,
        on_read: Callable[[Sequence[str]], None],
    ) -> None:
        """`on_read`: called with the approvals that a client received."""
        self._store = store
        self._missing = missing
        self.now = now
        self.hub = store.hub
        self._on_read = on_read
        self.streams = Streams(store.hub, quotas.reached, on_read)

    def shows(self, request: Request, approvals: Sequence[str]) -> None:
        """Mark these approvals as read once the client has received the response."""
        if approvals:
            request.state.handed_over = partial(self._on_read, approvals)

    def not_here(self, problem: Problem) -> Problem:
        """Return the problem of an id that is not here; for an unknown one it states whether it was never sent."""
        return not_here(problem, self._missing())

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read from the database (see Store.read). Raise Problem storage_unavailable."""
        with _storage_problems():
            return await self._store.read(function)

    async def read_in_steps(
        self, function: Callable[[sqlite3.Connection], Generator[None, None, T]], pieces: BodyChannel
    ) -> T:
        """Read much for a client (see Store.read_in_steps).

        Raise Problem storage_unavailable; raise ClientGone if it disconnects.
        """
        with _storage_problems():
            found = await self._store.read_in_steps(function, lambda: not pieces.gone)
        if found is None:
            raise ClientGone
        return found

    async def look_up(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows of the database (see Store.look_up). Raise Problem storage_unavailable."""
        with _storage_problems():
            return await self._store.look_up(function)


@contextmanager
def _storage_problems() -> Iterator[None]:
    """Raise Problem storage_unavailable for StorageUnavailable."""
    try:
        yield
    except StorageUnavailable as error:
        raise Problem("storage_unavailable", f"{error}; try again, and check the disk") from error
