"""What follows from an event or an answer: outcome, evidence, attention."""

from datetime import timedelta
from decimal import Decimal

import pytest

from posd.payments import model
from posd.payments.lifecycle import Verdict
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result, Transaction, next_step
from posd.payments.transitions import (
    RepeatedEvent,
    advance,
    conclude_start,
    interrupted,
    quarantined,
    rebuild,
    recognise,
)
from posd.payments.wire import Judgement, StartAccepted
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, NeverSent, StartRefused
from tests.core.scenarios import ACK, CANCELED, CARD, IDENTITY, NOW, REJECTED, REQUESTED, read, starting
from tests.support.events import body

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


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [([], RepeatedEvent.NEW), ([b"a", b"b"], RepeatedEvent.REPEATED), ([b"x"], RepeatedEvent.REUSED)],
)
def test_recognise(recorded: list[bytes], expected: RepeatedEvent) -> None:
    assert recognise(b"a", recorded) is expected


@pytest.mark.parametrize(
    ("judgement", "phase", "result", "evidence", "attention", "step"),
    [
        (StartAccepted("SN-TEST"), Phase.ACTIVE, None, None, set(), NextStep.WAIT),
        (StartAccepted(None), Phase.ACTIVE, None, None, set(), NextStep.WAIT),
        (StartAccepted("SN-OTHER"), Phase.ACTIVE, None, None, {"serial_mismatch"}, NextStep.WAIT),
        (StartRefused(422, "no"), Phase.FINAL, "not_started", EvidenceKind.REFUSAL, set(), NextStep.NEW_ID_OK),
        (NeverSent("refused"), Phase.FINAL, "not_started", EvidenceKind.UNSENT, set(), NextStep.NEW_ID_OK),
        (Doubtful("reset"), Phase.IN_DOUBT, None, None, {"in_doubt"}, NextStep.WAIT),
    ],
)
def test_answer_to_the_start(
    judgement: Judgement,
    phase: Phase,
    result: str | None,
    evidence: EvidenceKind | None,
    attention: set[str],
    step: NextStep,
) -> None:
    after = conclude_start(starting(), judgement, NOW)
    assert after.phase is phase
    assert codes(after) == attention
    assert next_step(after, NOW, GRACE) is step
    assert (after.outcome and after.outcome.result) == result
    assert (after.outcome and after.outcome.evidence[0].kind) == evidence
    if after.outcome:
        assert after.outcome.reached_acquirer is False
        assert after.outcome.status is None
        assert after.outcome.failure_reason is not None
        assert after.outcome.failure_reason.type == "posd"


@pytest.mark.parametrize("judgement", [StartRefused(409, "busy"), NeverSent("refused")])
def test_what_was_acknowledged_never_becomes_not_started(judgement: Judgement) -> None:
    acknowledged = conclude_start(starting(), StartAccepted("SN-TEST"), NOW)
    assert conclude_start(acknowledged, judgement, NOW) == acknowledged


def test_the_same_answer_recorded_twice_is_recorded_once() -> None:
    """A commit of uncertain end is tried again, and may have been on disk."""
    assert conclude_start(refused(), StartRefused(409, "busy"), NOW) == refused()


def test_doubt_asks_for_a_person_only_after_the_grace() -> None:
    doubtful = conclude_start(starting(), Doubtful("reset"), NOW)
    assert next_step(doubtful, NOW + GRACE, GRACE) is NextStep.WAIT
    assert next_step(doubtful, NOW + GRACE + timedelta(seconds=1), GRACE) is NextStep.ASK_PERSON


@pytest.mark.parametrize("judgement", [StartRefused(409, "busy"), NeverSent("refused"), Doubtful("reset")])
def test_an_event_that_was_faster_beats_the_answer(judgement: Judgement) -> None:
    running = along(starting(), (ACK, None))
    assert conclude_start(running, judgement, NOW) == running


@pytest.mark.parametrize("judgement", [StartRefused(409, "busy"), NeverSent("refused")])
def test_after_any_authentic_callback_a_refusal_proves_nothing(judgement: Judgement) -> None:
    strange = along(starting(), ("TERMINAL_WARMING_UP", None))
    unusable = quarantined(starting(), "not JSON", NOW)
    for transaction in (strange, unusable):
        assert transaction.phase is Phase.STARTING
        assert conclude_start(transaction, judgement, NOW).phase is Phase.IN_DOUBT


