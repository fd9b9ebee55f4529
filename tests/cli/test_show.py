"""`posd show` and `posd list --attention`: the history, the evidence, and the advice of a payment."""

from typing import Any

from tests.cli.documents import AT, ID, OTHER_ID, answer, attention, outcome, transaction
from tests.cli.processes import Done, asked, asked_on_terminal
from tests.cli.stub import Answer, problem
from tests.support.tables import every

PERSON = {"operator": "Ana", "note": "called the bank", "uid": 1000}

#: An entry of the history -> text and details.
HISTORY: list[tuple[dict[str, Any], str, str]] = [
    (
        {"kind": "attempt", "judgement": "refused", "http_status": 422, "reason": "bad"},
        "sent: the terminal refused it",
        "HTTP 422, bad",
    ),
    ({"kind": "event", "seq": 7, "status": "CARD_PRESENTED", "verdict": "applied"}, "event CARD_PRESENTED", "CHIP"),
    (
        {"kind": "event", "seq": 8, "status": "DECLINED", "verdict": "after_final"},
        "event DECLINED",
        "no funds (bank 51), arrived after the end",
    ),
    ({"kind": "abort_requested", "uid": 1000, "probe": False}, "abort asked for", "user id 1000"),
    ({"kind": "stalled", "seconds": 60.5}, "no report of the terminal for 60.5 s", ""),
    (
        {"kind": "resolve", **PERSON, "result": "approved", "transaction_reference": OTHER_ID},
        "decided by a person: approved",
        f"by Ana, user id 1000, reference {OTHER_ID}, note: called the bank",
    ),
    (
        {"kind": "moon_{phase}", "phase": "full", "n": 3, "ok": True, "nothing": None, "na{me": [1, 2]},
        "moon_{phase}",
        "phase full, n 3, ok yes, na{me 1, 2",
    ),
    ({"kind": "attempt", "judgement": "puzzled", "reason": None}, "attempt", "judgement puzzled"),
    ({"kind": "search", "result": None}, "search", ""),
    ({"kind": "event", "seq": 9, "status": "PAID", "verdict": "new_verdict"}, "event PAID", "verdict new_verdict"),
]
EVENTS = [
    {"seq": 7, "received_at": AT, "verdict": "applied", "event": {"status": "CARD_PRESENTED", "reading_type": "CHIP"}},
    {
        "seq": 8,
        "received_at": AT,
        "verdict": "after_final",
        "event": {"status": "DECLINED", "failure_reason": {"type": "bank", "code": "51", "message": "no funds"}},
    },
    {"seq": 9, "received_at": AT, "verdict": "new_verdict", "event": {"status": "PAID"}},
]
JOURNAL = {"history": [{"at": AT, **entry} for entry, _, _ in HISTORY]}
RECORDED = [answer(JOURNAL), answer({"events": EVENTS})]
CORRECTED = transaction(
    outcome=outcome(
        "approved",
        {"kind": "search", "event_id": "e-1"},
        status="APPROVAL",
        reached_acquirer=True,
        supersedes=outcome(
            "not_started",
            {"kind": "unsent", "reason": "connection refused"},
            supersedes=outcome("declined", {"kind": "operator", **PERSON}),
        ),
    ),
    attention=[attention("outcome_corrected", "the outcome was not_started by inference; the terminal says approved")],
    last_search={"at": AT, "result": "found"},
)
CHAIN = "chain\ttransaction\ttype\tamount\tstate\treference"
TABLE = [[what, details] for _, what, details in HISTORY]


def show(document: dict[str, Any]) -> list[str]:
    done = asked([answer(document), *RECORDED], "show", ID)
    assert done.returncode == 0, done.stderr
    assert [path.removeprefix(f"/transactions/{ID}") for _, path, _ in done.sent] == ["", "/history", "/events"]
    return done.lines


def table(done: Done) -> list[list[str]]:
    return [row[1:] for row in done.rows[done.lines.index("time\twhat\tdetails") + 1 :]]


def test_the_whole_history_is_shown_in_order_as_text() -> None:
    done = asked([answer(transaction()), *RECORDED], "show", ID)
    assert CHAIN not in done.lines, "the payment has no chain"
    assert table(done) == TABLE
    alone = asked(RECORDED, "show", ID, "--history")
    assert (table(alone), alone.lines[0]) == (TABLE, "time\twhat\tdetails")


