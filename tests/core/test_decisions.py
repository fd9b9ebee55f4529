"""Effects of an event or a reply: outcome, evidence, attention."""

from datetime import timedelta
from decimal import Decimal

import pytest

from posd.payments import model
from posd.payments.answers import Canceled, Judgement, StartAccepted
from posd.payments.lifecycle import Verdict
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result, Transaction, next_step
from posd.payments.transitions import (
    RepeatedEvent,
    advance,
    conclude_start,
    dismissed,
    disputed,
    interrupted,
    quarantined,
    rebuild,
)
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, ErrorEnvelope, NotSent, StartRefused
from tests.core.scenarios import ACK, CANCELED, CARD, IDENTITY, NOW, REQUESTED, read, starting
from tests.rig.events import body
from tests.rig.tables import there

GRACE = timedelta(seconds=10)
PATH = ((ACK, None), (CARD, ACK), (REQUESTED, CARD))


def apply(transaction: Transaction, status: str, previous: str | None = None, **changes: object) -> Transaction:
    after, _ = advance(transaction, read(body(IDENTITY, status, previous, **changes)), seen=RepeatedEvent.NEW, now=NOW)
    return after


def along(transaction: Transaction, *path: tuple[str, str | None]) -> Transaction:
    for status, previous in path:
        transaction = apply(transaction, status, previous)
    return transaction


def codes(transaction: Transaction) -> set[str]:
    return {item.code for item in transaction.attention}


def refused() -> Transaction:
    return conclude_start(starting(), StartRefused(409, "busy"), NOW)


def test_a_reply_recorded_twice_counts_once() -> None:
    """A commit with an uncertain result is repeated. The first commit may already be on disk."""
    for judgement in (
        StartRefused(409, "busy"),
        Canceled(200, "{}", ErrorEnvelope("TERMINAL-SUNMI", "-1", "canceled")),
    ):
        once = conclude_start(starting(), judgement, NOW)
        assert once.outcome is not None
        assert conclude_start(once, judgement, NOW + GRACE) == once


@pytest.mark.parametrize("judgement", [StartRefused(409, "busy"), NotSent("refused"), Doubtful("reset")])
def test_an_event_before_the_reply_counts(judgement: Judgement) -> None:
    running = along(starting(), (ACK, None))
    assert conclude_start(running, judgement, NOW) == running


@pytest.mark.parametrize("judgement", [StartRefused(409, "busy"), NotSent("refused")])
def test_after_any_authentic_callback_a_refusal_proves_nothing(judgement: Judgement) -> None:
    strange = along(starting(), ("TERMINAL_WARMING_UP", None))
    unusable = quarantined(starting(), "not JSON", NOW)
    for transaction in (strange, unusable):
        assert transaction.phase is Phase.STARTING
        assert conclude_start(transaction, judgement, NOW).phase is Phase.IN_DOUBT


def test_a_refusal_after_an_event_leaves_the_payment_open() -> None:
    strange = along(interrupted(starting(), NOW), ("TERMINAL_WARMING_UP", None))
    assert conclude_start(strange, StartRefused(409, "busy"), NOW).phase is Phase.IN_DOUBT


def test_doubt_ends_with_an_acknowledgement() -> None:
    after = conclude_start(interrupted(starting(), NOW), StartAccepted("SN-TEST"), NOW)
    assert (after.phase, codes(after)) == (Phase.ACTIVE, set())


def test_an_acknowledgement_is_a_state_and_not_an_event() -> None:
    acknowledged = conclude_start(starting(), StartAccepted("SN-TEST"), NOW)
    assert (acknowledged.status, acknowledged.trail.position) == (ACK, None)
    _, verdict = advance(acknowledged, read(body(IDENTITY, ACK)), seen=RepeatedEvent.NEW, now=NOW)
    assert verdict is Verdict.APPLIED


def test_an_approval_has_the_data_that_a_till_needs() -> None:
    after = along(starting(), *PATH, ("APPROVAL", REQUESTED))
    outcome = there(after.outcome)
    assert (outcome.result, outcome.ticket_number, outcome.authorized_amount) == ("approved", "000123", Decimal("11.2"))
    assert outcome.receipt is not None
    assert (outcome.receipt.authorization_code, outcome.receipt.franchise) == ("A1B2C3", "VISA")
    assert (outcome.reached_acquirer, outcome.reading_type, codes(after)) == (True, "CONTACTLESS", set())
    assert next_step(after, NOW, GRACE) is NextStep.DONE


def test_the_reading_type_of_a_card_comes_from_its_event() -> None:
    canceled = along(starting(), (ACK, None), (CARD, ACK), (CANCELED, CARD))
    assert (canceled.reading_type, there(canceled.outcome).reading_type) == ("CONTACTLESS", "CONTACTLESS")


@pytest.mark.parametrize(
    ("authorized", "tip", "differs"),
    [
        (11.20, 0, False),
        ("11.20", 0, False),
        (12.20, 1, False),
        (11.20, 1, False),
        (11.21, 0, True),
        (10.00, 0, True),
        (None, 0, False),
        ({}, 0, False),
    ],
)
def test_an_authorized_amount_that_differs_from_the_requested_amount_is_shown(
    authorized: object, tip: int, differs: bool
) -> None:
    response = {"transaction_reference": "r", "authorized_amount": authorized}
    operation = {"type": "CHARGE", "amount": {"tip": tip}}
    after = apply(along(starting(), *PATH), "APPROVAL", REQUESTED, raw_response=response, operation=operation)
    assert ("amount_differs" in codes(after)) is differs


