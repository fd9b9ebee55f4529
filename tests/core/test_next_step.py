"""The till's next step, the payments that prevent another charge, and the payments that may be aborted."""

from datetime import timedelta

import pytest

from posd.payments.answers import SearchFailed, SearchMiss, StartAccepted
from posd.payments.model import (
    AttentionCode,
    NextStep,
    Result,
    Transaction,
    may_be_paid,
    next_step,
    past_point_of_no_return,
)
from posd.payments.transitions import address_lost, dismissed, doubt, quarantined, released, resolved, searched, silent
from posd.terminals.attempt import StartRefused
from tests.core.inputs import content, event, found, reply
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, starting
from tests.core.walks import Input
from tests.rig.tables import every

GRACE = timedelta(seconds=10)
WAIT, DONE, NEW_ID_OK, ASK_PERSON = NextStep

ack, card, asked = event(content(ACK)), event(content(CARD, ACK)), event(content(REQUESTED, CARD))
approval, declined = event(content("APPROVAL", REQUESTED)), event(content("DECLINED", REQUESTED))
leap = event(content(REQUESTED, ACK))
canceled, rejected = event(content(CANCELED, CARD)), event(content(REJECTED, CARD))
acknowledged, refused = Input("", reply(StartAccepted("SN-TEST"))), Input("", reply(StartRefused(409, "busy")))
in_doubt = Input("", lambda transaction: doubt(transaction, "reset", NOW))
release = Input("", lambda transaction: released(transaction, NOW))
unusable = Input("", lambda transaction: quarantined(transaction, "not JSON", NOW))


def person(result: Result) -> Input:
    return Input("", lambda transaction: resolved(transaction, result, "Ana", "slip", None, NOW))


def acknowledge(code: AttentionCode) -> Input:
    return Input("", lambda transaction: dismissed(transaction, code, NOW))


def after(*inputs: Input) -> Transaction:
    transaction = starting()
    for item in inputs:
        transaction = item.apply(transaction)
    return transaction


@every(
    ("inputs", "step", "claims"),
    [
        ((), WAIT, True),
        ((acknowledged,), WAIT, True),
        ((acknowledged, ack, card, asked), WAIT, True),
        ((ack, asked), WAIT, True),  # posd searches after a gap, and needs no operator
        ((acknowledged, unusable), WAIT, True),
        ((in_doubt,), WAIT, True),  # the grace has not passed
        # the grace ends when an operator acknowledges the doubt
        ((in_doubt, acknowledge(AttentionCode.IN_DOUBT)), ASK_PERSON, True),
        ((in_doubt, release), ASK_PERSON, True),
        ((acknowledged, release), ASK_PERSON, True),
        ((acknowledged, release, acknowledge(AttentionCode.RELEASED)), ASK_PERSON, True),
        # the terminal ended the payment
        ((ack, card, asked, approval), DONE, True),
        ((ack, card, asked, declined), NEW_ID_OK, False),
        ((ack, card, canceled), NEW_ID_OK, False),
        ((ack, card, rejected), NEW_ID_OK, False),
        ((release, ack, card, canceled), NEW_ID_OK, False),
        ((found(content("APPROVAL", REQUESTED)),), DONE, True),
        ((found(content("DECLINED", REQUESTED)),), NEW_ID_OK, False),
        # the terminal ended the payment after the request to the acquirer
        ((ack, card, asked, canceled), ASK_PERSON, True),
        ((ack, card, asked, rejected), ASK_PERSON, True),
        ((ack, card, canceled, asked), ASK_PERSON, True),
        ((ack, card, canceled, found(content(REQUESTED, CARD))), ASK_PERSON, True),
        ((ack, card, found(content(REQUESTED, CARD)), canceled), ASK_PERSON, True),
        ((ack, card, asked, canceled, acknowledge(AttentionCode.ILLEGAL_TRANSITION)), NEW_ID_OK, False),
        # after a step outside of the lifecycle an end is clear if the acquirer has decided
        ((ack, leap, declined), NEW_ID_OK, False),
        ((ack, leap, person(Result.APPROVED)), DONE, True),
        # posd or an operator concluded the outcome without the terminal
        ((refused,), NEW_ID_OK, False),
        *[
            ((in_doubt, person(result)), DONE if result == "approved" else NEW_ID_OK, result == "approved")
            for result in Result
        ],
        # the terminal contradicted the conclusion
        ((refused, ack), ASK_PERSON, True),
        ((refused, declined), ASK_PERSON, True),
        ((refused, declined, acknowledge(AttentionCode.OUTCOME_CORRECTED)), NEW_ID_OK, False),
        ((refused, approval, acknowledge(AttentionCode.OUTCOME_CORRECTED)), DONE, True),
        ((in_doubt, person(Result.DECLINED), approval), ASK_PERSON, True),
        ((in_doubt, person(Result.APPROVED), declined), ASK_PERSON, True),
        ((in_doubt, person(Result.APPROVED), approval), DONE, True),
        # the terminal sent two finals
        ((ack, card, asked, declined, approval), ASK_PERSON, True),
        ((declined, approval, acknowledge(AttentionCode.CONFLICTING_FINAL)), NEW_ID_OK, False),
    ],
)
def test_each_transaction_has_its_next_step(inputs: tuple[Input, ...], step: NextStep, *, claims: bool) -> None:
    transaction = after(*inputs)
    assert next_step(transaction, NOW, GRACE) is step
    assert may_be_paid(transaction) is claims


