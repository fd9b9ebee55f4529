"""Every line that a history can have keeps its form and matches the description. Rare lines are included."""

import json
from typing import Any, get_args

import pytest

from posd.base.json_types import encode
from posd.base.operations import OperationType
from posd.payments import documents, entries
from posd.payments.answers import SearchFailed, SearchHit, SearchMiss
from posd.payments.model import AttentionCode, Evidence, EvidenceKind, Result, Transaction
from posd.printing import documents as print_views
from posd.printing import entries as print_entries
from posd.printing.model import JobReport, PrintAttentionCode, PrintStatus
from posd.printing.wire import NoAnswer as NoPollAnswer
from posd.printing.wire import PollAnswered
from posd.records.model import Phase
from posd.terminals.attempt import NotSent, Replied, ReplyLost
from tests.rig.described import described

DESCRIBED = described()
AT = "2026-11-20T10:42:03.120Z"
ID = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
TRANSACTION = Transaction(
    client_transaction_id=ID,
    terminal="SN-1",
    type=OperationType.CHARGE,
    created_at=AT,
    updated_at=AT,
    phase=Phase.ACTIVE,
)
WHO = {"operator": "Ana", "note": "n", "uid": 1000}
NO_ERRORS = {"error_code": None, "error_message": None}

#: Entry -> members of its line after `at`, in this order.
LINES: list[tuple[Any, dict[str, Any]]] = [
    (
        entries.Attempted(NotSent("no way")),
        {"kind": "attempt", "judgement": "unsent", "http_status": None, "reason": "no way"},
    ),
    (
        entries.Attempted(Replied(500, b"")),
        {"kind": "attempt", "judgement": "in_doubt", "http_status": 500, "reason": None},
    ),
    (entries.Interrupted(), {"kind": "interrupted"}),
    (
        entries.Searched(SearchFailed("HTML", 200)),
        {"kind": "search", "result": "no_answer", "http_status": 200, "reason": "HTML"},
    ),
    (entries.Searched(SearchHit(())), {"kind": "search", "result": "found", "http_status": None, "reason": None}),
    (entries.Searched(SearchMiss()), {"kind": "search", "result": "none", "http_status": None, "reason": None}),
    (entries.AbortRequested(probe=True), {"kind": "abort_requested", "probe": True, "uid": None}),
    (
        entries.AbortAnswered(ReplyLost("reset")),
        {"kind": "abort_answered", "answer": "unknown", "http_status": None, "reason": "reset"},
    ),
    (
        entries.Unlikely(("asked for 112.00, authorized 0.01",), by_sum=True),
        {"kind": "approval_unlikely", "reasons": ["asked for 112.00, authorized 0.01"], "by_sum": True},
    ),
    (entries.Quarantined("why"), {"kind": "quarantined", "reason": "why"}),
    (entries.NothingHeard(AttentionCode.NO_CALLBACK, 10.5), {"kind": "no_callback", "seconds": 10.5}),
    (entries.NothingHeard(AttentionCode.STALLED, 300.0), {"kind": "stalled", "seconds": 300.0}),
    (
        entries.ProvedNotStarted((Evidence(kind=EvidenceKind.SEARCH, at=AT, result="none"),)),
        {"kind": "proof", "evidence": [{"kind": "search", "at": AT, "result": "none"}]},
    ),
    (entries.Released("Ana", "n", 1000), {"kind": "release", **WHO}),
    (
        entries.Resolved("Ana", "n", 1000, Result.APPROVED, ID),
        {"kind": "resolve", **WHO, "result": "approved", "transaction_reference": ID},
    ),
    (entries.Dismissed("Ana", "n", 1000, AttentionCode.GAP), {"kind": "acknowledge", **WHO, "code": "gap"}),
    (entries.CallbackBrokeOff(), {"kind": "callback_broke_off"}),
    (entries.Overrun(), {"kind": "event_limit"}),
    (entries.TakenOver("why"), {"kind": "taken_over", "reason": "why"}),
    (entries.Reapplied(), {"kind": "reapplied"}),
    (entries.AddressLost("192.0.2.1"), {"kind": "address_changed", "host": "192.0.2.1"}),
    (entries.AddressBack("192.0.2.1"), {"kind": "address_back", "host": "192.0.2.1"}),
    (entries.Disputed("why"), {"kind": "identity_conflict", "reason": "why"}),
    (entries.Undisputed(), {"kind": "identity_settled"}),
    (entries.OutcomeUnread(), {"kind": "outcome_unread"}),
    (entries.OutcomeRead(), {"kind": "outcome_read"}),
]
PRINT_LINES: list[tuple[Any, dict[str, Any]]] = [
    (print_entries.Turn(), {"kind": "turn"}),
    (print_entries.Turn("https://192.0.2.1"), {"kind": "turn", "sent_to": "https://192.0.2.1"}),
    (
        print_entries.Created(ReplyLost("reset")),
        {"kind": "attempt", "judgement": "in_doubt", "http_status": None, "reason": "reset"},
    ),
    (print_entries.Interrupted(in_line=True), {"kind": "interrupted", "in_line": True}),
    (
        print_entries.Called(b'{"printJobId": "j", "status": "FAILED", "errorCode": "E"}'),
        {
            "kind": "webhook",
            "status": "FAILED",
            "error_code": "E",
            "error_message": None,
            "body": {"printJobId": "j", "status": "FAILED", "errorCode": "E"},
        },
    ),
    (print_entries.Polled(PollAnswered(JobReport("PENDING"))), {"kind": "poll", "status": "PENDING", **NO_ERRORS}),
    (
        print_entries.Polled(NoPollAnswer("HTML", 404)),
        {"kind": "poll", "answer": {"type": "no_answer", "reason": "HTML", "status": 404}},
    ),
    (print_entries.Stuck(300.0), {"kind": "print_stuck", "seconds": 300.0}),
    (print_entries.Quarantined("why"), {"kind": "quarantined", "reason": "why"}),
    (print_entries.Reapplied(), {"kind": "reapplied"}),
    (
        print_entries.Resolved("Ana", "n", 1000, PrintStatus.COMPLETED),
        {"kind": "resolve", **WHO, "result": "COMPLETED"},
    ),
    (
        print_entries.Dismissed("Ana", "n", None, PrintAttentionCode.PRINT_STUCK),
        {"kind": "acknowledge", **WHO, "uid": None, "code": "print_stuck"},
    ),
    (print_entries.TakenOver("why"), {"kind": "taken_over", "reason": "why"}),
]


