"""Target: the events of one transaction in every order, repeated and lost, beside the answer to its start."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from posd.base.json_types import encode
from posd.payments.lifecycle import FINALS
from posd.payments.model import AttentionCode, Outcome, Transaction
from posd.payments.search_reply import SearchFailed, SearchMiss
from posd.payments.transitions import (
    RepeatedEvent,
    advance,
    conclude_start,
    doubt,
    quarantined,
    recognise,
    searched,
    silent,
)
from posd.payments.wire import StartAccepted, read_event
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, NeverSent, StartRefused
from tests.core.scenarios import NOW, starting
from tests.fuzz import seeds
from tests.fuzz.codec import check_step
from tests.fuzz.target import Case, Target, beside

#: What comes beside events: the answer to the start, silence, searches without an answer, what cannot be used.
BESIDE: Mapping[str, Callable[[Transaction], Transaction]] = {
    "acknowledged": lambda it: conclude_start(it, StartAccepted(seeds.SERIAL), NOW),
    "acknowledged by another": lambda it: conclude_start(it, StartAccepted("SN-OTHER"), NOW),
    "refused": lambda it: conclude_start(it, StartRefused(409, "busy"), NOW),
    "unsent": lambda it: conclude_start(it, NeverSent("connection refused"), NOW),
    "lost": lambda it: conclude_start(it, Doubtful("no reply"), NOW),
    "none": lambda it: searched(it, SearchMiss(), NOW),
    "no answer": lambda it: searched(it, SearchFailed("HTTP 404", 404), NOW),
    "unusable": lambda it: quarantined(it, "not JSON", NOW),
    "silence": lambda it: it if it.phase is Phase.FINAL else silent(it, AttentionCode.STALLED, 60, NOW),
    "crash": lambda it: doubt(it, "interrupted", NOW) if it.phase is Phase.STARTING else it,
}
#: States of events that end nothing, known and not.
UNDER_WAY = ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "TERMINAL_UNKNOWN", "approval", "\x00")
#: What an event can name as the state before it.
PREVIOUS = (None, None, *seeds.STATUSES, "TERMINAL_UNKNOWN")


@st.composite
def _steps(draw: DrawFn) -> tuple[Any, ...]:
    """Draw what comes, in order: bytes of events, with one final among them, and words of `BESIDE`."""
    final = dict(draw(st.sampled_from(seeds.EVENTS[3:])))
    count = draw(st.integers(0, 6))
    others = [
        {
            **seeds.EVENTS[1],
            "event_id": f"event {number}",
            "status": draw(st.sampled_from(UNDER_WAY)),
            "previous_status": draw(st.sampled_from(PREVIOUS)),
            "terminal": {"serial_number": draw(st.sampled_from((seeds.SERIAL, seeds.SERIAL, "SN-OTHER")))},
        }
        for number in range(count)
    ]
    final["previous_status"] = draw(st.sampled_from(PREVIOUS))
    bodies = [encode(item) for item in [final, *others]]
    again = draw(st.lists(st.sampled_from(bodies), max_size=4))
    words = draw(st.lists(st.sampled_from(sorted(BESIDE)), max_size=4))
    return tuple(draw(st.permutations([*bodies, *again, *words])))


def check_course(case: Case) -> None:
    """Every order, repetition and loss of what is no final gives the outcome that the final event states.

    The seven fields of the outcome that come from the event alone are those of the event alone; an exact repeat is
    recognised as one; nothing takes it out of its final.
    """
    transaction, recorded = starting(), list[bytes]()
    final = b""
    for item in case.given[0]:
        before = transaction
        if isinstance(item, str):
            transaction = BESIDE[item](before)
        elif recognise(item, [body for body in recorded if body == item]) is RepeatedEvent.NEW:
            event = read_event(item)
            final = item if event.status in FINALS else final
            transaction, _ = advance(before, event, seen=RepeatedEvent.NEW, now=NOW)
            recorded.append(item)
        check_step(before, transaction)
    alone, _ = advance(starting(), read_event(final), seen=RepeatedEvent.NEW, now=NOW)
    assert transaction.phase is Phase.FINAL
    assert _said(transaction) == _said(alone)


def _said(transaction: Transaction) -> tuple[Any, ...]:
    outcome = transaction.outcome
    assert isinstance(outcome, Outcome)
    return (
        outcome.result,
        outcome.status,
        outcome.transaction_reference,
        outcome.ticket_number,
        outcome.failure_reason,
        outcome.authorized_amount,
        outcome.receipt,
    )


def _cases(_corpus: Sequence[bytes]) -> SearchStrategy[Case]:
    return beside(st.just(b""), _steps())


COURSE = Target(
    "course",
    _cases,
    check_course,
    ("posd/payments/transitions.py", "posd/payments/outcomes.py", "posd/payments/lifecycle.py"),
)
