"""Time of the next search for a transaction, in seconds of the monotonic clock (architecture, Doubt).

A `TransactionWatch` is the reconciler's data about one transaction. Elapsed time decides no outcome: after a silence
posd searches, and informs an operator.

| the transaction is                              | silence after which posd searches   | reported as          |
| ----------------------------------------------- | ----------------------------------- | -------------------- |
| in doubt                                        | the grace                           | `in_doubt`           |
| acknowledged, no event yet                      | the grace                           | `no_callback`        |
| waiting for the card or the PIN                 | `stall`                             | `stalled`            |
| at the acquirer (APPROVAL_REQUESTED)            | `stall_after_request`               | `stalled`            |

If this machine has lost the address in the callback URL, no event can arrive. Then posd searches often enough for a
waiting till, and does not report the silence.

After a till's abort, the terminal may send no further event. So posd searches within seconds, until an event or a
search shows the end or APPROVAL_REQUESTED.

posd also searches for some time for a transaction that an operator closed. A report of the terminal overrides the
decision, and its events can be lost.

A search runs at once after a restart, at a gap, when the terminal is reachable again, and on an operator's request.
posd repeats the search with backoff after a failure, and while the transaction is silent or in doubt.
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
#: Longest pause between two searches if events cannot arrive, because a cashier waits for the outcome.
LOST_PAUSE_SECONDS = 30.0
#: Number of searches with that pause. These searches take half an hour, longer than any customer needs. Then the usual
#: pauses apply.
LOST_TRIES = 60
#: Seconds after a possibly accepted abort until the search, because a cashier waits for the result.
ABORTED_SECONDS = 3.0
#: Largest fraction by which a pause is lengthened at random. The jitter spreads the searches after an outage.
JITTER = 0.25
#: Number of doublings after which every pause exceeds the longest one.
_MAX_DOUBLINGS = 16


class TransactionWatch(msgspec.Struct, frozen=True):
    """Data about one transaction; times are seconds of the monotonic clock."""

    terminal: str
    phase: Phase
    status: Status | None
    quiet_since: float
    called_back: bool = False  # an event has arrived
    aborting: bool = False  # see `Trail.aborting`
    callback_lost: bool = False  # this machine lost the address of its callback URL, so events cannot arrive
    told: bool = False  # the silence was reported
    search_at: float | None = None
    wanted: bool = False  # the search was requested, not caused by silence, so one reply is enough
    tries: int = 0
    until: float | None = None  # for an ended transaction: end of the searches; None: search once

    @property
    def silence(self) -> Literal[AttentionCode.NO_CALLBACK, AttentionCode.STALLED]:
        """Attention code for a silence. A lost address explains the silence, so there is none."""
        return AttentionCode.STALLED if self.called_back or self.callback_lost else AttentionCode.NO_CALLBACK


def silence_limit(watch: TransactionWatch, limits: ReconcileConfig) -> float:
    """Return how long the transaction may be silent before a search, in seconds."""
    if watch.phase is Phase.IN_DOUBT or not (watch.called_back or watch.callback_lost):
        return limits.first_event_grace_seconds
    return limits.stall_after_request_seconds if watch.status is APPROVAL_REQUESTED else limits.stall_seconds


def due(watch: TransactionWatch, limits: ReconcileConfig) -> float | None:
    """Return the time of the next action, or None. While the start call runs, only a requested search counts."""
    if watch.phase is Phase.STARTING:
        return watch.search_at
    silent = None if watch.told else watch.quiet_since + silence_limit(watch, limits)
    return min((at for at in (silent, watch.search_at) if at is not None), default=None)


def search_now(watch: TransactionWatch, now: float) -> TransactionWatch:
    """Plan a search for now, however short the silence was."""
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

    `event`: whether the change is an event. `gap`: whether the event shows that another event is missing.
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
    """Return the watch of an unreported silence above its limit, or None."""
    if watch.phase is Phase.STARTING or watch.told or now < watch.quiet_since + silence_limit(watch, limits):
        return None
    return msgspec.structs.replace(watch, told=True, search_at=now)


def answered(
    watch: TransactionWatch, result: SearchResult, limits: ReconcileConfig, now: float, jitter: float
) -> TransactionWatch:
    """Plan the next search after the result of one. `jitter`: 0 to 1."""
    again = watch.told or watch.callback_lost or watch.aborting or watch.phase is Phase.IN_DOUBT
    if not again and not (watch.wanted and result is SearchResult.NO_ANSWER):
        return msgspec.structs.replace(watch, search_at=None, wanted=False, tries=0)
    longest = LOST_PAUSE_SECONDS if watch.callback_lost and watch.tries < LOST_TRIES else MAX_BACKOFF_SECONDS
    pause = min(longest, _least(watch, limits) * 2.0 ** min(watch.tries, _MAX_DOUBLINGS)) * (1 + JITTER * jitter)
    return msgspec.structs.replace(
        watch, search_at=now + pause, wanted=watch.wanted and result is SearchResult.NO_ANSWER, tries=watch.tries + 1
    )


def _least(watch: TransactionWatch, limits: ReconcileConfig) -> float:
    """Return the least pause before a search, in seconds."""
    grace = limits.first_event_grace_seconds
    if watch.until is not None:
        return max(grace, CLOSED_PAUSE_SECONDS)
    return min(grace, ABORTED_SECONDS) if watch.aborting else grace


# The two rounds of the proof that a transaction never started (`payments.missing_proof`, conditions 4 and 5). The
# rounds are in memory, by the monotonic clock. A restart and a change of phase reset them.


class NotStartedProof(msgspec.Struct, frozen=True):
    """Times at which the aborts and searches of the proof were sent, on the monotonic clock; None: not yet sent.

    `settle` in seconds.
    """

    settle: float
    first_abort: float | None = None
    first_none: float | None = None
    second_abort: float | None = None
    second_none: float | None = None

    @property
    def second_due(self) -> float | None:
        """Time after which aborts count for the second round."""
        return None if self.first_none is None else self.first_none + self.settle

    @property
    def complete(self) -> bool:
        """Whether both rounds are complete."""
        return self.second_none is not None


def aborted(rounds: NotStartedProof, answer: AbortAnswer, asked: float) -> NotStartedProof:
    """Count the reply to an abort sent at `asked`. A reply that may show a running payment restarts the rounds."""
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
