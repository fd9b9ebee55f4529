"""What the use cases of payments and print jobs share."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from posd.base import clocks
from posd.records.quotas import Quotas
from posd.storage.marks import MissingRecords
from posd.storage.store import Store
from posd.terminals.fleet import Fleet

#: Returns the time span of possibly missing records, or None.
Missing = Callable[[], MissingRecords | None]


class CallsInFlight:
    """Counts calls by transaction. Changed on the loop, read by the writer's functions too."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    @contextmanager
    def call(self, client_transaction_id: str) -> Iterator[None]:
        """Hold a call open for as long as the block runs."""
        self._calls[client_transaction_id] += 1
        try:
            yield
        finally:
            self._calls[client_transaction_id] -= 1
            if not self._calls[client_transaction_id]:
                del self._calls[client_transaction_id]

    def of(self, client_transaction_id: str) -> int:
        """Return how many calls of that transaction are under way."""
        return self._calls.get(client_transaction_id, 0)


class ServiceParts(msgspec.Struct, eq=False):
    """Parts that the use cases share. A test may leave out those with a default."""

    store: Store
    fleet: Fleet
    now: Callable[[], datetime]
    outstanding: CallsInFlight = msgspec.field(default_factory=CallsInFlight)
    quotas: Quotas = msgspec.field(default_factory=Quotas)
    #: Returns a random number from 0 to 1, for jitter.
    chance: Callable[[], float] = lambda: 0.5
    #: Seconds since the boot, sleep included.
    elapsed: Callable[[], float] = clocks.elapsed
    #: Returns why the wall clock is not trusted now, or None.
    clock_doubt: Callable[[], str | None] = lambda: None
    #: Raise Problem if an unknown id may have been sent before a restore.
    refuse_unseen: Callable[[], None] = lambda: None
    #: Returns the time span of records possibly lost by a restore, or None.
    missing: Missing = lambda: None


class RecordService:
    """Base of the use cases."""

    def __init__(self, parts: ServiceParts) -> None:
        self._store = parts.store
        self._fleet = parts.fleet
        self._now = parts.now
        self._outstanding = parts.outstanding
        self._quotas = parts.quotas
