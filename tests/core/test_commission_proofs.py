"""The functions of a terminal that a commissioning proves, for every combination of observations."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

from posd.cli.explain.catalogue import chosen
from posd.cli.terminals.proofs import ProvedPayment, ProvedPrintJob, WalkProofs, lacking, payment, print_job
from posd.payments.answers import AbortAnswer
from posd.terminals.identity import Part
from tests.rig.tables import every

ID = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
STATUSES = ("TERMINAL_CANCELED", "APPROVAL", "DECLINED", "TERMINAL_REJECTED", None)
SEARCHES = ((), ("found",), ("none",), ("none", "found"), ("no_answer",), ("no_answer", "none"))
UNKNOWN = [
    None,
    *(
        {"result": result, "reason": None, "webhook_signature": "", "found_before": before}
        for result, before in product(("none", "found", "no_answer"), (False, True))
    ),
]
CANCELED = ProvedPayment(ID, True, "TERMINAL_CANCELED", True, "taken", ("found",), None)
APPROVED = ProvedPayment(ID, True, "APPROVAL", True, None, ("found",), True)
NONE = {"result": "none", "reason": None, "webhook_signature": "wh-secret-body-hex", "found_before": True}
ALL = WalkProofs((CANCELED, APPROVED), NONE, True, ProvedPrintJob("job", True, "COMPLETED", True))


def proven(seen: WalkProofs) -> set[str]:
    return {part for part, words in lacking(seen).items() if not words}


def test_every_part_can_be_proven_and_a_missing_proof_has_a_text() -> None:
    assert proven(ALL) == set(lacking(ALL)) == set(Part)
    assert list(lacking(WalkProofs(()))) == list(lacking(ALL))
    for code in lacking(WalkProofs(())).values():
        words = chosen("says")["lacks"][code]
        assert words[0].islower()
        assert words.isprintable()


def seen_of_search() -> Iterator[tuple[WalkProofs, bool]]:
    """Yield observations, and whether they prove the search.

    The observations contain every pair of payments, by end and searches. The observations also contain every reply
    about a payment that never existed.
    """
    ends = [CANCELED._replace(status=status, searches=found) for status, found in product(STATUSES, SEARCHES)]
    for first, second, unknown in product(ends, [None, *ends], UNKNOWN):
        payments = (first,) if second is None else (first, second)
        found = any("found" in item.searches for item in payments)
        denied = any("none" in item.searches for item in payments if item.status in ("APPROVAL", "DECLINED"))
        none = unknown is not None and unknown["result"] == "none" and bool(unknown["found_before"])
        yield WalkProofs(payments, unknown), found and not denied and none


def test_a_hit_and_an_empty_list_prove_the_search_unless_a_search_missed_a_payment() -> None:
    """A payment that was canceled before it reached the acquirer may be in no index.

    A search that misses such a payment is not a failure.
    """
    rows = list(seen_of_search())
    assert {expected for _, expected in rows} == {False, True}
    for seen, expected in rows:
        assert ("search" in proven(seen)) == expected, seen


def test_abort_is_proven_if_every_aborted_payment_was_canceled() -> None:
    ends = [
        CANCELED._replace(status=status, abort=answer)
        for status, answer in product(STATUSES, [None, *map(str, AbortAnswer)])
    ]
    for first, second in product(ends, [None, *ends]):
        payments = (first,) if second is None else (first, second)
        aborted = [item for item in payments if item.abort is not None]
        expected = bool(aborted) and all(
            (item.abort, item.status) == ("taken", "TERMINAL_CANCELED") for item in aborted
        )
        assert ("abort" in proven(WalkProofs(payments))) == expected, payments


@every(
    ("seen", "part", "code"),
    [
        (ALL._replace(payments=(APPROVED,)), "abort", "not_aborted"),
        (ALL._replace(payments=(CANCELED._replace(abort="nothing_running"),)), "abort", "nothing_ran"),
        (ALL._replace(payments=(CANCELED._replace(abort="not_taken"),)), "abort", "abort_refused"),
        (ALL._replace(payments=(CANCELED._replace(status="APPROVAL"),)), "abort", "not_canceled"),
        (ALL._replace(payments=(APPROVED._replace(searches=("none",)),)), "search", "denied"),
        (ALL._replace(payments=(CANCELED._replace(searches=("none",)),)), "search", "canceled_unknown"),
        (ALL._replace(payments=(CANCELED._replace(searches=("no_answer",)),)), "search", "no_search_answer"),
        (ALL._replace(unknown=None), "search", "not_searched"),
        (ALL._replace(unknown=NONE | {"result": "found"}), "search", "invented"),
        (ALL._replace(unknown=NONE | {"result": "no_answer"}), "search", "no_explicit_none"),
        (ALL._replace(unknown=NONE | {"found_before": False}), "search", "without_serial"),
    ],
)
def test_a_missing_proof_has_its_reason(seen: WalkProofs, part: str, code: str) -> None:
    assert lacking(seen)[part] == code


def test_start_and_callback_are_proven_only_if_every_payment_proves_them() -> None:
    for one, two in product(product((False, True), repeat=2), repeat=2):
        payments = [CANCELED._replace(acknowledged=ack, called_back=back) for ack, back in (one, two)]
        found = proven(WalkProofs(payments))
        assert ("start" in found) == (one[0] and two[0])
        assert ("callback" in found) == (one[1] and two[1])


def test_a_required_signature_is_proven_if_each_end_came_by_a_callback() -> None:
    """A callback without a valid signature is refused, so it is not an event of the payment."""
    unsigned = NONE | {"webhook_signature": ""}
    for unknown, back in product((None, unsigned, NONE), (False, True)):
        found = proven(WalkProofs((CANCELED, APPROVED._replace(called_back=back)), unknown))
        assert ("signature" in found) == (unknown is NONE and back)


def test_an_operator_or_an_approval_proves_the_amount_unit_unless_the_other_contradicts() -> None:
    for shown, exact in product((None, False, True), repeat=2):
        expected = False not in (shown, exact) and True in (shown, exact)
        assert ("amount_unit" in proven(WalkProofs((APPROVED._replace(exact=exact),), NONE, shown))) == expected


def test_printing_is_proven_by_a_printed_page_and_polling_by_a_reply() -> None:
    for accepted, status, asked in product((False, True), (None, "COMPLETED", "FAILED", "PENDING"), (False, True)):
        found = proven(WalkProofs((), None, None, ProvedPrintJob("job", accepted, status, asked)))
        assert ("print" in found) == (accepted and status == "COMPLETED")
        assert ("print_job" in found) == asked
    assert not proven(WalkProofs(()))


def document(result: str, status: str | None, kind: str, **fields: Any) -> dict[str, Any]:
    outcome = {"result": result, "status": status, "authorized_amount": None, "evidence": [{"kind": kind}]} | fields
    return {"client_transaction_id": ID, "attention": [], "outcome": outcome}


HISTORY = [
    {"kind": "intent"},
    {"kind": "attempt", "judgement": "acknowledged"},
    {"kind": "event", "status": "CARD_PRESENTED"},
    {"kind": "abort_requested"},
    {"kind": "abort_answered", "answer": "taken"},
    {"kind": "event", "status": "TERMINAL_CANCELED"},
]


def test_the_observations_of_a_payment_are_read_from_its_record() -> None:
    canceled = document("canceled", "TERMINAL_CANCELED", "event")
    assert payment(canceled, HISTORY, ["found"], Decimal(1)) == CANCELED
    # A payment that only a search has ended has no callback. The terminal has not reported a payment that an operator
    # has ended.
    by_search = payment(document("canceled", "TERMINAL_CANCELED", "search"), HISTORY[:-1], [], Decimal(1))
    assert (by_search.status, by_search.called_back) == ("TERMINAL_CANCELED", False)
    by_person = payment(document("canceled", "TERMINAL_CANCELED", "operator"), HISTORY, [], Decimal(1))
    assert (by_person.status, by_person.called_back) == (None, False)
    refused = payment(
        document("not_started", None, "refusal"), [{"kind": "attempt", "judgement": "refused"}], [], Decimal(1)
    )
    assert refused == ProvedPayment(ID, False, None, False, None, (), None)
    for authorized, code, exact in (("1.00", "gap", True), ("100", "gap", False), ("1.00", "amount_differs", False)):
        approved = document("approved", "APPROVAL", "event", authorized_amount=Decimal(authorized))
        read = payment(approved | {"attention": [{"code": code}]}, HISTORY, [], Decimal(1))
        assert read.exact is exact


def test_the_observations_of_a_print_job_are_read_from_its_record() -> None:
    job = {"print_job_id": "job", "status": "COMPLETED", "decided_by": "webhook"}
    taken = {"kind": "attempt", "judgement": "accepted"}
    for source in ("webhook", "poll"):
        read = print_job({"status": "PENDING", "print_job": job | {"decided_by": source}}, [taken])
        assert read == ProvedPrintJob("job", True, "COMPLETED", True)
    by_person = {"status": None, "print_job": job | {"decided_by": "operator"}}
    doubtful = [{"kind": "attempt", "judgement": "in_doubt"}, {"kind": "webhook"}]
    assert print_job(by_person, doubtful) == ProvedPrintJob("job", False, None, False)