def test_a_refusal_of_what_is_in_doubt_with_an_event_leaves_it_so() -> None:
    strange = along(interrupted(starting(), NOW), ("TERMINAL_WARMING_UP", None))
    assert conclude_start(strange, StartRefused(409, "busy"), NOW).phase is Phase.IN_DOUBT


def test_an_acknowledgement_never_reopens_a_final() -> None:
    final = along(starting(), *PATH, ("APPROVAL", REQUESTED))
    after = conclude_start(final, StartAccepted("SN-TEST"), NOW)
    assert (after.phase, after.outcome) == (Phase.FINAL, final.outcome)


def test_doubt_ends_with_the_first_event() -> None:
    after = along(interrupted(starting(), NOW), (ACK, None))
    assert (after.phase, codes(after)) == (Phase.ACTIVE, set())


def test_doubt_ends_with_an_acknowledgement() -> None:
    after = conclude_start(interrupted(starting(), NOW), StartAccepted("SN-TEST"), NOW)
    assert (after.phase, codes(after)) == (Phase.ACTIVE, set())


def test_the_acknowledgement_is_a_state_and_not_an_event() -> None:
    acknowledged = conclude_start(starting(), StartAccepted("SN-TEST"), NOW)
    assert (acknowledged.status, acknowledged.trail.position) == (ACK, None)
    _, verdict = advance(acknowledged, read(body(IDENTITY, ACK)), seen=RepeatedEvent.NEW, now=NOW)
    assert verdict is Verdict.APPLIED


def test_approval_has_what_a_till_needs() -> None:
    after = along(starting(), *PATH, ("APPROVAL", REQUESTED))
    outcome = after.outcome
    assert outcome is not None
    assert (outcome.result, outcome.ticket_number, outcome.authorized_amount) == ("approved", "000123", Decimal("11.2"))
    assert outcome.receipt is not None
    assert (outcome.receipt.authorization_code, outcome.receipt.franchise) == ("A1B2C3", "VISA")
    assert (outcome.reached_acquirer, outcome.reading_type, codes(after)) == (True, "CONTACTLESS", set())
    assert next_step(after, NOW, GRACE) is NextStep.DONE


def test_how_the_card_was_read_is_known_from_the_event_that_said_it() -> None:
    canceled = along(starting(), (ACK, None), (CARD, ACK), (CANCELED, CARD))
    assert canceled.outcome is not None
    assert (canceled.reading_type, canceled.outcome.reading_type) == ("CONTACTLESS", "CONTACTLESS")


@pytest.mark.parametrize("response", [None, {"authorized_amount": 11.20}, [1], "text"])
def test_approval_without_a_reference_is_still_an_approval(response: object) -> None:
    after = apply(along(starting(), *PATH), "APPROVAL", REQUESTED, raw_response=response)
    assert after.outcome is not None
    assert after.outcome.result is Result.APPROVED
    assert after.outcome.reached_acquirer is (True if isinstance(response, dict) else None)
    assert "missing_reference" in codes(after)


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
def test_an_amount_that_was_not_asked_for_is_shown(authorized: object, tip: int, differs: bool) -> None:
    response = {"transaction_reference": "r", "authorized_amount": authorized}
    operation = {"type": "CHARGE", "amount": {"tip": tip}}
    after = apply(along(starting(), *PATH), "APPROVAL", REQUESTED, raw_response=response, operation=operation)
    assert ("amount_differs" in codes(after)) is differs


@pytest.mark.parametrize(
    ("status", "previous", "path", "reached"),
    [
        ("DECLINED", REQUESTED, PATH, True),
        (REJECTED, CARD, PATH[:2], False),
        (CANCELED, ACK, PATH[:1], False),
        (CANCELED, REQUESTED, PATH, None),
        (REJECTED, REQUESTED, PATH[:2], None),
    ],
)
def test_reached_acquirer(
    status: str, previous: str, path: tuple[tuple[str, str | None], ...], reached: bool | None
) -> None:
    after = apply(along(starting(), *path), status, previous)
    assert after.outcome is not None
    assert after.outcome.reached_acquirer is reached
    step = NextStep.ASK_PERSON if reached is None else NextStep.NEW_ID_OK
    assert next_step(after, NOW, GRACE) is step, "after the acquirer was asked a cancellation proves too little"


