"""One payment at the terminal: what was asked for, and how it stands."""

from dataclasses import dataclass
from random import Random

from posd.simulator.amounts import Processed
from posd.simulator.request import StartRequest
from posd.simulator.scenario import Abort, Failure, Scenario, Search


@dataclass(slots=True)
class Payment:
    """It changes as it goes; `name` is its scenario's, `seed` gives everything that is drawn for it."""

    start: StartRequest
    amount: Processed
    name: str
    scenario: Scenario
    seed: str
    status: str | None = None
    reading_type: str | None = None
    failure: Failure | None = None
    event_id: str = ""
    #: The newest event as it happened, whatever was said of it; empty before the first.
    newest: bytes = b""
    #: The one before it.
    previous: bytes = b""
    #: The acquirer has it: it cannot be aborted any more.
    sent: bool = False
    #: The newest final as it happened; empty where there is none.
    final: bytes = b""
    _aborts: int = 0
    _searches: int = 0

    @property
    def transaction(self) -> str:
        """The client_transaction_id."""
        return self.start.client_transaction_id

    @property
    def ended(self) -> bool:
        """It has come to a final."""
        return bool(self.final)

    def next_abort(self) -> tuple[Abort, Random]:
        """Return how the next abort is answered, and what to draw for it from."""
        self._aborts += 1
        reply = self.scenario.abort
        return reply if reply.holds(self._aborts) else Abort(), self.rng(f"abort/{self._aborts}")

    def next_search(self) -> tuple[Search, Random]:
        """Return how the next search is answered, and what to draw for it from."""
        self._searches += 1
        reply = self.scenario.search
        return reply if reply.holds(self._searches) else Search(), self.rng(f"search/{self._searches}")

    def rng(self, what: str) -> Random:
        """Return what to draw from for one thing: always the same from the same seed, whatever else is drawn."""
        return Random(f"{self.seed}/{what}")  # noqa: S311 - reproducible, not secret
