"""Journal entries: all inputs of a transaction other than events, such as replies and operators' decisions.

Each entry is stored as received, and `apply` computes its effect. Only events (`transitions.advance`) and entries
change a transaction's state. So `replay` can derive the state again from both. Fields with a description appear in the
API's history.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, assert_never

import msgspec
from msgspec import Meta

from posd.base.json_types import Uuid, WireFormat
from posd.payments import transitions
from posd.payments.answers import NAMES, RESULTS, AbortAnswer, Answer, Judgement, finds_running, judge, judge_abort
from posd.payments.lifecycle import Verdict
from posd.payments.model import AttentionCode, Evidence, Result, Transaction
from posd.payments.transitions import RepeatedEvent
from posd.payments.wire import TransactionEvent
from posd.records.model import DecisionEntry, Phase, Quarantined, Reapplied, TakenOver, tag
from posd.terminals.attempt import Attempt


class Attempted(msgspec.Struct, frozen=True, tag="attempt", tag_field="kind"):
    """The one attempt to send the start, as the terminal client reported it. Bodies are base64 in JSON.

    `errors_in_2xx`: the profile's value at that time. None: a version of posd that ignored errors in replies recorded
    the entry (see `answers.judge`).
    """

    attempt: Attempt
    errors_in_2xx: bool | None = None


class JudgedStart(msgspec.Struct, frozen=True):
    """The attempt to send the start, with its judgement, so that the terminal's reply is parsed only once."""

    attempted: Attempted
    judgement: Judgement

    @classmethod
    def of(cls, attempted: Attempted, client_transaction_id: str) -> "JudgedStart":
        """Judge the attempt to start the transaction with that id."""
        judgement = judge(attempted.attempt, client_transaction_id, errors_in_2xx=attempted.errors_in_2xx)
        return cls(attempted, judgement)


class Interrupted(msgspec.Struct, frozen=True, tag="interrupted", tag_field="kind"):
    """A daemon started and found the transaction in phase `starting`."""


class Searched(msgspec.Struct, frozen=True, tag="search", tag_field="kind"):
    """A search has ended."""

    answer: Answer


class AbortRequested(msgspec.Struct, frozen=True, tag="abort_requested", tag_field="kind"):
    """An abort is about to be sent: for a till (`uid`: user id of the till's process), or as a probe of posd."""

    probe: Annotated[bool, Meta(description="sent by posd itself, to check whether anything runs")]
    uid: Annotated[int | None, Meta(description="user id of the calling process")] = None


class AbortAnswered(msgspec.Struct, frozen=True, tag="abort_answered", tag_field="kind"):
    """The abort has ended.

    `reads_errors`: False if a version of posd that ignored errors in replies recorded this (see `judge_abort`).
    """

    attempt: Attempt
    reads_errors: bool = False

    @property
    def answer(self) -> AbortAnswer:
        """Judgement of the attempt to send the abort."""
        return judge_abort(self.attempt, reads_errors=self.reads_errors)

    @property
    def found_running(self) -> bool:
        """Whether the terminal's reply shows that a transaction runs, or ran, on it."""
        return self.answer is AbortAnswer.TAKEN or (self.reads_errors and finds_running(self.attempt))


class NothingHeard(msgspec.Struct, frozen=True, tag="silent", tag_field="kind"):
    """The terminal sent nothing for some seconds. `code`: `no_callback` or `stalled`."""

    code: AttentionCode
    seconds: float


class ProvedNotStarted(msgspec.Struct, frozen=True, tag="proof", tag_field="kind"):
    """The full proof that the transaction never started (architecture, Doubt)."""

    evidence: Annotated[tuple[Evidence, ...], Meta(description="the basis of the proof")]


class Released(DecisionEntry, frozen=True, tag="release"):
    """An operator or a till freed the transaction's terminal."""


class Resolved(DecisionEntry, frozen=True, tag="resolve"):
    """An operator recorded the end of the transaction."""

    result: Annotated[Result, Meta(description="how it ended")]
    transaction_reference: Annotated[
        str | None, WireFormat(Uuid | None), Meta(description="the acquirer's reference, if approved")
    ] = None


class Dismissed(DecisionEntry, frozen=True, tag="acknowledge"):
    """An operator closed one attention."""

    code: Annotated[AttentionCode, Meta(description="code of the attention")]


class Unlikely(msgspec.Struct, frozen=True, tag="approval_unlikely", tag_field="kind"):
    """An applied approval contradicts its request. `reasons`: how it does so. `by_sum`: whether the amount is wrong.

    `outcomes.unlikely` finds them when the approval arrives, from the facts known at that time.
    """

    reasons: Annotated[tuple[str, ...], Meta(description="the contradictions")]
    by_sum: Annotated[bool, Meta(description="whether the amount contradicts the request")] = False


class CallbackBrokeOff(msgspec.Struct, frozen=True, tag="callback_broke_off", tag_field="kind"):
    """The connection of an authentic callback broke before its body was complete."""


class Overrun(msgspec.Struct, frozen=True, tag="event_limit", tag_field="kind"):
    """The terminal sent more events than posd stores, and posd refused an event."""


class AddressLost(msgspec.Struct, frozen=True, tag="address_changed", tag_field="kind"):
    """This machine lost the address in the transaction's callback URL."""

    host: Annotated[str, Meta(description="the address")]


class AddressBack(msgspec.Struct, frozen=True, tag="address_back", tag_field="kind"):
    """This machine has the address in the transaction's callback URL again."""

    host: Annotated[str, Meta(description="the address")]


