"""Targets of the transaction channel: events, acknowledgements, search replies, and the order of events."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from posd.base.json_types import UNREADABLE, decode, encode, readable
from posd.payments import entries
from posd.payments.answers import SearchFailed, SearchHit, SearchMiss, StartAccepted, final_element, judge, read_reply
from posd.payments.entries import Attempted, Searched, apply
from posd.payments.lifecycle import FINALS
from posd.payments.model import RESULTS, Outcome, Transaction
from posd.payments.transitions import RepeatedEvent, advance, conclude_start, recognise, searched
from posd.payments.wire import MAX_TEXT, NotAnEvent, TransactionEvent, read_event
from posd.records.model import Phase
from posd.terminals.attempt import Attempt, Doubtful, NotSent, Replied, ReplyLost, StartRefused
from tests.core.scenarios import NOW, starting
from tests.fuzz import seeds
from tests.fuzz.mutation import Members, bodies
from tests.fuzz.seeds import IDENTITY
from tests.fuzz.target import Case, Target, beside, refused_alone


def pairs(body: bytes) -> Any:
    """Read a body that the codec has also read. Objects become pairs. Numbers become Decimal. A number that does not
    fit becomes text.
    """
    return json.loads(body, object_pairs_hook=Members, parse_float=_number, parse_int=_number)


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def values(document: Any, *names: str) -> list[Any]:
    """Return every value at a path of names and places. An object with repeated names gives several values."""
    found = [document]
    for name in names:
        stepped = list[Any]()
        for item in found:
            if isinstance(item, Members):
                stepped += (value for other, value in item if other == name)
            elif isinstance(item, list) and name.isdigit():
                stepped += item[int(name) : int(name) + 1]
        found = stepped
    return found


def check_one_value(document: Any, *names: str) -> None:
    """Check that a path of names has at most one value. Numbers are compared by value, and true differs from 1."""
    found = values(document, *names)
    same = all(type(value) is type(found[0]) and value == found[0] for value in found)
    assert same, f"{names} has several values"


_OUTCOME = msgspec.json.Decoder(Outcome)

#: Members that an event must have exactly once: the state, the payment, and the terminal's serial.
SAID_ONCE = (("status",), ("client_transaction_id",), ("terminal", "serial_number"))
#: Members that posd reads only if they appear exactly once.
READ_ONCE: Mapping[tuple[str, ...], Callable[[TransactionEvent], Any]] = {
    ("occurred_at",): lambda event: event.occurred_at,
    ("merchant_id",): lambda event: event.merchant_id,
    ("previous_status",): lambda event: event.previous_status,
    ("raw_response", "transaction_reference"): lambda event: (
        event.raw_response and event.raw_response.transaction_reference
    ),
    ("raw_response", "ticket_number"): lambda event: event.raw_response and event.raw_response.ticket_number,
}
#: Members of an acknowledgement with the payment's id, and all members that it must have exactly once.
ECHOED: tuple[tuple[str, ...], ...] = (("client_transaction_id",), ("operation", "client_transaction_id"))
ACKNOWLEDGED_ONCE = (("status",), ("terminal", "serialNumber"), *ECHOED)


def transactions() -> tuple[Transaction, ...]:
    """Return transactions in every phase in which a message of the terminal can arrive."""
    new = starting()
    refused = conclude_start(new, StartRefused(409, "busy"), NOW)
    active = conclude_start(new, StartAccepted(seeds.SERIAL), NOW)
    ended = [advance(active, read_event(encode(item)), seen=RepeatedEvent.NEW, now=NOW)[0] for item in seeds.EVENTS[3:]]
    doubtful = conclude_start(new, Doubtful("no reply"), NOW)
    return (new, refused, active, doubtful, *ended)


TRANSACTIONS = transactions()


def check_event(case: Case) -> None:
    """Check the reading of an event. posd always reads the event in the same way, or refuses the event with a reason.
    The state and the payment of an event each have only one value. No event changes a transaction that the terminal has
    ended. posd recognizes an exact repeat, and reads back the recorded outcome with every digit.
    """
    refused_alone(ValueError, decode, case.body)
    event: TransactionEvent | None = refused_alone(NotAnEvent, read_event, case.body)
    if event is None:
        return
    mended = readable(case.body)
    document = pairs(mended.body)
    for names in SAID_ONCE:
        check_one_value(document, *names)
    for names, read in READ_ONCE.items():
        if read(event):
            check_one_value(document, *names)
    assert event.damaged or not mended.damaged
    assert 0 < len(event.event_id) <= MAX_TEXT
    assert 0 < len(event.status) <= MAX_TEXT
    assert event.client_transaction_id or event.serial_number
    assert UNREADABLE not in f"{event.status}{event.event_id}{event.client_transaction_id}{event.previous_status}"
    assert event.raw_response is None or UNREADABLE not in (event.raw_response.transaction_reference or "")
    assert event.client_transaction_id == event.client_transaction_id.lower()
    assert recognise(case.body, [case.body]) is RepeatedEvent.REPEATED
    for before in TRANSACTIONS:
        after, verdict = advance(before, event, seen=RepeatedEvent.NEW, now=NOW)
        check_step(before, after)
        again, _ = advance(after, event, seen=RepeatedEvent.REUSED, now=NOW)
        check_step(after, again)
        if event.status in FINALS and not (before.outcome and before.outcome.stated_by_terminal):
            assert verdict == "applied"
            assert after.outcome is not None
            assert after.outcome.status == event.status
            assert after.outcome.result is RESULTS[after.outcome.status]


def check_step(before: Transaction, after: Transaction) -> None:
    """Check one step of a transaction. A final state of the terminal does not change. A transaction has an outcome if
    and only if it is final.
    """
    assert (after.phase is Phase.FINAL) == (after.outcome is not None)
    if before.outcome is not None and before.outcome.stated_by_terminal:
        assert after.outcome is not None
        assert after.outcome.status is before.outcome.status
        if before.outcome.transaction_reference is not None:
            assert after.outcome.transaction_reference == before.outcome.transaction_reference
    if after.outcome is not None:
        recorded = encode(after.outcome)
        read = _OUTCOME.decode(recorded)
        assert read == after.outcome
        assert str(read.authorized_amount) == str(after.outcome.authorized_amount)
        assert encode(read) == recorded
    encode(after.trail)
    encode(after.attention)


def check_acknowledgement(case: Case) -> None:
    """Check the judgement of a reply to a start. The judgement is the same each time. The judgement of a request that
    was not sent is `unsent`. The judgement of a lost reply is doubt. Only 3xx, and 4xx except 408, are refusals. Only a
    complete 2xx with one meaning is an acknowledgement. Only a refusal or an unsent request ends a transaction.
    """
    attempt = attempt_of(case)
    judgement = refused_alone((), judge, attempt, IDENTITY)
    match attempt:
        case NotSent():
            assert isinstance(judgement, NotSent)
        case ReplyLost():
            assert isinstance(judgement, Doubtful)
        case Replied(status=status):
            refusal = 300 <= status < 500 and status != 408
            assert isinstance(judgement, StartRefused) == refusal
            assert refusal or isinstance(judgement, StartAccepted | Doubtful)
    if isinstance(judgement, StartAccepted):
        assert isinstance(attempt, Replied)
        assert attempt.complete
        assert 200 <= attempt.status < 300
        document = pairs(readable(attempt.body).body)
        for names in ACKNOWLEDGED_ONCE:
            check_one_value(document, *names)
        assert {*values(document, "status")} == {"TERMINAL_ACKNOWLEDGED"}
        for names in ECHOED:
            for echoed in values(document, *names):
                said = "" if echoed is None or UNREADABLE in str(echoed) else str(echoed).lower()
                assert said in ("", IDENTITY), f"the acknowledgement echoes {echoed!r}"
    entry = msgspec.json.decode(encode(Attempted(attempt, errors_in_2xx=False)), type=entries.Entry)
    for before in TRANSACTIONS:
        after = apply(before, Attempted(attempt, errors_in_2xx=False), NOW)
        check_step(before, after)
        assert apply(before, entry, NOW) == after, "the record of the reply gives another judgement"
        if before.outcome is None and after.outcome is not None:
            assert isinstance(judgement, StartRefused | NotSent)


def attempt_of(case: Case) -> Attempt:
    """Return the attempt of a case. `given` has the HTTP status (0: not sent, -1: lost) and `complete`."""
    status, complete, *_ = case.given
    if status <= 0:
        return NotSent("connection refused") if status == 0 else ReplyLost("no reply in time")
    return Replied(status, case.body, complete)


def attempts(bodies: SearchStrategy[bytes], *given: SearchStrategy[Any]) -> SearchStrategy[Case]:
    """Make cases of attempts. Most cases have a complete 200."""
    statuses = st.sampled_from((200,) * 8 + (201, 202, 204, 299, 0, -1)) | st.sampled_from(STATUSES)
    return beside(bodies, statuses, st.sampled_from((True,) * 7 + (False,)), *given)


#: HTTP statuses on both sides of every boundary between judgements.
STATUSES = (100, 199, 300, 301, 304, 399, 400, 401, 404, 407, 408, 409, 422, 429, 499, 500, 503, 504, 599, 999)


def check_search(case: Case) -> None:
    """Check the reading of a search's reply. posd always reads the reply in the same way. The result "found" quotes an
    element about our transaction. The result "none" means an empty list.
    """
    attempt, pointer = attempt_of(case), case.given[2]
    answer = refused_alone((), read_reply, attempt, pointer, IDENTITY)
    whole = isinstance(attempt, Replied) and attempt.complete and 200 <= attempt.status < 300
    match answer:
        case SearchHit(elements=elements):
            assert whole
            mended = readable(case.body)
            assert bool(answer.damaged) == bool(mended.damaged)
            assert elements
            for element in elements:
                assert element.encode() in mended.body
                said = {str(value).lower() for value in values(pairs(element.encode()), ID)}
                assert IDENTITY in said, f"the found element belongs to {said}"
                assert len(said) == 1 or refused_alone(NotAnEvent, read_event, element.encode()) is None, (
                    "posd uses an element of two transactions"
                )
        case SearchMiss():
            assert whole
            steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
            found = values(pairs(case.body), *steps)
            assert found, "the reply has no value at the pointer"
            assert all(item == [] for item in found), "posd reads a complete reply with an element as none"
        case SearchFailed(reason=reason):
            assert reason
    final_element([answer], "x")
    entry = msgspec.json.decode(encode(Searched(answer)), type=entries.Entry)
    for before in TRANSACTIONS:
        after = searched(before, answer, NOW)
        check_step(before, after)
        assert apply(before, entry, NOW) == after, "the record of the search gives another result"
        if not isinstance(answer, SearchHit):
            assert after.outcome == before.outcome or answer.bears_id


ID = "client_transaction_id"


EVENT = Target(beside(bodies(seeds.EVENTS, seeds.EVENT_WORDS)), check_event)
ACKNOWLEDGEMENT = Target(attempts(bodies(seeds.ACKNOWLEDGEMENTS, seeds.EVENT_WORDS)), check_acknowledgement)
SEARCH = Target(
    attempts(bodies(seeds.SEARCH_REPLIES, seeds.EVENT_WORDS), st.sampled_from(seeds.POINTERS)), check_search
)
