"""Time of the next search for a transaction, in seconds of the monotonic clock (architecture, Doubt).

A `TransactionWatch` is the reconciler's data about one transaction. Elapsed time decides no outcome. If the terminal
sends nothing for some time (a silence), posd searches for the transaction, which then gets an attention:

| the transaction is                   | silence before the search (setting) | attention     |
| ------------------------------------ | ----------------------------------- | ------------- |
| in doubt                             | `first_event_grace_seconds`         | `in_doubt`    |
| acknowledged, without an event       | `first_event_grace_seconds`         | `no_callback` |
| waiting for the card or the PIN      | `stall_seconds`                     | `stalled`     |
| at the acquirer (APPROVAL_REQUESTED) | `stall_after_request_seconds`       | `stalled`     |

If this machine has lost the address in the callback URL, no event can arrive. Then posd searches often enough for a
waiting till, and the attention is `stalled` instead of `no_callback`.

After a till's abort, the terminal may send no further event. So posd searches within seconds, until an event or a
search shows the end or APPROVAL_REQUESTED.

After an operator has closed a transaction, posd searches for it for some time. A report of the terminal overrides the
decision, and events of the terminal can be lost.

A search runs at once after a restart, at a gap, when the terminal is reachable again, and on an operator's request.
posd repeats the search with growing pauses after a failure, and while the transaction is silent or in doubt.
"""

from typing import Literal

import msgspec

from posd.config.schema import ReconcileConfig
from posd.payments.answers import AbortAnswer
from posd.payments.lifecycle import APPROVAL_REQUESTED, Status
from posd.payments.model import AttentionCode, SearchResult
from posd.records.model import Phase

#: Longest pause between two searches. A terminal can become reachable again without notice.
MAX_BACKOFF_SECONDS = 300.0
#: Time for which posd searches for a transaction that an operator closed. The terminal's own deliveries end after 15
#: minutes. Source: terminal API, Delivery.
CLOSED_SECONDS = 3600.0
#: Minimum pause between two searches for a closed transaction, because no till waits for them.
CLOSED_PAUSE_SECONDS = 30.0
#: Longest pause between two searches if events cannot arrive. A cashier waits for the outcome.
LOST_PAUSE_SECONDS = 30.0
#: Number of searches with pauses of at most `LOST_PAUSE_SECONDS`. They take half an hour, and no customer waits longer.
#: For further searches the longest pause is `MAX_BACKOFF_SECONDS`.
LOST_TRIES = 60
#: Seconds between a possibly accepted abort and the search. A cashier waits for the result.
ABORTED_SECONDS = 3.0
#: Largest fraction by which a pause is lengthened at random. The jitter spreads the searches after an outage.
JITTER = 0.25
#: Maximum number of doublings of the first pause. It is enough to reach the longest pause from any first pause.
_MAX_DOUBLINGS = 16


class TransactionWatch(msgspec.Struct, frozen=True):
    """Data for the plan of the searches for one transaction. Times are seconds of the monotonic clock."""

    terminal: str
    phase: Phase
    status: Status | None
    quiet_since: float
    called_back: bool = False  # an event has arrived
    aborting: bool = False  # see `Trail.aborting`
    callback_lost: bool = False  # this machine lost the address of its callback URL, so events cannot arrive
    told: bool = False  # the limit of the silence has passed, and a search was planned for it
    search_at: float | None = None
    wanted: bool = False  # the search was requested, not caused by silence, so one reply is enough
    tries: int = 0
    until: float | None = None  # for an ended transaction: end of the searches; None: search once

    @property
    def silence(self) -> Literal[AttentionCode.NO_CALLBACK, AttentionCode.STALLED]:
        """Attention for a silence. If the address is lost, no event can arrive. Then the attention is `stalled`."""
        return AttentionCode.STALLED if self.called_back or self.callback_lost else AttentionCode.NO_CALLBACK


def silence_limit(watch: TransactionWatch, limits: ReconcileConfig) -> float:
    """Return for how long the terminal may send nothing before posd searches, in seconds."""
    if watch.phase is Phase.IN_DOUBT or not (watch.called_back or watch.callback_lost):
        return limits.first_event_grace_seconds
    return limits.stall_after_request_seconds if watch.status is APPROVAL_REQUESTED else limits.stall_seconds


def due(watch: TransactionWatch, limits: ReconcileConfig) -> float | None:
    """Return the time of the next search, or None. While the start call runs, only a requested search counts."""
    if watch.phase is Phase.STARTING:
        return watch.search_at
    silent = None if watch.told else watch.quiet_since + silence_limit(watch, limits)
    return min((at for at in (silent, watch.search_at) if at is not None), default=None)