def check(line: Any, expected: dict[str, Any], page: str) -> None:
    text = encode({"history": [line]})
    (written,) = json.loads(text)["history"]
    assert json.dumps(written) == json.dumps({"at": AT} | expected), (
        "names, order and values of the members must be equal"
    )
    assert DESCRIBED.errors(DESCRIBED.document["components"]["schemas"][page], json.loads(text)) == []


@pytest.mark.parametrize(("entry", "expected"), LINES, ids=lambda value: getattr(value, "get", lambda _: "")("kind"))
def test_a_line_of_a_payment_has_its_members(entry: Any, expected: dict[str, Any]) -> None:
    check(documents.line(AT, entry, TRANSACTION), expected, "History")


@pytest.mark.parametrize(
    ("entry", "expected"), PRINT_LINES, ids=lambda value: getattr(value, "get", lambda _: "")("kind")
)
def test_a_line_of_a_print_job_has_its_members(entry: Any, expected: dict[str, Any]) -> None:
    check(print_views.line(AT, entry), expected, "PrintHistory")


def test_the_table_has_every_entry() -> None:
    assert {type(entry) for entry, _ in LINES} == set(get_args(entries.Entry))
    assert {type(entry) for entry, _ in PRINT_LINES} == set(get_args(print_entries.Entry))