def test_the_outcome_has_its_evidence_and_the_corrected_outcome() -> None:
    lines = show(CORRECTED)
    assert "result: The customer was charged." in lines
    labels = [line.split(": ")[0] for line in lines]
    proof = lines[labels.index("proof")]
    assert proof.startswith("proof: the terminal was asked (")
    assert proof.endswith("): event id e-1")
    first = labels.index("corrected")
    assert lines[first].startswith("corrected: was not_started: the request was never sent (")
    assert lines[first].endswith("): connection refused")
    assert lines[first + 1].startswith("corrected: was declined: an operator's decision (")
    assert lines[first + 1].endswith("): by Ana, user id 1000, note: called the bank")


# The chain.


REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
MISSING_ID = "7f3c0000-0000-4000-8000-0000000000ff"
CAPTURE = transaction(type="capture", original=OTHER_ID, derived=[MISSING_ID, ID], transaction_reference=REFERENCE)
PRE_AUTH = transaction(
    client_transaction_id=OTHER_ID,
    type="pre-auth",
    outcome=outcome("approved", {"kind": "event"}, reached_acquirer=True, transaction_reference=REFERENCE),
)
VOID = transaction(type="void", amount={}, phase="active", status="APPROVAL_REQUESTED")


@every(
    ("gone", "state"),
    [
        (problem(404, "not_found", "no such transaction"), "not known here"),
        (problem(503, "storage_unavailable", "the disk is sick"), "the disk is sick"),
    ],
)
def test_the_chain_is_a_table_even_if_a_payment_is_missing(gone: Answer, state: str) -> None:
    done = asked([answer(CAPTURE), answer(PRE_AUTH), gone, answer(VOID), *RECORDED], "show", ID)
    assert done.returncode == 0, done.stderr
    assert [path.split("/")[2] for _, path, _ in done.sent[:4]] == [ID, OTHER_ID, MISSING_ID, ID]
    start = done.lines.index(CHAIN)
    assert done.lines[start + 1 : start + 4] == [
        f"original\t{OTHER_ID}\tpre-auth\t11.20\tapproved\t{REFERENCE}",
        f"derived\t{MISSING_ID}\t-\t-\t{state}\t-",
        f"derived\t{ID}\tvoid\t-\tat the bank\t-",
    ]
    assert {"type: capture", f"transaction_reference: {REFERENCE}"} <= set(done.lines)


@every(("columns", "first"), [(80, OTHER_ID), (130, f"{OTHER_ID}  pre-auth")])
def test_on_a_terminal_the_chain_fits_with_whole_ids(columns: int, first: str) -> None:
    script = [answer(CAPTURE), answer(PRE_AUTH), answer(VOID), answer(VOID), *RECORDED]
    seen = asked_on_terminal(script, "show", ID, columns=columns)
    assert (seen.returncode, seen.fits(columns)) == (0, True)
    assert f"original  {first}" in seen.screen
    assert REFERENCE in seen.screen


# list --attention


def listed(*transactions: dict[str, Any]) -> list[Answer]:
    return [answer({"transactions": list(transactions), "next_cursor": None})]


def numbered(number: int, *codes: str) -> dict[str, Any]:
    return transaction(client_transaction_id=f"{ID[:-2]}{number:02}", attention=[attention(code) for code in codes])


def test_the_list_shows_the_cure_of_each_attention_once_with_the_ids() -> None:
    first, second = numbered(1, "conflicting_final", "quarantined_event"), numbered(2, "quarantined_event")
    done = asked(listed(first, second), "list", "--attention")
    assert done.calls[0].path == "/v1/transactions?limit=50&attention=true"
    lines = done.lines
    assert lines[3] == ""
    conflict, aside = lines.index("conflicting_final"), lines.index("quarantined_event")
    assert "Check with the acquirer whether the customer was charged" in lines[conflict + 1]
    assert f"    posd acknowledge {ID} conflicting_final" in lines[conflict:aside]
    assert lines[aside + 2 :] == [
        "    posd quarantine",
        "    posd reprocess",
        f"    posd acknowledge {ID} quarantined_event",
        f"    posd acknowledge {OTHER_ID} quarantined_event",
        "",
        "  more about it: posd explain conflicting_final quarantined_event",
    ]
    assert sum("is in quarantine" in line for line in lines) == 1


def test_the_number_of_repeated_commands_is_limited() -> None:
    done = asked(listed(*(numbered(number, "orphan") for number in range(12))), "list", "--attention")
    assert done.stdout.count("posd acknowledge ") == 5
    assert "the same for 7 more, with their ids" in done.stdout