def test_a_call_to_the_acquirer_that_shows_up_later_takes_the_certainty_back() -> None:
    canceled = along(starting(), (ACK, None), (CARD, ACK), (CANCELED, CARD))
    assert canceled.outcome is not None
    assert canceled.outcome.reached_acquirer is False
    after = apply(canceled, REQUESTED, CARD)
    assert after.outcome is not None
    assert (after.outcome.result, after.outcome.reached_acquirer) == ("canceled", None)
    assert "illegal_transition" in codes(after)


@pytest.mark.parametrize("reason", [None, "text", 7, {"code": 51, "message": True}])
def test_a_failure_reason_of_any_shape_is_read_as_far_as_it_goes(reason: object) -> None:
    after = apply(along(starting(), *PATH), "DECLINED", REQUESTED, failure_reason=reason)
    assert after.outcome is not None
    failure = after.outcome.failure_reason
    expected = {"text": (None, "text"), "{'code': 51, 'message': True}": ("51", None)}.get(str(reason))
    assert (failure and (failure.code, failure.message)) == expected


def test_an_event_disproves_an_inferred_not_started() -> None:
    after = apply(refused(), ACK)
    assert (after.phase, after.outcome, after.status) == (Phase.ACTIVE, None, ACK)
    assert codes(after) == {"outcome_corrected"}
    assert next_step(after, NOW, GRACE) is NextStep.ASK_PERSON
    final = along(after, *PATH[1:], ("APPROVAL", REQUESTED))
    assert final.outcome is not None
    assert final.outcome.result is Result.APPROVED
    assert final.outcome.supersedes is not None
    assert final.outcome.supersedes.result is Result.NOT_STARTED
    assert next_step(final, NOW, GRACE) is NextStep.ASK_PERSON


def test_a_callback_that_tells_of_no_known_state_disproves_it_too() -> None:
    for after in (apply(refused(), "TERMINAL_WARMING_UP"), quarantined(refused(), "not JSON", NOW)):
        assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
        assert {"outcome_corrected", "in_doubt"} <= codes(after)
        assert next_step(after, NOW, GRACE) is NextStep.ASK_PERSON


def test_a_final_supersedes_an_inferred_not_started_at_once() -> None:
    after = apply(refused(), "DECLINED", REQUESTED)
    assert after.outcome is not None
    assert (after.outcome.result, after.outcome.supersedes is not None) == ("declined", True)
    assert "outcome_corrected" in codes(after)


def test_what_a_person_said_stays_until_a_final_says_otherwise() -> None:
    inferred = refused().outcome
    assert inferred is not None
    word = model.Evidence(kind=EvidenceKind.OPERATOR, at="now")
    declined = model.msgspec.structs.replace(inferred, result=Result.DECLINED, evidence=(word,))
    closed = model.msgspec.structs.replace(refused(), outcome=declined)
    moved = apply(closed, CARD, ACK)
    assert (moved.phase, moved.outcome, moved.status) == (Phase.FINAL, declined, CARD)
    confirmed = apply(moved, "DECLINED", REQUESTED)
    assert confirmed.outcome is not None
    assert confirmed.outcome.supersedes == declined
    assert "outcome_corrected" not in codes(confirmed), "the terminal says the same"


@pytest.mark.parametrize(
    ("status", "changes", "conflict"),
    [
        ("APPROVAL", {"raw_response": {"transaction_reference": "r-1"}}, False),
        ("APPROVAL", {"raw_response": {"transaction_reference": "r-2"}}, True),
        ("APPROVAL", {"raw_response": None}, True),
        ("DECLINED", {}, True),
        (CANCELED, {}, True),
        (CARD, {}, False),
    ],
)
def test_two_finals_that_differ_are_shown_and_the_first_stands(
    status: str, changes: dict[str, object], conflict: bool
) -> None:
    first = apply(along(starting(), *PATH), "APPROVAL", REQUESTED, raw_response={"transaction_reference": "r-1"})
    second, verdict = advance(
        first, read(body(IDENTITY, status, REQUESTED, **changes)), seen=RepeatedEvent.NEW, now=NOW
    )
    assert verdict is Verdict.AFTER_FINAL
    assert second.outcome == first.outcome
    assert ("conflicting_final" in codes(second)) is conflict
    assert next_step(second, NOW, GRACE) is (NextStep.ASK_PERSON if conflict else NextStep.DONE)