def test_an_operator_is_asked_once_a_doubt_outlasts_the_grace_period() -> None:
    transaction = after(in_doubt)
    assert next_step(transaction, NOW + GRACE, GRACE) is WAIT
    assert next_step(transaction, NOW + GRACE + timedelta(milliseconds=1), GRACE) is ASK_PERSON


lost = Input("", lambda transaction: address_lost(transaction, "192.0.2.2", NOW))
no_callback = Input("", lambda transaction: silent(transaction, AttentionCode.NO_CALLBACK, 10.0, NOW))
stalled = Input("", lambda transaction: silent(transaction, AttentionCode.STALLED, 300.0, NOW))
not_found = Input("", lambda transaction: searched(transaction, SearchMiss(), NOW))
no_answer = Input("", lambda transaction: searched(transaction, SearchFailed("it was switched off"), NOW))
WEEK = timedelta(days=7)
LATER = GRACE + timedelta(milliseconds=1)
late_doubt = Input("", lambda transaction: doubt(transaction, "reset", NOW + WEEK))


@every(
    ("inputs", "later", "step"),
    [
        ((acknowledged, unusable), GRACE, WAIT),  # a search may find the end within the grace
        ((acknowledged, unusable), LATER, ASK_PERSON),
        ((acknowledged, unusable, not_found), LATER, ASK_PERSON),
        ((acknowledged, unusable, no_answer), LATER, ASK_PERSON),
        ((acknowledged, ack, card, unusable), LATER, ASK_PERSON),
        ((acknowledged, unusable, found(content(CARD, ACK))), LATER, WAIT),
        ((acknowledged, unusable, acknowledge(AttentionCode.QUARANTINED_EVENT)), LATER, WAIT),
        ((acknowledged, unusable, approval), LATER, DONE),
    ],
)
def test_a_person_is_asked_after_an_unusable_message_that_may_be_the_final_event(
    inputs: tuple[Input, ...], later: timedelta, step: NextStep
) -> None:
    assert next_step(after(*inputs), NOW + later, GRACE) is step


@every(
    ("inputs", "later", "step"),
    [
        # A search does not find a payment that waits for a card.
        ((acknowledged, not_found), timedelta(minutes=10), WAIT),
        ((acknowledged, not_found), WEEK, ASK_PERSON),
        ((acknowledged, no_answer), WEEK, ASK_PERSON),
        ((acknowledged, ack, stalled), WEEK, ASK_PERSON),
        ((acknowledged, no_callback), WEEK, ASK_PERSON),
        ((acknowledged, lost), WEEK, ASK_PERSON),
        ((acknowledged, not_found), -WEEK, ASK_PERSON),  # the clock was set back, so the duration is unknown
        ((acknowledged,), WEEK, WAIT),  # only time has passed, and no search was made
        ((acknowledged, late_doubt, not_found), WEEK, WAIT),  # the doubt may end within its grace
        ((acknowledged, found(content(CARD, ACK))), WEEK, WAIT),  # a search found the payment
        ((acknowledged, not_found, ack, card, asked, approval), WEEK, DONE),
    ],
)
def test_a_terminal_that_is_silent_too_long_needs_an_operator(
    inputs: tuple[Input, ...], later: timedelta, step: NextStep
) -> None:
    assert next_step(after(*inputs), NOW + later, GRACE) is step


@pytest.mark.parametrize(
    ("inputs", "abortable", "past"),
    [
        ((), True, False),
        ((acknowledged,), True, False),
        ((in_doubt,), True, False),
        ((ack, card), True, False),
        ((found(content(CARD, ACK)),), True, False),
        ((ack, card, release), False, False),
        ((release,), False, False),
        ((ack, card, asked), False, True),
        ((found(content(REQUESTED, CARD)),), False, True),
        ((event(content("WARMING_UP", REQUESTED)),), False, True),
        ((ack, card, canceled), False, True),
        ((refused,), False, False),
        ((event(content(ACK, terminal={"serial_number": "SN-OTHER"})),), False, False),
        ((found(content(ACK, terminal={"serial_number": "SN-OTHER"})),), False, False),
    ],
)
def test_an_abort_is_sent_only_before_the_acquirer_is_asked_and_while_the_payment_holds_its_terminal(
    inputs: tuple[Input, ...], *, abortable: bool, past: bool
) -> None:
    transaction = after(*inputs)
    assert transaction.abortable is abortable
    assert past_point_of_no_return(transaction) is past
