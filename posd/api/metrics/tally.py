"""Counts payments and print jobs from the changes that the store makes known after each COMMIT."""

import time
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from posd.base.meters import Histogram
from posd.payments.abort_replies import AbortAnswer, judge_abort
from posd.payments.entries import AbortAnswered
from posd.payments.model import Result, Transaction
from posd.payments.record import Moved
from posd.printing import rows
from posd.records.model import Phase
from posd.storage.batch import Change
from posd.storage.changes import Hub

#: Buckets of how long a payment takes, in seconds: a customer looks for the card, and types the PIN.
OUTCOME_BOUNDS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900)
#: The label of a terminal that is not in the fleet, and of an operation that no event names.
OTHER, UNKNOWN = "other", "unknown"


class Tally:
    """Numbers since the start of the process. `fleet`: the serials that may stand in a label."""

    def __init__(self, hub: Hub, fleet: Container[str]) -> None:
        self._fleet = fleet
        #: Open payments, and when this process started each (monotonic seconds), None where another did.
        self._open: dict[str, float | None] = {}
        self._open_prints: set[str] = set()
        self.started: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.outcome_seconds = {str(result): Histogram(OUTCOME_BOUNDS) for result in Result}
        self.aborts = Counter(dict.fromkeys(map(str, AbortAnswer), 0))
        self.prints_ended: Counter[tuple[str, str]] = Counter()
        hub.listen(self._hear)

    def adopt(self, taken_over: Iterable[Transaction], jobs: Iterable[str]) -> None:
        """Take up what an earlier process left open."""
        for item in taken_over:
            if item.phase is not Phase.FINAL:
                self._open[item.client_transaction_id] = None
        self._open_prints.update(jobs)

    def _hear(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Moved):
                self._take(change)
            elif change.kind == rows.KIND:
                self._take_print(change)

    def _take(self, change: Moved) -> None:
        after, terminal = change.after, self._label(change.after.terminal)
        kind = after.type or UNKNOWN
        if change.before is None and not after.orphan:
            self.started[kind, terminal] += 1
            self._open[change.id] = time.monotonic()
        elif after.phase is not Phase.FINAL:
            self._open.setdefault(change.id, None)
        elif after.outcome is not None and change.id in self._open:
            result = after.outcome.result
            self.ended[result, kind, terminal] += 1
            if (began := self._open.pop(change.id)) is not None:
                self.outcome_seconds[result].observe(time.monotonic() - began)
        if isinstance(change.cause, AbortAnswered):
            self.aborts[judge_abort(change.cause.attempt)] += 1

    def _take_print(self, change: Change) -> None:
        if change.phase != Phase.FINAL:
            self._open_prints.add(change.id)
        elif change.id in self._open_prints:
            self._open_prints.discard(change.id)
            self.prints_ended[change.status or "none", self._label(change.terminal)] += 1

    def _label(self, terminal: str | None) -> str:
        return terminal if terminal is not None and terminal in self._fleet else OTHER