def test_an_event_id_used_again_is_kept_and_moves_nothing() -> None:
    before = along(starting(), (ACK, None))
    after, verdict = advance(before, read(body(IDENTITY, CARD, ACK)), seen=RepeatedEvent.REUSED, now=NOW)
    assert (verdict, after.status, codes(after)) == (Verdict.DUPLICATE, ACK, {"event_id_reused"})
    assert next_step(after, NOW, GRACE) is NextStep.ASK_PERSON, "what was not applied may have been the final"


def test_a_conflicting_final_under_a_used_event_id_is_shown_as_well() -> None:
    final = along(starting(), *PATH, ("DECLINED", REQUESTED))
    after, _ = advance(final, read(body(IDENTITY, "APPROVAL", REQUESTED)), seen=RepeatedEvent.REUSED, now=NOW)
    assert codes(after) == {"event_id_reused", "conflicting_final"}


def test_another_terminal_of_the_fleet_is_believed_and_shown() -> None:
    event = read(body(IDENTITY, ACK, None, "SN-OTHER"))
    after, verdict = advance(starting(), event, seen=RepeatedEvent.NEW, now=NOW)
    assert (verdict, after.status, codes(after)) == (Verdict.APPLIED, ACK, {"serial_mismatch"})


def test_a_gap_is_raised_and_closed_by_the_event_that_was_missing() -> None:
    gap = along(starting(), (ACK, None), (REQUESTED, CARD))
    assert codes(gap) == {"gap"}
    other = apply(gap, "TERMINAL_ACKNOWLEDGED", None)
    assert codes(other) == {"gap"}, "an event that is not the missing one closes nothing"
    assert codes(apply(gap, CARD, ACK)) == set()


def test_a_gap_stays_until_every_missing_event_has_come() -> None:
    two = along(starting(), (CARD, ACK), ("APPROVAL", REQUESTED))
    one = apply(two, ACK)
    assert (codes(two), codes(one)) == ({"gap"}, {"gap"})
    assert codes(apply(one, REQUESTED, CARD)) == set()


def test_every_change_has_its_time_and_what_changes_nothing_has_none() -> None:
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


def test_only_what_is_open_and_never_had_an_outcome_changes_what_is_known_of_its_terminal() -> None:
    reopened = apply(refused(), ACK)
    assert (reopened.phase, reopened.updates_terminal) == (Phase.ACTIVE, False)
    assert (starting().updates_terminal, refused().updates_terminal) == (True, False)


def test_an_orphan_is_rebuilt_from_its_events() -> None:
    event = read(body(IDENTITY, ACK))
    orphan = rebuild(event, IDENTITY, NOW)
    assert (orphan.phase, orphan.orphan, orphan.type, codes(orphan)) == (Phase.ACTIVE, True, None, {"orphan"})
    final = apply(along(orphan, *PATH), "APPROVAL", REQUESTED, operation={"type": "PREAUTH"})
    assert (final.type, final.outcome is not None) == ("pre-auth", True)
    assert "amount_differs" not in codes(final), "what was asked for is not known"


def test_a_quarantined_callback_is_shown_once_with_the_newest_reason() -> None:
    twice = quarantined(quarantined(starting(), "first", NOW), "second", NOW + GRACE)
    (item,) = twice.attention
    assert (item.code, item.since) == (AttentionCode.QUARANTINED_EVENT, "2026-11-20T10:42:03.000Z")
    assert item.detail.endswith("second")


@pytest.mark.parametrize(
    ("path", "abortable"), [((), True), (PATH[:2], True), (PATH, False), ((*PATH, ("DECLINED", REQUESTED)), False)]
)
def test_abortable_until_the_acquirer_is_asked(path: tuple[tuple[str, str | None], ...], abortable: bool) -> None:
    assert along(starting(), *path).abortable is abortable


def test_no_abort_once_an_event_says_that_the_acquirer_was_asked_or_that_another_device_answered() -> None:
    asked = apply(along(starting(), *PATH[:2]), "TERMINAL_WARMING_UP", REQUESTED)
    assert not asked.abortable
    assert not conclude_start(starting(), StartAccepted("SN-OTHER"), NOW).abortable