def search_now(watch: TransactionWatch, now: float) -> TransactionWatch:
    """Plan a requested search for the time `now`."""
    return msgspec.structs.replace(watch, search_at=now, wanted=True)


def stopped(watch: TransactionWatch, limits: ReconcileConfig, now: float) -> TransactionWatch:
    """Plan a search soon, because the terminal may have accepted an abort."""
    soon = now + _least(watch, limits)
    return msgspec.structs.replace(watch, search_at=min(soon, watch.search_at or soon), tries=0)


def closed(terminal: str, now: float) -> TransactionWatch:
    """Return the watch of a transaction that an operator has just closed."""
    watch = TransactionWatch(terminal, Phase.FINAL, None, now, told=True, until=now + CLOSED_SECONDS)
    return search_now(watch, now)


def after_change(
    watch: TransactionWatch,
    phase: Phase,
    status: Status | None,
    now: float,
    *,
    event: bool,
    gap: bool,
    aborting: bool = False,
) -> TransactionWatch:
    """Return the watch after a change.

    `event`: whether the change is an event. `gap`: whether the event shows that another one is missing. `aborting`: see
    `Trail.aborting`.
    """
    if aborting is not watch.aborting:
        watch = msgspec.structs.replace(watch, aborting=aborting)
    if not event and (phase, status) == (watch.phase, watch.status):
        return watch
    pressing = watch.callback_lost or aborting
    fresh = msgspec.structs.replace(
        watch,
        phase=phase,
        status=status,
        quiet_since=now,
        called_back=watch.called_back or event,
        told=False,
        search_at=watch.search_at if pressing else None,
        wanted=watch.wanted and pressing,
        tries=0,
    )
    begins = watch.callback_lost and watch.phase is Phase.STARTING  # posd did not search during the start call
    return search_now(fresh, now) if gap or begins else fresh


def overdue(watch: TransactionWatch, limits: ReconcileConfig, now: float) -> TransactionWatch | None:
    """Return the watch with a search for now if a silence has just exceeded its limit, else None."""
    if watch.phase is Phase.STARTING or watch.told or now < watch.quiet_since + silence_limit(watch, limits):
        return None
    return msgspec.structs.replace(watch, told=True, search_at=now)


def answered(
    watch: TransactionWatch, result: SearchResult, limits: ReconcileConfig, now: float, jitter: float
) -> TransactionWatch:
    """Plan the next search after the result of a search. `jitter`: random number from 0 to 1."""
    again = watch.told or watch.callback_lost or watch.aborting or watch.phase is Phase.IN_DOUBT
    if not again and not (watch.wanted and result is SearchResult.NO_ANSWER):
        return msgspec.structs.replace(watch, search_at=None, wanted=False, tries=0)
    longest = LOST_PAUSE_SECONDS if watch.callback_lost and watch.tries < LOST_TRIES else MAX_BACKOFF_SECONDS
    pause = min(longest, _least(watch, limits) * 2.0 ** min(watch.tries, _MAX_DOUBLINGS)) * (1 + JITTER * jitter)
    return msgspec.structs.replace(
        watch, search_at=now + pause, wanted=watch.wanted and result is SearchResult.NO_ANSWER, tries=watch.tries + 1
    )


def _least(watch: TransactionWatch, limits: ReconcileConfig) -> float:
    """Return the shortest pause before a search, in seconds."""
    grace = limits.first_event_grace_seconds
    if watch.until is not None:
        return max(grace, CLOSED_PAUSE_SECONDS)
    return min(grace, ABORTED_SECONDS) if watch.aborting else grace


# The two rounds of the proof that a transaction never started (`payments.missing_proof`, conditions 4 and 5). A round
# is an abort and a search after it. The rounds are only in memory. A restart and a change of phase reset them.


class NotStartedProof(msgspec.Struct, frozen=True):
    """Times at which the aborts and searches of the proof were sent, in seconds of the monotonic clock.

    A time is None until the call's reply counts. `settle`: minimum seconds from the first search to the second abort.
    """

    settle: float
    first_abort: float | None = None
    first_none: float | None = None
    second_abort: float | None = None
    second_none: float | None = None

    @property
    def second_due(self) -> float | None:
        """Time from which an abort counts for the second round, or None during the first round."""
        return None if self.first_none is None else self.first_none + self.settle

    @property
    def complete(self) -> bool:
        """Whether both rounds are complete."""
        return self.second_none is not None


def aborted(rounds: NotStartedProof, answer: AbortAnswer, asked: float) -> NotStartedProof:
    """Count the reply to an abort sent at `asked`. A reply that may show a running payment restarts the proof."""
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
    """Count the result of a search sent at `asked`, after the abort of its round.

    A found transaction restarts the rounds.
    """
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