def test_a_callback_with_an_unknown_state_also_disproves_the_conclusion_not_started() -> None:
    for after in (apply(refused(), "TERMINAL_WARMING_UP"), quarantined(refused(), "not JSON", NOW)):
        assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
        assert {"outcome_corrected", "in_doubt"} <= codes(after)
        assert next_step(after, NOW, GRACE) is NextStep.ASK_PERSON


def test_an_operators_decision_stays_until_a_final_event_differs() -> None:
    inferred = there(refused().outcome)
    word = model.Evidence(kind=EvidenceKind.OPERATOR, at="now")
    declined = model.msgspec.structs.replace(inferred, result=Result.DECLINED, evidence=(word,))
    closed = model.msgspec.structs.replace(refused(), outcome=declined)
    moved = apply(closed, CARD, ACK)
    assert (moved.phase, moved.outcome, moved.status) == (Phase.FINAL, declined, CARD)
    confirmed = apply(moved, "DECLINED", REQUESTED)
    assert there(confirmed.outcome).supersedes == declined
    assert "outcome_corrected" not in codes(confirmed), "the terminal reports the same end"


def test_a_change_sets_its_time_but_an_input_without_effect_sets_none() -> None:
    later, at = NOW + GRACE, "2026-11-20T10:42:13.000Z"
    changed, _ = advance(starting(), read(body(IDENTITY, ACK)), seen=RepeatedEvent.NEW, now=later)
    changes = (
        changed,
        conclude_start(starting(), StartAccepted("SN-TEST"), later),
        interrupted(starting(), later),
        quarantined(starting(), "not JSON", later),
    )
    assert {change.updated_at for change in changes} == {at}
    late, _ = advance(along(starting(), (ACK, None)), read(body(IDENTITY, ACK)), seen=RepeatedEvent.NEW, now=later)
    assert late.updated_at == "2026-11-20T10:42:03.000Z"


def test_only_an_open_payment_that_never_had_an_outcome_updates_its_terminal() -> None:
    reopened = apply(refused(), ACK)
    assert (reopened.phase, reopened.updates_terminal) == (Phase.ACTIVE, False)
    assert (starting().updates_terminal, refused().updates_terminal) == (True, False)
    assert not starting(sent_to=None).updates_terminal, "nothing but its content says which terminal sent it"


def test_an_orphan_is_rebuilt_from_its_events() -> None:
    typed = rebuild(read(body(IDENTITY, ACK, operation={"type": "PREAUTH"})), IDENTITY, NOW, "hundredths")
    assert (typed.type, typed.answer_unit) == ("pre-auth", "hundredths")
    orphan = rebuild(read(body(IDENTITY, ACK)), IDENTITY, NOW)
    assert (orphan.phase, orphan.orphan, orphan.type, codes(orphan)) == (Phase.ACTIVE, True, None, {"orphan"})
    assert not orphan.abortable, "an orphan holds no terminal, because an abort could stop another payment"
    final = apply(along(orphan, *PATH), "APPROVAL", REQUESTED, operation={"type": "PREAUTH"})
    assert (final.type, final.outcome is not None) == ("pre-auth", True)
    assert "amount_differs" not in codes(final), "posd does not know the request of an orphan"


def test_a_quarantined_callback_is_shown_once_with_the_newest_reason() -> None:
    twice = quarantined(quarantined(starting(), "first", NOW), "second", NOW + GRACE)
    (item,) = twice.attention
    assert (item.code, item.since) == (AttentionCode.QUARANTINED_EVENT, "2026-11-20T10:42:03.000Z")
    assert item.detail.endswith("second")


@pytest.mark.parametrize(
    ("path", "abortable"), [((), True), (PATH[:2], True), (PATH, False), ((*PATH, ("DECLINED", REQUESTED)), False)]
)
def test_a_payment_is_abortable_until_the_acquirer_is_asked(
    path: tuple[tuple[str, str | None], ...], abortable: bool
) -> None:
    assert along(starting(), *path).abortable is abortable


def test_no_abort_is_sent_once_an_event_shows_a_request_to_the_acquirer_or_another_device() -> None:
    asked = apply(along(starting(), *PATH[:2]), "TERMINAL_WARMING_UP", REQUESTED)
    assert not asked.abortable
    assert not conclude_start(starting(), StartAccepted("SN-OTHER"), NOW).abortable


def test_a_failure_reason_given_as_text_is_its_message() -> None:
    after = apply(along(starting(), *PATH), "DECLINED", REQUESTED, failure_reason="no funds")
    failure = there(there(after.outcome).failure_reason)
    assert (failure.type, failure.code, failure.message) == (None, None, "no funds")


def test_an_unusable_callback_does_not_withdraw_a_final_of_the_terminal() -> None:
    for final in (along(starting(), (ACK, None), (CANCELED, ACK)), along(starting(), *PATH, ("DECLINED", REQUESTED))):
        after = quarantined(final, "not JSON", NOW)
        assert (after.phase, after.outcome) == (Phase.FINAL, final.outcome)


def test_an_identity_conflict_is_shown_until_it_is_decided() -> None:
    transaction = disputed(starting(), "two devices claim SN-TEST", NOW)
    assert codes(transaction) == {"identity_conflict"}
    assert codes(dismissed(transaction, AttentionCode.IDENTITY_CONFLICT, NOW)) == set()
