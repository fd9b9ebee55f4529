"""The full proof that a transaction in doubt never started. Short of all of it, it stays in doubt.

"Not found" alone proves nothing: a power-cycled terminal forgets, one that waits for a card is not known to the
acquirer, an index can be stale, a path can be wrong. So all of this has to hold:

- nothing ever came for the id: no acknowledgement, event, search hit, nor any other callback (`Transaction.heard`);
- abort answers that nothing is running and then search answers an explicit "none", and both again, in this order, after
  `settle` seconds: what ended before the abort, the search after it would know;
- it is in doubt all the while, so that no call of its start is under way, and its terminal is where the start went;
- that same search has found another transaction of this terminal before;
- the configuration marks both rows of the profile as `confirmed`.

The rounds are kept in memory, by the monotonic clock: a restart begins them anew.
"""

import msgspec

from posd.payments.abort_replies import AbortAnswer
from posd.payments.model import SearchResult


class NotStartedProof(msgspec.Struct, frozen=True):
    """When the terminal was asked, in seconds of the monotonic clock; None: not yet. `settle` is in seconds too."""

    settle: float
    first_abort: float | None = None
    first_none: float | None = None
    second_abort: float | None = None
    second_none: float | None = None

    @property
    def second_due(self) -> float | None:
        """From when on answers count for the second round."""
        return None if self.first_none is None else self.first_none + self.settle

    @property
    def complete(self) -> bool:
        """Whether both rounds are done."""
        return self.second_none is not None


def aborted(rounds: NotStartedProof, answer: AbortAnswer, asked: float) -> NotStartedProof:
    """Count the answer to an abort that was sent at `asked`; one that may have found something begins anew."""
    match answer:
        case AbortAnswer.NOTHING_RUNNING:
            if rounds.second_due is None:
                return msgspec.structs.replace(rounds, first_abort=asked)
            return msgspec.structs.replace(rounds, second_abort=asked) if asked >= rounds.second_due else rounds
        case AbortAnswer.TAKEN | AbortAnswer.UNKNOWN:
            return NotStartedProof(rounds.settle)
        case _:
            return rounds


def searched(rounds: NotStartedProof, result: SearchResult, asked: float) -> NotStartedProof:
    """Count the result of a search that was sent at `asked`: after the abort of its round. A find begins anew."""
    match result:
        case SearchResult.NONE:
            if rounds.second_abort is not None and asked >= rounds.second_abort:
                return msgspec.structs.replace(rounds, second_none=asked)
            if rounds.first_none is None and rounds.first_abort is not None and asked >= rounds.first_abort:
                return msgspec.structs.replace(rounds, first_none=asked)
            return rounds
        case SearchResult.FOUND:
            return NotStartedProof(rounds.settle)
        case _:
            return rounds