class Disputed(msgspec.Struct, frozen=True, tag="identity_conflict", tag_field="kind"):
    """The transaction's terminal has an identity conflict."""

    reason: Annotated[str, Meta(description="which devices, and what to do")]


class Undisputed(msgspec.Struct, frozen=True, tag="identity_settled", tag_field="kind"):
    """The identity conflict of the transaction's terminal has ended."""


class OutcomeUnread(msgspec.Struct, frozen=True, tag="outcome_unread", tag_field="kind"):
    """No client has read the approval within ten minutes."""


class OutcomeRead(msgspec.Struct, frozen=True, tag="outcome_read", tag_field="kind"):
    """A client has read the approval after `OutcomeUnread`."""


Entry = (
    Attempted
    | Interrupted
    | Searched
    | AbortRequested
    | AbortAnswered
    | Quarantined
    | NothingHeard
    | ProvedNotStarted
    | Released
    | Resolved
    | Dismissed
    | Unlikely
    | CallbackBrokeOff
    | TakenOver
    | Reapplied
    | AddressLost
    | AddressBack
    | Overrun
    | Disputed
    | Undisputed
    | OutcomeUnread
    | OutcomeRead
)


#: Entries that are recorded only for an open payment. If a restore merges the journals of two databases, such an entry
#: can follow the end of the payment. Then it has no effect. So an operator's decision never replaces an earlier report
#: of the terminal.
OF_OPEN_ONES = (Interrupted, NothingHeard, ProvedNotStarted, Released, Resolved, TakenOver, AddressLost, Disputed)


def apply(transaction: Transaction, entry: Entry | JudgedStart, now: datetime) -> Transaction:
    """Return the transaction after the entry."""
    if transaction.phase is Phase.FINAL and isinstance(entry, OF_OPEN_ONES):
        return transaction
    match entry:
        case Attempted():
            return apply(transaction, JudgedStart.of(entry, transaction.client_transaction_id), now)
        case JudgedStart(judgement=judgement):
            return transitions.conclude_start(transaction, judgement, now)
        case Interrupted():
            return transitions.interrupted(transaction, now)
        case Searched(answer=answer):
            return transitions.searched(transaction, answer, now)
        case AbortRequested(probe=False):
            return transitions.aborting(transaction, now, may_be=True)
        case AbortAnswered(found_running=True):
            # The terminal runs or ran a transaction, so "never started" cannot be proved.
            return transitions.touched(transaction, now)
        case AbortAnswered(answer=AbortAnswer.NOT_TAKEN | AbortAnswer.UNREACHABLE):
            return transitions.aborting(transaction, now, may_be=False)
        case AbortRequested() | AbortAnswered():
            return transaction  # events show the effect of the abort
        case CallbackBrokeOff():
            return transitions.touched(transaction, now)
        case Quarantined(reason=reason, serial_number=serial):
            return transitions.quarantined(transaction, reason, now, serial)
        case NothingHeard(code=code, seconds=seconds):
            return transitions.silent(transaction, code, seconds, now)
        case ProvedNotStarted(evidence=evidence):
            return transitions.proved(transaction, evidence, now)
        case Released():
            return transitions.released(transaction, now)
        case Resolved(operator=operator, note=note, result=result, transaction_reference=reference):
            return transitions.resolved(transaction, result, operator, note, reference, now)
        case Dismissed(code=code):
            return transitions.dismissed(transaction, code, now)
        case Unlikely(reasons=reasons, by_sum=by_sum):
            return transitions.unlikely(transaction, reasons, by_sum=by_sum, now=now)
        case TakenOver(reason=reason):
            return transitions.taken_over(transaction, reason, now)
        case Reapplied():
            return transitions.dismissed(transaction, AttentionCode.QUARANTINED_EVENT, now)
        case Overrun():
            return transitions.overrun(transaction, now)
        case AddressLost(host=host):
            return transitions.address_lost(transaction, host, now)
        case AddressBack():
            return transitions.address_back(transaction, now)
        case Disputed(reason=reason):
            return transitions.disputed(transaction, reason, now)
        case Undisputed():
            return transitions.dismissed(transaction, AttentionCode.IDENTITY_CONFLICT, now)
        case OutcomeUnread():
            return transitions.unread(transaction, now)
        case OutcomeRead():
            return transitions.dismissed(transaction, AttentionCode.OUTCOME_UNREAD, now)
        case _:
            assert_never(entry)


def feed_word(entry: Entry | JudgedStart) -> str:
    """Return the feed's word for an entry, such as `acknowledged`, `search:none` or `release`."""
    match entry:
        case JudgedStart(judgement=judgement):
            return NAMES[type(judgement)]
        case Searched(answer=answer):
            return f"search:{RESULTS[type(answer)]}"
        case AbortAnswered():
            return f"abort:{entry.answer}"
        case AbortRequested(probe=True):
            return "probe_requested"
        case NothingHeard(code=code):
            return code
        case _:
            return tag(entry)


def replay(
    initial: Transaction, inputs: Iterable[tuple[datetime, Entry | tuple[TransactionEvent, RepeatedEvent]]]
) -> tuple[Transaction, list[Verdict]]:
    """Derive a transaction again from its first state and all inputs in order. Return also each event's verdict."""
    transaction = initial
    verdicts = []
    for at, item in inputs:
        if isinstance(item, tuple):
            event, seen = item
            if seen is RepeatedEvent.REPEATED:  # recorded by a version of posd that compared only the bytes
                verdicts.append(Verdict.DUPLICATE)
                continue
            transaction, verdict = transitions.advance(transaction, event, seen=seen, now=at)
            verdicts.append(verdict)
        else:
            transaction = apply(transaction, item, at)
    return transaction, verdicts
