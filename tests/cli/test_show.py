"""`posd show` and `posd list --attention`: the history, the evidence, and the advice."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from posd.cli.payments.words import details, evidence_text
from tests.cli.documents import AT, ID, OTHER_ID, answer, attention, outcome, transaction
from tests.cli.processes import posd, posd_on_terminal
from tests.cli.stub import Answer, Stub, problem

PERSON = {"operator": "Ana", "note": "called the bank", "uid": 1000}

#: an entry of the history -> its words, and its details.
HISTORY = [
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


def show(tmp_path: Path, document: dict[str, Any], *arguments: str) -> list[str]:
    with Stub(tmp_path / "s", [answer(document), answer(JOURNAL), answer({"events": EVENTS})]) as stub:
        done = posd("show", ID, *arguments, socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    path = f"/v1/transactions/{ID}"
    assert [call.path for call in stub.calls] == [path, f"{path}/history", f"{path}/events"]
    return done.stdout.splitlines()


def test_the_whole_history_is_told_in_order_and_in_words(tmp_path: Path) -> None:
    lines = show(tmp_path, transaction())
    assert COLUMNS not in lines, "it has no chain"
    table = lines[lines.index("time\twhat\tdetails") + 1 :]
    assert [tuple(line.split("\t")[1:]) for line in table] == [(what, details) for _, what, details in HISTORY]


def test_the_outcome_tells_its_proof_and_what_it_corrected(tmp_path: Path) -> None:
    lines = show(tmp_path, CORRECTED)
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


def test_each_attention_comes_with_its_reason_and_what_to_do(tmp_path: Path) -> None:
    lines = show(tmp_path, CORRECTED)
    code = lines.index(
        "attention outcome_corrected: the outcome was not_started by inference; the terminal says approved"
    )
    assert "Correct both" in lines[code + 1]
    assert lines[code + 2 : code + 4] == [f"    posd show {ID}", f"    posd acknowledge {ID} outcome_corrected"]
    assert any(line.startswith("last_search: ") and line.endswith("it knows it") for line in lines)


def test_evidence_names_all_that_it_rests_on() -> None:
    refusal = {"kind": "refusal", "at": AT, "event_id": None, "status": 409, "body": '{"busy":1}'}
    assert evidence_text(refusal).endswith('): HTTP 409, it replied: {"busy":1}')
    assert evidence_text({"kind": "oracle", "at": AT, "bird": "crow"}).startswith("oracle (")
    proof = {"kind": "proof", "evidence": [{"kind": "abort", "at": AT, "status": 409}, {"kind": "search", "at": AT}]}
    text = details(proof)
    assert text.startswith("the terminal was asked to abort, and ran nothing (")
    assert ": HTTP 409; the terminal was asked (" in text


def test_the_history_alone(tmp_path: Path) -> None:
    with Stub(
        tmp_path / "s", [answer(JOURNAL), answer({"events": EVENTS}), answer(JOURNAL), answer(CORRECTED)]
    ) as stub:
        people = posd("show", ID, "--history", socket=tmp_path / "s")
        program = posd("show", ID, "--history", "--json", socket=tmp_path / "s")
        whole = posd("show", ID, "--json", socket=tmp_path / "s")
    paths = [call.path.removeprefix(f"/v1/transactions/{ID}") for call in stub.calls]
    assert paths == ["/history", "/events", "/history", ""]
    assert people.stdout.splitlines()[0] == "time\twhat\tdetails"
    assert len(people.stdout.splitlines()) == len(HISTORY) + 1
    assert json.loads(program.stdout) == JOURNAL
    assert json.loads(whole.stdout) == CORRECTED


def test_on_a_terminal_it_fits(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(CORRECTED), answer(JOURNAL), answer({"events": EVENTS})]):
        seen = posd_on_terminal("show", ID, socket=tmp_path / "s")
    assert seen.returncode == 0
    assert f"    posd acknowledge {ID} outcome_corrected\n" in seen.screen
    assert "was declined: an operator's decision" in " ".join(seen.screen.replace("│", " ").split())
    assert all(cell_len(line) <= 80 for line in seen.screen.split("\n"))


# the chain


REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
MISSING_ID = "7f3c0000-0000-4000-8000-0000000000ff"
CAPTURE = transaction(type="capture", original=OTHER_ID, derived=[MISSING_ID, ID], transaction_reference=REFERENCE)
PRE_AUTH = transaction(
    client_transaction_id=OTHER_ID,
    type="pre-auth",
    outcome=outcome("approved", {"kind": "event"}, reached_acquirer=True, transaction_reference=REFERENCE),
)
VOID = transaction(type="void", amount={}, phase="active", status="APPROVAL_REQUESTED")
COLUMNS = "chain\ttransaction\ttype\tamount\tstate\treference"


@pytest.mark.parametrize(
    ("gone", "state"),
    [
        (problem(404, "not_found", "no such transaction"), "not known here"),
        (problem(503, "storage_unavailable", "the disk is sick"), "the disk is sick"),
    ],
    ids=["unknown", "trouble"],
)
def test_the_chain_is_a_table_and_one_that_is_missing_does_not_stop_it(
    tmp_path: Path, gone: Answer, state: str
) -> None:
    script = [answer(CAPTURE), answer(PRE_AUTH), gone, answer(VOID), answer(JOURNAL), answer({"events": EVENTS})]
    with Stub(tmp_path / "s", script) as stub:
        done = posd("show", ID, socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert [call.path.split("/")[3] for call in stub.calls[:4]] == [ID, OTHER_ID, MISSING_ID, ID]
    lines = done.stdout.splitlines()
    start = lines.index(COLUMNS)
    assert lines[start + 1 : start + 4] == [
        f"original\t{OTHER_ID}\tpre-auth\t11.20\tapproved\t{REFERENCE}",
        f"derived\t{MISSING_ID}\t-\t-\t{state}\t-",
        f"derived\t{ID}\tvoid\t-\tat the bank\t-",
    ]
    assert "type: capture" in lines
    assert f"transaction_reference: {REFERENCE}" in lines


def test_on_a_terminal_the_chain_fits_with_whole_ids(tmp_path: Path) -> None:
    for columns, first in ((80, OTHER_ID), (130, f"{OTHER_ID}  pre-auth")):
        script = [
            answer(CAPTURE),
            answer(PRE_AUTH),
            answer(VOID),
            answer(VOID),
            answer(JOURNAL),
            answer({"events": []}),
        ]
        with Stub(tmp_path / "s", script):
            seen = posd_on_terminal("show", ID, socket=tmp_path / "s", columns=columns)
        assert seen.returncode == 0
        assert f"original  {first}" in seen.screen
        assert REFERENCE in seen.screen
        assert all(cell_len(line) <= columns for line in seen.screen.split("\n"))


# list --attention


def listed(*transactions: dict[str, Any]) -> dict[str, Any]:
    return {"transactions": list(transactions), "next_cursor": None}


def numbered(number: int, *codes: str) -> dict[str, Any]:
    return transaction(client_transaction_id=f"{ID[:-2]}{number:02}", attention=[attention(code) for code in codes])


def test_the_list_says_once_for_each_attention_what_to_do_with_the_ids(tmp_path: Path) -> None:
    first, second = numbered(1, "conflicting_final", "quarantined_event"), numbered(2, "quarantined_event")
    with Stub(tmp_path / "s", [answer(listed(first, second))]) as stub:
        done = posd("list", "--attention", socket=tmp_path / "s")
    assert stub.calls[0].path == "/v1/transactions?limit=50&attention=true"
    lines = done.stdout.splitlines()
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


def test_what_is_true_of_one_type_alone_is_said_for_it_alone(tmp_path: Path) -> None:
    codes = ("conflicting_final", "event_id_reused")
    charge, void = numbered(1, *codes), {**numbered(2, *codes), "type": "void"}
    with Stub(tmp_path / "s", [answer(listed(charge, void))]):
        done = posd("list", "--attention", socket=tmp_path / "s")
    text = done.stdout
    assert "whether the customer was charged, and how often; void the second approval" in text
    assert "whether the original was reversed, and how often; ask the acquirer to correct" in text
    first, second = (text.index(f"posd acknowledge {each} conflicting_final") for each in (ID, OTHER_ID))
    assert text.index("void the second approval") < first < text.index("ask the acquirer to correct") < second


def test_on_a_narrow_terminal_the_list_keeps_every_word_whole(tmp_path: Path) -> None:
    ended = outcome("not_started", {"kind": "unsent"})
    page = listed(transaction(type="pre-auth", terminal="SN-0000001234", outcome=ended))
    with Stub(tmp_path / "s", [answer(page), answer(page)]):
        narrow = posd_on_terminal("list", socket=tmp_path / "s")
        wide = posd_on_terminal("list", socket=tmp_path / "s", columns=130)
    assert narrow.screen.splitlines()[2].split()[3:] == [
        ID[:8],
        "SN-0000001234",
        "pre-auth",
        "11.20",
        "not_started",
    ]
    assert wide.screen.splitlines()[2].split()[3:8] == [ID, "SN-0000001234", "pre-auth", "11.20", "not_started"]
    assert all(cell_len(line) <= 80 for line in narrow.screen.split("\n"))


def test_the_commands_are_not_repeated_without_end(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(listed(*(numbered(number, "orphan") for number in range(12))))]):
        done = posd("list", "--attention", socket=tmp_path / "s")
    assert done.stdout.count("posd acknowledge ") == 5
    assert "the same for 7 more, with their ids" in done.stdout


def test_only_the_list_of_attention_says_what_to_do(tmp_path: Path) -> None:
    page = listed(numbered(1, "orphan"))
    with Stub(tmp_path / "s", [answer(page), answer(page), answer(page)]):
        plain = posd("list", socket=tmp_path / "s")
        program = posd("list", "--attention", "--json", socket=tmp_path / "s")
        seen = posd_on_terminal("list", "--attention", socket=tmp_path / "s")
    assert "posd acknowledge" not in plain.stdout
    assert json.loads(program.stdout) == page
    assert f"    posd acknowledge {ID} orphan\n" in seen.screen
    assert all(cell_len(line) <= 80 for line in seen.screen.split("\n"))
