"""Two reports of an end. A report of the terminal replaces a conclusion without a report.

The terminal's first report counts.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from posd.base.operations import OperationType
from posd.payments import model
from posd.payments.model import AttentionCode, Failure, Result, Transaction
from posd.payments.transitions import RepeatedEvent, advance, resolved, unread
from posd.terminals.attempt import NotSent, StartRefused
from tests.core.inputs import content, event, found, reply
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, read, starting
from tests.core.walks import Input
from tests.rig.tables import every, there

R1 = content("APPROVAL", REQUESTED)
R2 = content("APPROVAL", REQUESTED, reference="r-2")
BARE = content("APPROVAL", REQUESTED, event_id="bare", raw_response=None)
POOR = content("APPROVAL", REQUESTED, event_id="poor", raw_response={"ticket_number": "7"})
DECLINED = content("DECLINED", REQUESTED)
RECEIPT = {"transaction_reference": "r-1", "authorized_amount": 12, "message_fields": {"F38": "A1B2C3"}}
DECLINED_WITH_REFERENCE = content("DECLINED", REQUESTED, raw_response=RECEIPT)
RICH = content(
    *("APPROVAL", REQUESTED),
    event_id="rich",
    reading_type="CHIP",
    raw_response=RECEIPT,
    operation={"amount": {"currency": "USD"}},
)
BARE_BY_CHIP = content("APPROVAL", REQUESTED, event_id="bare", reading_type="CHIP", raw_response=None)
NO_REASON = content("DECLINED", REQUESTED, event_id="no reason", failure_reason=None)


def after(*inputs: Input, start: Transaction | None = None) -> Transaction:
    transaction = start or starting()
    for item in inputs:
        transaction = item.apply(transaction)
    return transaction


def codes(transaction: Transaction) -> set[str]:
    return {item.code for item in transaction.attention} - {AttentionCode.GAP}


def kinds(transaction: Transaction) -> list[str]:
    return [item.kind for item in there(transaction.outcome).evidence]


@every(
    ("first", "second", "reference", "proofs", "raised"),
    [
        # both kinds of evidence of the same final are kept
        (event(R1), found(R1), "r-1", ["event", "search"], set()),
        (found(R1), event(R1), "r-1", ["search", "event"], set()),
        (found(R1), found(R1), "r-1", ["search"], set()),
        (event(R1), event(content("APPROVAL", "CARD_PRESENTED")), "r-1", ["event"], set()),
        # more data completes the result of a search, and a search with less data removes nothing
        (found(BARE), event(R1), "r-1", ["search", "event"], set()),
        (found(BARE), found(R1), "r-1", ["search"], set()),
        (found(POOR), event(R1), "r-1", ["search", "event"], set()),
        (found(BARE), found(BARE), None, ["search"], {"missing_reference"}),
        (event(R1), found(BARE), "r-1", ["event", "search"], set()),
        (event(R1), found(POOR), "r-1", ["event", "search"], set()),
        (found(R1), found(BARE), "r-1", ["search"], set()),
        (event(BARE), found(R1), "r-1", ["event", "search"], set()),
        (event(BARE), found(BARE), None, ["event", "search"], {"missing_reference"}),
        # two finals
        (event(R1), event(R2), "r-1", ["event"], {"conflicting_final"}),
        (event(R1), found(R2), "r-1", ["event"], {"conflicting_final"}),
        (found(R1), event(R2), "r-1", ["search"], {"conflicting_final"}),
        (found(R1), found(R2), "r-1", ["search"], {"conflicting_final"}),
        (event(BARE), event(R1), None, ["event"], {"conflicting_final", "missing_reference"}),
        (event(R1), event(BARE), "r-1", ["event"], {"conflicting_final"}),
        (event(R1), event(DECLINED), "r-1", ["event"], {"conflicting_final"}),
        (event(DECLINED), event(R1), None, ["event"], {"conflicting_final"}),
        (found(DECLINED), found(R1), None, ["search"], {"conflicting_final"}),
        (event(DECLINED), found(BARE), None, ["event"], {"conflicting_final"}),
        # only an approval has a reference
        (event(DECLINED), event(DECLINED_WITH_REFERENCE), None, ["event"], set()),
        (found(BARE), event(DECLINED), None, ["search"], {"conflicting_final", "missing_reference"}),
        # an event that is not final does not contradict a final event
        (event(R1), event(content(CARD, ACK)), "r-1", ["event"], set()),
        (event(R1), found(content(CARD, ACK)), "r-1", ["event"], set()),
        (event(R1), found(content(REQUESTED, CARD)), "r-1", ["event"], set()),
    ],
)
def test_a_second_report_of_the_terminal_completes_or_contradicts_the_first(
    first: Input, second: Input, reference: str | None, proofs: list[str], raised: set[str]
) -> None:
    transaction = after(first, second)
    assert (there(transaction.outcome).transaction_reference, kinds(transaction)) == (reference, proofs)
    assert codes(transaction) == raised


def test_an_event_with_less_data_than_an_earlier_search_result_removes_no_data() -> None:
    transaction = after(found(R1), event(BARE))
    assert (there(transaction.outcome).transaction_reference, kinds(transaction)) == ("r-1", ["search", "event"])
    assert "missing_reference" not in codes(transaction)


@every(
    ("first", "second", "counts"),
    [
        (event(RICH), event(R1), RICH),
        (event(RICH), found(R1), RICH),
        (event(BARE), found(BARE_BY_CHIP), BARE),
        (found(R1), event(RICH), RICH),
    ],
)
def test_the_reading_type_of_an_approval_comes_from_the_first_event(first: Input, second: Input, counts: bytes) -> None:
    outcome, alone = there(after(first, second).outcome), there(after(event(counts)).outcome)
    names = ("reading_type", "receipt", "authorized_amount", "currency")
    assert [getattr(outcome, name) for name in names] == [getattr(alone, name) for name in names]


def test_both_finals_are_shown_with_their_references() -> None:
    shown = there(after(event(R1), event(R2)).attention_of(AttentionCode.CONFLICTING_FINAL))
    assert "APPROVAL (reference r-1) counts, APPROVAL (reference r-2) arrived" in shown.detail
    shown = there(after(event(DECLINED), event(R1)).attention_of(AttentionCode.CONFLICTING_FINAL))
    assert "DECLINED counts, APPROVAL (reference r-1) arrived" in shown.detail


def test_an_event_completes_a_search_result_but_keeps_the_earlier_time() -> None:
    poor = after(found(NO_REASON))
    later, _ = advance(poor, read(DECLINED), seen=RepeatedEvent.NEW, now=NOW.replace(hour=23))
    assert poor.outcome is not None
    assert later.outcome is not None
    assert (poor.outcome.failure_reason, later.outcome.failure_reason is None) == (None, False)
    assert later.outcome.decided_at == poor.outcome.decided_at
    assert [item.event_id for item in later.outcome.evidence] == ["no reason", "DECLINED r-1 after APPROVAL_REQUESTED"]


def test_a_superseded_outcome_is_kept_when_the_new_outcome_is_completed() -> None:
    transaction = after(Input("", reply(StartRefused(409, "busy"))), found(BARE), event(R1))
    assert transaction.outcome is not None
    assert there(transaction.outcome.supersedes).result is Result.NOT_STARTED


def test_an_amount_that_only_the_second_report_has_is_compared_too() -> None:
    response = {"transaction_reference": "r-1", "authorized_amount": 99}
    more = event(content("APPROVAL", REQUESTED, raw_response=response))
    assert codes(after(found(BARE), more)) == {"amount_differs"}


@pytest.mark.parametrize("final", [CANCELED, REJECTED])
@pytest.mark.parametrize("how", [event, found], ids=["event", "search"])
def test_a_request_to_the_acquirer_removes_certainty_whenever_it_is_reported(
    final: str, how: Callable[[bytes], Input]
) -> None:
    asked, ended = how(content(REQUESTED, CARD)), event(content(final, CARD))
    path = [event(content(ACK)), event(content(CARD, ACK))]
    for transaction in (after(*path, asked, ended), after(*path, ended, asked)):
        assert transaction.outcome is not None
        assert (transaction.outcome.status, transaction.outcome.reached_acquirer) == (final, None)
    outcome = there(after(*path, ended).outcome)
    assert outcome.reached_acquirer is False


@pytest.mark.parametrize("final", [CANCELED, REJECTED])
@pytest.mark.parametrize("word", ["DECLINED", "APPROVAL"])
@pytest.mark.parametrize("how", [event, found], ids=["event", "search"])
def test_an_answer_of_the_acquirer_removes_certainty_even_if_no_request_was_reported(
    final: str, word: str, how: Callable[[bytes], Input]
) -> None:
    transaction = after(event(content(ACK)), event(content(final, ACK)), how(content(word, final)))
    assert transaction.outcome is not None
    assert (transaction.outcome.status, transaction.outcome.reached_acquirer) == (final, None)
    assert codes(transaction) == {"conflicting_final"}


def person(result: Result) -> Input:
    return Input("", lambda transaction: resolved(transaction, result, "Ana", "slip", None, NOW))


def test_an_operator_can_resolve_a_payment_after_the_conclusion_not_started_was_disproved() -> None:
    disproved = after(Input("", reply(StartRefused(409, ""))), event(content(ACK)))
    transaction = after(person(Result.APPROVED), start=disproved)
    assert there(transaction.outcome).supersedes == disproved.withdrawn
    corrected = there(transaction.attention_of(AttentionCode.OUTCOME_CORRECTED))
    assert corrected.detail == "the earlier outcome not_started was a conclusion of posd; an operator says approved"
    ended = after(event(R1), start=transaction)
    assert (there(ended.outcome).supersedes, ended.withdrawn) == (transaction.outcome, None)
    assert codes(ended) == {"outcome_corrected"}


def test_the_attention_says_that_a_final_event_corrected_an_operators_decision() -> None:
    corrected = there(after(person(Result.CANCELED), event(R1)).attention_of(AttentionCode.OUTCOME_CORRECTED))
    assert corrected.detail == "the earlier outcome canceled was an operator's decision; the terminal says approved"


def test_the_outcome_of_an_unsent_request_has_the_reason() -> None:
    outcome = there(after(Input("", reply(NotSent("connection refused")))).outcome)
    assert [(item.kind, item.reason) for item in outcome.evidence] == [("unsent", "connection refused")]
    assert outcome.failure_reason == Failure("posd", "unsent", "the request was never sent: connection refused")


def test_the_attention_outcome_unread_is_raised_only_while_the_approval_counts() -> None:
    by_ana = unread(resolved(starting(), Result.APPROVED, "Ana", "slip", None, NOW), NOW)
    assert codes(after(event(R1), start=by_ana)) == {"outcome_unread"}
    assert codes(after(event(DECLINED), start=by_ana)) == {"outcome_corrected"}


def test_an_outcome_names_the_event_that_is_its_evidence() -> None:
    by_event, by_search = after(event(R1)).outcome, after(found(R1)).outcome
    assert by_event is not None
    assert by_search is not None
    assert by_event.rests_on(read(R1).event_id)
    assert not by_event.rests_on("another")
    assert not by_search.rests_on(read(R1).event_id), "no event of the payment has arrived"
    assert there(after(event(RICH)).outcome).currency == "USD"
    assert there(after(event(DECLINED_WITH_REFERENCE)).outcome).authorized_amount is None
    assert by_event.authorized_amount == by_search.authorized_amount == Decimal("11.2")


def test_a_final_with_a_used_event_id_ends_no_payment_but_counts_as_a_report() -> None:
    running = after(event(content(ACK)), event(content(CARD, ACK)))
    again, verdict = advance(running, read(R1), seen=RepeatedEvent.REUSED, now=NOW)
    assert (verdict, again.phase, again.outcome, again.trail) == ("duplicate", running.phase, None, running.trail)
    confirmed, _ = advance(after(found(R1)), read(R1), seen=RepeatedEvent.REUSED, now=NOW)
    assert kinds(confirmed) == ["search", "event"]
    contradicted, _ = advance(after(event(R1)), read(DECLINED), seen=RepeatedEvent.REUSED, now=NOW)
    assert codes(contradicted) == {"event_id_reused", "conflicting_final"}
    by_ana, _ = advance(after(person(Result.APPROVED)), read(R1), seen=RepeatedEvent.REUSED, now=NOW)
    assert codes(by_ana) == {"event_id_reused"}


def test_the_reference_of_an_approval_is_stored_in_upper_case_for_look_ups() -> None:
    upper = event(content("APPROVAL", REQUESTED, reference="ab-C"))
    assert (after(upper).given_reference, after(event(DECLINED)).given_reference) == ("AB-C", None)
    assert after().given_reference is None


def test_a_payment_that_is_not_approved_is_shown_with_its_result() -> None:
    assert [there(after(item).outcome).unapproved for item in (event(R1), event(DECLINED))] == [None, "declined"]


@pytest.mark.parametrize("kind", [OperationType.POST_TIP, OperationType.VOID])
def test_the_authorized_amounts_of_tips_and_voids_are_not_compared(kind: OperationType) -> None:
    response = {"transaction_reference": "r-1", "ticket_number": "1", "authorized_amount": 99}
    approval = event(content("APPROVAL", REQUESTED, raw_response=response))
    assert codes(after(approval, start=starting(type=kind))) == set()
    assert codes(after(approval, start=starting(type=OperationType.CAPTURE))) == {"amount_differs"}


@pytest.mark.parametrize(("until", "what"), [("2026-11-21T05:00:00.000Z", "cancellation"), (None, None)])
def test_only_an_approved_void_is_a_cancellation_or_a_refund(until: str | None, what: str | None) -> None:
    void = starting(type=OperationType.VOID, same_day_until=until)
    approval = event(content("APPROVAL", REQUESTED, occurred_at="2026-11-20T10:42:03.120Z"))
    outcome = there(after(approval, start=void).outcome)
    assert outcome.reversal == what
    refund = starting(type=OperationType.REFUND, same_day_until=until)
    assert there(after(approval, start=refund).outcome).reversal == "refund"
    for other in (after(event(DECLINED), start=void), after(event(R1), start=starting(same_day_until=until))):
        assert there(other.outcome).reversal is None


def test_each_attention_code_is_used_by_a_rule() -> None:
    """No other test fails if no rule raises a new code."""
    files = (path.read_text("utf-8") for path in Path(model.__file__).parent.glob("*.py") if path.name != "model.py")
    raised = re.findall(r"AttentionCode\.([A-Z_]+)", "\n".join(files))
    assert set(raised) == set(model.AttentionCode.__members__)
