"""Which transactions have a call to their terminal under way; the lease lasts until it has returned."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


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
