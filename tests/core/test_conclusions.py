"""Conclusions of posd and operators without a final event, and the effects of search results on a transaction."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from posd.payments.answers import Answer, SearchFailed, SearchHit, SearchMiss
from posd.payments.model import (
    AttentionCode,
    Evidence,
    EvidenceKind,
    Failure,
    LastSearch,
    NextStep,
    Result,
    SearchResult,
    Transaction,
    next_step,
)
from posd.payments.transitions import (
    dismissed,
    doubt,
    interrupted,
    proved,
    quarantined,
    released,
    resolved,
    searched,
    silent,
    taken_over,
    touched,
)
from posd.records.model import Phase
from tests.core.inputs import REPLIES, UNUSABLE, content, event, found
from tests.core.scenarios import ACK, CARD, IDENTITY, NOW, REQUESTED, starting
from tests.core.walks import Input
from tests.rig.tables import there

LATER = NOW + timedelta(seconds=30)
LATER_TEXT = "2026-11-20T10:42:33.000Z"
PIECES = tuple(Evidence(kind=kind, at="t") for kind in (EvidenceKind.ABORT, EvidenceKind.SEARCH) * 2)
REPLY = {item.name: item.apply for item in REPLIES}


def codes(transaction: Transaction) -> set[str]:
    return {item.code for item in transaction.attention}


def in_doubt() -> Transaction:
    return doubt(starting(), "reset", NOW)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (SearchMiss(), SearchResult.NONE),
        (SearchFailed("reset"), SearchResult.NO_ANSWER),
        (SearchHit((content(CARD, ACK).decode(),)), SearchResult.FOUND),
    ],
)
def test_every_search_is_recorded_and_a_search_without_a_result_changes_nothing_else(
    answer: Answer, result: SearchResult
) -> None:
    before = in_doubt()
    after = searched(before, answer, LATER)
    assert after.last_search == LastSearch(LATER_TEXT, result)
    changed = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    if result is not SearchResult.FOUND:
        assert changed == {"last_search"}
    else:
        assert (after.phase, after.status, after.heard, codes(after)) == (Phase.ACTIVE, CARD, True, set())
        assert after.updated_at == LATER_TEXT


def test_a_state_found_again_changes_nothing() -> None:
    once = found(content(CARD, ACK)).apply(in_doubt())
    again = searched(once, SearchHit((content(CARD, ACK).decode(),)), LATER)
    assert (again.updated_at, again.trail, codes(again)) == (once.updated_at, once.trail, set())


def test_a_search_does_not_mark_a_gap() -> None:
    transaction = event(content(ACK)).apply(starting())
    assert codes(found(content(REQUESTED, CARD)).apply(transaction)) == set()


def test_a_final_found_by_a_search_closes_a_gap_and_a_silence() -> None:
    gap = event(content(REQUESTED, CARD)).apply(event(content(ACK)).apply(starting()))
    stalled = silent(gap, AttentionCode.STALLED, 60, NOW)
    assert codes(stalled) == {"gap", "stalled"}
    assert codes(found(content(REQUESTED, CARD)).apply(stalled)) == {"gap", "stalled"}, "the state is unchanged"
    assert codes(found(content("APPROVAL", REQUESTED)).apply(stalled)) == set()


def test_a_gap_stays_until_the_missing_event_arrives() -> None:
    gap = event(content(REQUESTED)).apply(event(content(ACK)).apply(starting()))
    detail = there(gap.attention_of(AttentionCode.GAP)).detail
    assert detail.startswith("an event is missing before APPROVAL_REQUESTED, which names no state as the state before")
    final = event(content("APPROVAL", REQUESTED)).apply(gap)
    assert codes(final) == codes(found(content(CARD, ACK)).apply(final)) == {"gap"}
    assert codes(event(content(CARD, ACK)).apply(final)) == set()


def test_a_later_state_ends_a_silence() -> None:
    stalled = silent(event(content(ACK)).apply(starting()), AttentionCode.STALLED, 60, NOW)
    assert codes(found(content(CARD, ACK)).apply(stalled)) == set()


def test_the_reading_type_is_known_from_a_search_too() -> None:
    assert found(content(CARD, ACK)).apply(starting()).reading_type == "CONTACTLESS"


def test_an_unusable_search_result_is_shown_and_prevents_the_conclusion_not_started() -> None:
    after = UNUSABLE.apply(in_doubt())
    assert (after.phase, after.heard, codes(after)) == (Phase.IN_DOUBT, True, {"in_doubt", "quarantined_event"})
    assert proved(after, PIECES, LATER) == after
    assert after.last_search == LastSearch("2026-11-20T10:42:03.000Z", SearchResult.NO_ANSWER)


@pytest.mark.parametrize("name", ["refused", "unsent", "canceled"])
def test_an_unusable_search_result_does_not_withdraw_a_conclusion(name: str) -> None:
    concluded = REPLY[name](starting())
    after = UNUSABLE.apply(concluded)
    assert (after.phase, after.outcome, after.heard) == (Phase.FINAL, concluded.outcome, False)
    assert codes(after) == {"quarantined_event"}


@pytest.mark.parametrize("result", Result)
def test_an_unusable_search_result_does_not_withdraw_an_operators_decision(result: Result) -> None:
    closed = resolved(in_doubt(), result, "Ana", "nothing on the screen", None, NOW)
    after = UNUSABLE.apply(closed)
    assert (after.phase, after.outcome, codes(after)) == (Phase.FINAL, closed.outcome, {"quarantined_event"})


def test_an_unknown_state_is_shown() -> None:
    after = found(content("WARMING_UP")).apply(in_doubt())
    assert (after.phase, codes(after)) == (Phase.IN_DOUBT, {"in_doubt", "unknown_status"})


def test_another_terminal_that_has_the_payment_is_accepted_and_shown() -> None:
    after = found(content(CARD, ACK, terminal={"serial_number": "SN-OTHER"})).apply(in_doubt())
    assert (after.phase, after.status, codes(after)) == (Phase.ACTIVE, CARD, {"serial_mismatch"})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            AttentionCode.NO_CALLBACK,
            "terminal SN-TEST acknowledged the payment, and then sent no usable event for 10 s",
        ),
        (AttentionCode.STALLED, "terminal SN-TEST reported nothing after CARD_PRESENTED for 10 s"),
    ],
)
def test_a_silence_is_shown_and_concludes_nothing(code: AttentionCode, words: str) -> None:
    before = event(content(CARD)).apply(REPLY["acknowledged"](starting()))
    after = silent(before, code, 10.0, LATER)
    assert (after.phase, after.outcome, after.trail) == (before.phase, None, before.trail)
    item = there(after.attention_of(code))
    assert (item.since, item.detail.startswith(words)) == (LATER_TEXT, True)
    assert code not in codes(event(content(REQUESTED, CARD)).apply(after)), "an event ends the silence"


def test_the_complete_proof_of_not_started_ends_a_doubt() -> None:
    after = proved(in_doubt(), PIECES, LATER)
    assert (after.phase, codes(after), after.updated_at) == (Phase.FINAL, set(), LATER_TEXT)
    outcome = there(after.outcome)
    assert (outcome.result, outcome.status, outcome.evidence) == (Result.NOT_STARTED, None, PIECES)
    failure = there(outcome.failure_reason)
    assert (failure.type, failure.code, outcome.reached_acquirer) == ("posd", "proved_not_started", False)


@pytest.mark.parametrize(
    "transaction",
    [
        starting(),
        REPLY["acknowledged"](starting()),
        REPLY["refused"](starting()),
        event(content(ACK)).apply(in_doubt()),
        event(content("APPROVAL")).apply(in_doubt()),
        found(content(CARD)).apply(in_doubt()),
        quarantined(in_doubt(), "not JSON", NOW),
        event(content("WARMING_UP")).apply(in_doubt()),
        taken_over(starting(), "only the id could be read", NOW),
    ],
)
def test_after_a_report_of_the_terminal_no_proof_of_not_started_is_possible(transaction: Transaction) -> None:
    assert proved(transaction, PIECES, LATER) == transaction


def test_a_release_frees_the_terminal_and_decides_nothing() -> None:
    after = released(in_doubt(), LATER)
    assert (after.phase, after.outcome, after.released, after.abortable) == (Phase.IN_DOUBT, None, True, False)
    assert codes(after) == {"in_doubt", "released"}
    assert after.updated_at == LATER_TEXT


@pytest.mark.parametrize("result", Result)
def test_an_operator_resolves_a_payment(result: Result) -> None:
    after = resolved(released(in_doubt(), NOW), result, "Ana", "seen on the slip", "r-1", LATER)
    assert (after.phase, codes(after), after.updated_at) == (Phase.FINAL, set(), LATER_TEXT)
    outcome = there(after.outcome)
    assert (outcome.result, outcome.status, outcome.by_operator) == (result, None, True)
    assert (outcome.transaction_reference, outcome.supersedes) == ("r-1", None)
    assert outcome.reached_acquirer is (False if result is Result.NOT_STARTED else None)
    (evidence,) = outcome.evidence
    assert (evidence.kind, evidence.at, evidence.operator, evidence.note) == (
        "operator",
        LATER_TEXT,
        "Ana",
        "seen on the slip",
    )
    said = Failure(type="posd", code="resolved", message="Ana says that it did not start: seen on the slip")
    assert outcome.failure_reason == (said if result is Result.NOT_STARTED else None)


def test_an_operator_acknowledges_one_attention() -> None:
    two = released(in_doubt(), NOW)
    assert codes(dismissed(two, AttentionCode.IN_DOUBT, LATER)) == {"released"}
    assert dismissed(two, AttentionCode.GAP, LATER) == two


def test_a_payment_that_a_restore_could_not_read_completely_stays_in_doubt() -> None:
    after = taken_over(starting(), "the old file could not be read", LATER)
    assert (after.phase, after.heard, codes(after)) == (Phase.IN_DOUBT, True, {"in_doubt", "orphan"})


def test_an_attention_raised_again_keeps_its_first_time() -> None:
    once = interrupted(starting(), NOW)
    again = doubt(once, "another reason", LATER)
    (first,), (second,) = once.attention, again.attention
    assert (second.since, second.detail != first.detail) == (first.since, True)


def test_a_hit_of_another_merchant_is_not_an_answer_but_prevents_the_conclusion_not_started() -> None:
    after = searched(in_doubt(), SearchFailed("of another merchant", 200, bears_id=True), LATER)
    assert (after.phase, after.heard) == (Phase.IN_DOUBT, True)
    assert codes(after) == {"in_doubt", "quarantined_event"}
    assert proved(after, PIECES, LATER) == after


def test_a_hit_of_another_merchant_withdraws_a_refusal() -> None:
    after = searched(REPLY["refused"](starting()), SearchFailed("of another merchant", bears_id=True), LATER)
    assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
    assert codes(after) == {"in_doubt", "quarantined_event", "outcome_corrected"}


def test_an_unusable_element_of_a_search_proves_that_a_terminal_has_the_payment() -> None:
    alone = searched(in_doubt(), SearchHit(("{}",)), LATER)
    assert (alone.heard, codes(alone)) == (True, {"in_doubt", "quarantined_event"})
    final = content("APPROVAL", REQUESTED)
    after = searched(in_doubt(), SearchHit((f'{{"client_transaction_id": "{IDENTITY}"}}', final.decode())), LATER)
    assert (after.outcome and after.outcome.result, codes(after)) == (Result.APPROVED, {"quarantined_event"})


def test_a_payment_that_a_terminal_has_reported_is_never_proved_not_started() -> None:
    after = touched(in_doubt(), LATER)
    assert (after.phase, after.heard, codes(after)) == (Phase.IN_DOUBT, True, {"in_doubt"})
    assert proved(after, PIECES, LATER) == after


def test_an_acknowledgement_withdraws_an_operators_decision_that_nothing_started() -> None:
    closed = resolved(in_doubt(), Result.NOT_STARTED, "Ana", "nothing on the screen", None, NOW)
    after = REPLY["acknowledged"](closed)
    assert (after.phase, after.outcome, after.withdrawn) == (Phase.ACTIVE, None, closed.outcome)
    assert "outcome_corrected" in codes(after)


@pytest.mark.parametrize("result", [Result.CANCELED, Result.REJECTED])
@pytest.mark.parametrize("tell", [event, found], ids=["event", "search"])
def test_a_request_to_the_acquirer_withdraws_an_operators_cancellation(
    result: Result, tell: Callable[[bytes], Input]
) -> None:
    closed = resolved(in_doubt(), result, "Ana", "nothing on the screen", None, NOW)
    before = tell(content(CARD, ACK)).apply(closed)
    assert (before.phase, before.outcome) == (Phase.FINAL, closed.outcome)
    after = tell(content(REQUESTED, CARD)).apply(before)
    assert (after.phase, after.outcome, after.withdrawn) == (Phase.ACTIVE, None, closed.outcome)
    assert "outcome_corrected" in codes(after)
    assert next_step(after, NOW, timedelta(seconds=60)) is NextStep.ASK_PERSON


def test_a_request_to_the_acquirer_before_the_operators_decision_withdraws_nothing() -> None:
    known = event(content(REQUESTED, CARD)).apply(in_doubt())
    closed = resolved(known, Result.CANCELED, "Ana", "the terminal was off", None, NOW)
    after = found(content(REQUESTED, CARD)).apply(closed)
    assert (after.phase, after.outcome) == (Phase.FINAL, closed.outcome)


def test_an_earlier_state_does_not_undo_an_operators_decline() -> None:
    closed = resolved(in_doubt(), Result.DECLINED, "Ana", "seen on the slip", None, NOW)
    after = event(content(REQUESTED, CARD)).apply(closed)
    assert (after.phase, after.outcome) == (Phase.FINAL, closed.outcome)
