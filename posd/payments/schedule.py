"""When a transaction is asked for (architecture, Doubt): pure, by the monotonic clock, in seconds.

A `TransactionWatch` is what the reconciler remembers of one transaction. Time alone concludes nothing: when it has run
out, posd asks, and tells a person.

| the transaction is                              | silence after which it is asked for | and a person is told |
| ----------------------------------------------- | ----------------------------------- | -------------------- |
| in doubt                                        | the grace                           | it is in doubt       |
| acknowledged, no event yet                      | the grace                           | `no_callback`        |
| waiting for the card or the PIN                 | `stall`                             | `stalled`            |
| at the acquirer (APPROVAL_REQUESTED)            | `stall_after_request`               | `stalled`            |

Where the callback URL names an address that this machine has lost, no event can come: it is asked for in a rhythm of
its own, at which a till can wait for the outcome; that none comes says nothing new.

After an abort of a till it is asked for within seconds, until an event or a search says how it ended, or that the
acquirer was asked: nothing else may come of it.

What a person closed is asked for too, for a while: the terminal's word beats a person's, and its events can be lost.

It is asked for at once after a restart, at a gap, when its terminal has come back, and when a person wants it. What
brings no answer is asked again with backoff; so is what stays silent or in doubt.
"""

from typing import Literal

import msgspec

from posd.payments.answers import AbortAnswer
from posd.payments.lifecycle import APPROVAL_REQUESTED, Status
from posd.payments.model import AttentionCode, SearchResult
from posd.records.model import Phase

#: The longest pause between two searches of one transaction: a terminal that comes back unnoticed is asked this late.
MAX_BACKOFF_SECONDS = 300.0
#: How long a terminal is asked for what a person closed: its own deliveries end after 15 minutes.
#: Source: terminal API, Delivery.
CLOSED_SECONDS = 3600.0
#: The least pause between two such searches: nothing waits for them.
CLOSED_PAUSE_SECONDS = 30.0
#: The longest pause between two searches of one whose events cannot arrive: a person waits at the till for the outcome.
LOST_PAUSE_SECONDS = 30.0
#: So often, which is half an hour and longer than any customer takes; then as rarely as everything else.
LOST_TRIES = 60
#: How long after an abort that the terminal may have taken it is asked for, in seconds: a cashier waits for the result.
ABORTED_SECONDS = 3.0
#: A backoff is stretched by up to this part of itself, so that terminals are not asked in step after an outage.
JITTER = 0.25
#: Doublings after which the longest pause is reached with any grace.
_MAX_DOUBLINGS = 16


class ReconcileSettings(msgspec.Struct, frozen=True):
    """`[reconcile]` of the configuration, in seconds; `probe_with_abort`: posd asks by itself whether anything runs."""

    grace: float
    stall: float
    stall_after_request: float
    settle: float
    probe_with_abort: bool


class TransactionWatch(msgspec.Struct, frozen=True):
    """What is remembered of one transaction; times are seconds of the monotonic clock."""

    terminal: str
    phase: Phase
    status: Status | None
    quiet_since: float
    called_back: bool = False  # an event of it has come
    aborting: bool = False  # see `Trail.aborting`
    callback_lost: bool = False  # its events cannot arrive: this machine lost the address of its callback URL
    told: bool = False  # of this silence
    search_at: float | None = None
    wanted: bool = False  # the search was asked for by something else than silence: one answer is enough
    tries: int = 0
    until: float | None = None  # of what has ended: how long it is asked for; None: once

    @property
    def silence(self) -> Literal[AttentionCode.NO_CALLBACK, AttentionCode.STALLED]:
        """What a silence of this transaction is called; that nothing calls a lost address is expected."""
        return AttentionCode.STALLED if self.called_back or self.callback_lost else AttentionCode.NO_CALLBACK


def silence_limit(watch: TransactionWatch, limits: ReconcileSettings) -> float:
    """Return how long the transaction may be silent before it is asked for, in seconds."""
    if watch.phase is Phase.IN_DOUBT or not (watch.called_back or watch.callback_lost):
        return limits.grace
    return limits.stall_after_request if watch.status is APPROVAL_REQUESTED else limits.stall


def due(watch: TransactionWatch, limits: ReconcileSettings) -> float | None:
    """Return when something is to be done for it, None while its start is under way: that ends by itself."""
    if watch.phase is Phase.STARTING:
        return watch.search_at
    silent = None if watch.told else watch.quiet_since + silence_limit(watch, limits)
    return min((at for at in (silent, watch.search_at) if at is not None), default=None)


def search_now(watch: TransactionWatch, now: float) -> TransactionWatch:
    """Ask for it now, without regard to how long it has been silent."""
    return msgspec.structs.replace(watch, search_at=now, wanted=True)


def stopped(watch: TransactionWatch, limits: ReconcileSettings, now: float) -> TransactionWatch:
    """Ask for it soon: its terminal has answered an abort, and may have taken it."""
    soon = now + _least(watch, limits)
    return msgspec.structs.replace(watch, search_at=min(soon, watch.search_at or soon), tries=0)


def closed(terminal: str, now: float) -> TransactionWatch:
    """Watch what a person has just closed."""
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
    """Process a change of it: `event` where it was one, `gap` where it shows that another is missing."""
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
    begins = watch.callback_lost and watch.phase is Phase.STARTING  # until then it was not asked for
    return search_now(fresh, now) if gap or begins else fresh


def overdue(watch: TransactionWatch, limits: ReconcileSettings, now: float) -> TransactionWatch | None:
    """Return the watch of a silence that is over its limit now and was not yet told, None if there is none."""
    if watch.phase is Phase.STARTING or watch.told or now < watch.quiet_since + silence_limit(watch, limits):
        return None
    return msgspec.structs.replace(watch, told=True, search_at=now)


def answered(
    watch: TransactionWatch, result: SearchResult, limits: ReconcileSettings, now: float, jitter: float
) -> TransactionWatch:
    """Plan the next search after one; `jitter` is 0 to 1."""
    again = watch.told or watch.callback_lost or watch.aborting or watch.phase is Phase.IN_DOUBT
    if not again and not (watch.wanted and result is SearchResult.NO_ANSWER):
        return msgspec.structs.replace(watch, search_at=None, wanted=False, tries=0)
    longest = LOST_PAUSE_SECONDS if watch.callback_lost and watch.tries < LOST_TRIES else MAX_BACKOFF_SECONDS
    pause = min(longest, _least(watch, limits) * 2.0 ** min(watch.tries, _MAX_DOUBLINGS)) * (1 + JITTER * jitter)
    return msgspec.structs.replace(
        watch, search_at=now + pause, wanted=watch.wanted and result is SearchResult.NO_ANSWER, tries=watch.tries + 1
    )


def _least(watch: TransactionWatch, limits: ReconcileSettings) -> float:
    """Return the least pause before it is asked for, in seconds."""
    if watch.until is not None:
        return max(limits.grace, CLOSED_PAUSE_SECONDS)
    return min(limits.grace, ABORTED_SECONDS) if watch.aborting else limits.grace


# The two rounds of the proof that a transaction never started (`payments.missing_proof`, conditions 4 and 5). They are
# kept in memory, by the monotonic clock. A restart and a change of phase reset them.


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
    """Count the answer to an abort that was sent at `asked`; one that may have found something begins again."""
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
    """Count the result of a search that was sent at `asked`: after the abort of its round. A find begins again."""
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
