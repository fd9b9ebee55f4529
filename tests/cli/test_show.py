"""`posd show`, `posd list --attention` and `posd terminals`: the history, the evidence, the advice, and addresses."""

import base64
import json
from pathlib import Path
from typing import Any

from msgspec import to_builtins as encoded

from posd.cli.operate import database as commands
from posd.terminals.identity import steps
from tests.rig.commands import asked, check
from tests.rig.documents import ANSWERS, AT, ID, OTHER_ID, answer, attention, outcome, terminal, transaction
from tests.rig.stub import Answer, problem
from tests.rig.tables import every

PERSON = {"operator": "Ana", "note": "called the bank", "uid": 1000}

#: Documents of the daemon about a payment, and the rows that show its history. Some kinds and verdicts are of a later
#: version.
HISTORY = json.loads(Path(__file__).with_name("history.json").read_text())
RECORDED = [answer({"history": HISTORY["history"]}), answer({"events": HISTORY["events"]})]
UNSENT = outcome(
    "not_started",
    {"kind": "unsent", "reason": "connection refused"},
    supersedes=outcome("declined", {"kind": "operator", **PERSON}),
)
SEARCHED = {"kind": "search", "event_id": "e-1"}
CORRECTED = transaction(
    outcome=outcome("approved", SEARCHED, status="APPROVAL", reached_acquirer=True, supersedes=UNSENT),
    last_search={"at": AT, "result": "found"},
)
CHAIN = "chain\ttransaction\ttype\tamount\tstate\treference"


def test_the_whole_history_is_shown_in_order_as_text() -> None:
    for script, more in (([answer(transaction()), *RECORDED], ()), (RECORDED, ("--history",))):
        done = asked(script, "show", ID, *more)
        head = done.lines.index("time\twhat\tdetails")
        assert [row[1:] for row in done.rows[head + 1 :]] == HISTORY["rows"]
        assert (CHAIN in done.lines, head == 0) == (False, bool(more)), "the payment has no chain"


def test_an_outcome_is_shown_with_its_evidence_and_what_it_corrected() -> None:
    done = asked([answer(CORRECTED), *RECORDED], "show", ID).ends(0, "\nresult: The customer was charged.\n")
    assert [path for _, path, _ in done.sent] == [f"/transactions/{ID}{call}" for call in ("", "/history", "/events")]
    evidence = [line.split(" (") for line in done.lines if line.startswith(("proof: ", "corrected: "))]
    assert [(begin, end.partition("): ")[2]) for begin, end in evidence] == [
        ("proof: the terminal was asked", "event id e-1"),
        ("corrected: was not_started: the request was never sent", "connection refused"),
        ("corrected: was declined: an operator's decision", "by Ana, user id 1000, note: called the bank"),
    ]


# The chain.


REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
MISSING_ID = "7f3c0000-0000-4000-8000-0000000000ff"
VOID_ID, AGAIN_ID = "7f3c0000-0000-4000-8000-000000000003", "7f3c0000-0000-4000-8000-000000000004"
CAPTURE = transaction(type="capture", original=OTHER_ID, derived=[MISSING_ID, VOID_ID], transaction_reference=REFERENCE)
PRE_AUTH = transaction(
    client_transaction_id=OTHER_ID,
    type="pre-auth",
    derived=[AGAIN_ID, ID],
    next_step="done",
    outcome=outcome("approved", {"kind": "event"}, reached_acquirer=True, transaction_reference=REFERENCE),
)
OPEN: dict[str, Any] = {"amount": {}, "phase": "active", "status": "APPROVAL_REQUESTED", "next_step": "wait"}
VOID = transaction(client_transaction_id=VOID_ID, type="void", original=ID, **OPEN)
RE_AUTH = transaction(client_transaction_id=AGAIN_ID, type="re-auth", original=OTHER_ID, **OPEN)


@every(
    ("gone", "state"),
    [
        (problem(404, "not_found", "no such transaction"), "not known here"),
        (problem(503, "storage_unavailable", "the disk is sick"), "the disk is sick"),
    ],
)
def test_a_chain_of_operations_is_a_table_even_if_a_payment_is_missing(gone: Answer, state: str) -> None:
    script = [answer(CAPTURE), answer(PRE_AUTH), gone, answer(VOID), answer(RE_AUTH), *RECORDED]
    done = asked(script, "show", ID).ends(0)
    assert [path.split("/")[2] for _, path, _ in done.sent[:5]] == [ID, OTHER_ID, MISSING_ID, VOID_ID, AGAIN_ID]
    start = done.lines.index(CHAIN)
    assert done.lines[start + 1 : start + 5] == [
        f"original\t{OTHER_ID}\tpre-auth\t11.20\tapproved\t{REFERENCE}",
        f"derived\t{MISSING_ID}\t-\t-\t{state}\t-",
        f"derived\t{VOID_ID}\tvoid\t-\tat the bank\t-",
        f"other\t{AGAIN_ID}\tre-auth\t-\tat the bank\t-",
    ]
    assert {"type: capture", f"transaction_reference: {REFERENCE}"} <= set(done.lines)
    # The void derives from the capture, and belongs to the reservation too.
    script = [answer(PRE_AUTH), answer(RE_AUTH), answer(CAPTURE), gone, answer(VOID), *RECORDED]
    done = asked(script, "show", OTHER_ID).ends(0, f"derived\t{VOID_ID}\tvoid", lacks=["posd capture", "posd void"])
    assert done.lines[done.lines.index("next: Another operation on this reservation is not settled. See it:") + 1] == (
        f"posd show {AGAIN_ID}"
    )


@every(("columns", "first"), [(80, OTHER_ID), (130, f"{OTHER_ID}  pre-auth")])
def test_on_a_screen_the_chain_fits_with_full_ids(columns: int, first: str) -> None:
    script = [answer(CAPTURE), answer(PRE_AUTH), answer(VOID), answer(VOID), answer(RE_AUTH), *RECORDED]
    check(f"show {ID}", script, 0, f"original  {first}", REFERENCE, types="", columns=columns)


# list --attention


def listed(*codes: tuple[str, ...]) -> list[Answer]:
    found = [
        transaction(client_transaction_id=f"{ID[:-2]}{number:02}", attention=[attention(code) for code in each])
        for number, each in enumerate(codes, 1)
    ]
    return [answer({"transactions": found, "next_cursor": None})]


def test_the_list_shows_each_cure_once_with_the_ids_of_its_payments() -> None:
    done = asked(listed(("conflicting_final", "quarantined_event"), ("quarantined_event",)), "list", "--attention")
    assert done.calls[0].path == "/v1/transactions?limit=50&attention=true"
    lines = done.lines
    conflict, aside = lines.index("conflicting_final"), lines.index("quarantined_event")
    assert "Check with the acquirer whether the customer was charged" in lines[conflict + 1]
    assert f"    posd acknowledge {ID} conflicting_final" in lines[conflict:aside]
    assert lines[aside + 2 :] == [
        "    posd quarantine",
        "    posd quarantine --apply",
        f"    posd acknowledge {ID} quarantined_event",
        f"    posd acknowledge {OTHER_ID} quarantined_event",
        "",
        "  more about it: posd explain conflicting_final quarantined_event",
    ]
    many = asked(listed(*[("orphan",)] * 12), "list", "--attention").stdout
    assert (many.count("posd acknowledge "), "the same for 7 more, with their ids" in many) == (5, True)


# Terminals.


def claim(address: str, same: bool, state: str, reason: str) -> dict[str, Any]:
    return {"base_url": address, "same_device": same, "state": state, "reason": reason, "last_seen": ""}


LOST = terminal(reachable=False, reason="nothing listens there")
NOWHERE = terminal("SN-2", base_url=None, source=None, reachable=None, last_seen=None, reason="it has not announced")
CLAIMS = [claim("https://192.0.2.8:1", True, "silent", "off"), claim("https://192.0.2.9:1", False, "refused", "x")]
CLAIMED = terminal("SN-3", claims=CLAIMS)
STRANGER = terminal("SN-4", in_fleet=False, reachable=None)


def test_a_pipe_gets_one_line_for_each_terminal_with_the_reason_at_its_end() -> None:
    done = asked([answer({"terminals": [terminal(), LOST, NOWHERE, CLAIMED, STRANGER]})], "terminals", "--all")
    assert (done.returncode, done.calls[0].path) == (0, "/v1/terminals?all=true&check=true"), done.stderr
    address, also = "https://192.0.2.7:6869", "also announced at https://192.0.2.9:1, which is not trusted: x"
    assert [row[:6] + row[7:] for row in done.rows] == [
        ["serial", "model", "address", "source", "reachable", "payment", "why"],
        ["SN-1", "Brand Model", address, "mdns", "yes", "-", "-"],
        ["SN-1", "Brand Model", address, "mdns", "no", "-", "nothing listens there"],
        ["SN-2", "Brand Model", "no address", "-", "not known", "-", "it has not announced"],
        ["SN-3", "Brand Model", address, "mdns", "yes", "-", also],
        ["SN-4 (not in the fleet)", "Brand Model", address, "mdns", "not known", "-", "-"],
    ]


def test_the_reason_of_an_identity_conflict_is_shown() -> None:
    """The terminal has one address. The device at this address may be another terminal."""
    claimed = {"base_url": "https://192.0.2.7", "source": "config", "since": AT, "proof": "none"}
    identity = {"proof": "none", "conflict": True, "claims": [claimed]}
    swapped = {"serial": "SN-1", "base_url": "https://192.0.2.7", "reachable": True, "identity": identity}
    why = "the device at https://192.0.2.7 says that it is terminal SN-2, not SN-1: no payment is sent there"
    health: dict[str, Any] = {"status": "degraded", "detail": why, "commands": encoded(steps("SN-1", "SN-2"))}
    script = [
        answer({"terminals": []}),
        answer(swapped),
        answer({"status": "degraded", "checks": {"identity": health}}),
    ]
    cure = "write SN-2 in place of"
    done = asked(script, "terminals", "identity", "SN-1").ends(1, why, cure)
    assert done.stdout.count("posd terminals identity SN-1 --base-url URL") == 1
    health["commands"] = encoded(steps("SN-1"))
    script[2] = answer({"status": "degraded", "checks": {"identity": health}})
    advice = "and decide:\n  posd terminals identity SN-1 --base-url URL"
    done = asked(script, "terminals", "identity", "SN-1").ends(1, advice)
    assert done.stdout.count("posd terminals identity SN-1") == 1, "the command that was typed is not advice"


@every(
    ("url", "fields", "words", "lacks"),
    [
        (
            "https://192.0.2.7",
            {"reachable": False, "reason": "it may be another device: posd terminals pin SN-1"},
            ["pinned\t-\n", "Terminal SN-1: it may be another device: posd terminals pin SN-1"],
            ["proves its identity", "yes"],
        ),
        ("https://192.0.2.7", {"reachable": True}, ["pinned\tyes\n", "pinned certificate proves"], []),
        ("http://192.0.2.7", {"reachable": True, "proof": "none"}, ["without TLS"], ["posd terminals pin"]),
    ],
)
def test_the_shown_identity_is_that_of_the_device_that_answers_now(
    url: str, fields: dict[str, Any], words: list[str], lacks: list[str]
) -> None:
    proof = fields.get("proof", "pinned")
    claims = [{"base_url": url, "source": "config", "since": AT, "proof": proof}]
    one = {"serial": "SN-1", "base_url": url, "identity": {"proof": proof, "conflict": False, "claims": claims}}
    script = [answer({"terminals": []}), answer(one | fields)]
    check("terminals identity SN-1", script, 0, *words, lacks=lacks)


# Quarantine. A quarantined message does not control the screen that shows it. Reprocess reports its corrections.


REASON = "serial SN-9 is neither in the fleet nor that of an open transaction"


def entry(number: int, body: bytes = b"{}", **fields: Any) -> dict[str, Any]:
    own = {"id": number, "reason": REASON, "peer": "192.168.100.120", "body": base64.b64encode(body).decode()}
    return ANSWERS["list_quarantine"]["200"]["quarantine"][0] | {"client_transaction_id": ID} | own | fields


def page(*entries: dict[str, Any]) -> Answer:
    return answer({"quarantine": list(entries), "next_after": entries[-1]["id"] if entries else 7})


@every(
    ("body", "lines"),
    [
        (b'{"amount":{"iva":1.20},"n":1e2}', ["{", '  "amount": {', '    "iva": 1.20', "  },", '  "n": 1e2', "}"]),
        (b"<html>\r\n\x1b[2J caf\xc3\xa9\x07", ["<html>\\r", "\\u001b[2J café\\u0007"]),
        ('{"a":"\u009b2J\u202e\x7f"}'.encode(), ["{", '  "a": "\\u009b2J\\u202e\\u007f"', "}"]),
        (b'{"half":', ['{"half":']),
        (b"[" * 5000, ["[" * 5000]),
        (b"", [""]),
        (
            b"\xff\x1b[2J" + b"0123456789abcdef",
            [
                "00000000  ff 1b 5b 32 4a 30 31 32 33 34 35 36 37 38 39 61  |..[2J0123456789a|",
                "00000010  62 63 64 65 66                                   |bcdef|",
            ],
        ),
    ],
)
def test_a_body_is_shown_as_json_or_as_escaped_text_or_as_a_hex_dump(body: bytes, lines: list[str]) -> None:
    done = asked([answer(entry(12, body))], "quarantine", "12")
    assert (done.returncode, done.calls[0].path, done.lines[0]) == (0, "/v1/quarantine/12", "set aside")
    assert f"reason: {REASON}" in done.lines
    shown = done.lines[done.lines.index(f"body: {len(body)} bytes:") + 1 :]
    assert shown == [commands.MARGIN + line for line in lines]


# Reprocess.


def result(**fields: Any) -> dict[str, Any]:
    example = ANSWERS["reprocess"]["200"]
    own = {"transactions": 120, "skipped": 2, "quarantined": 0, "differing": len(fields.get("differences", ()))}
    return example | own | {"printing": example["printing"] | {"print_jobs": 30}} | fields


def declined(card: str) -> dict[str, Any]:
    return {"outcome": {"result": "declined", "receipt": {"franchise": "VISA", "card_type": card}}}


DIFFERENCE = {
    "client_transaction_id": ID,
    "fields": ["phase", "outcome"],
    "before": {"phase": "in_doubt", "outcome": None},
    "after": {"phase": "final", "outcome": {"result": "approved", "authorized_amount": 11.20, "supersedes": None}},
}
CHANGED = {"client_transaction_id": OTHER_ID, "fields": ["outcome"]}
CHANGED |= {"before": declined("credit"), "after": declined("debit")}


def test_reprocess_shows_its_corrections_and_exits_1() -> None:
    applied = [{"id": n, "client_transaction_id": ID, "verdict": verdict} for n, verdict in ((3, "applied"), (4, None))]
    told = f"messages applied: 2, still in quarantine: 4 (posd quarantine)\nid\tabout\tverdict\n3\t{ID}\tapplied\n"
    words = [
        "payments checked: 120, print jobs: 30\n",
        "too short to check: 2\n",
        f"4\t{ID}\tknown\nEvery checked record matches its messages.\n",
    ]
    good = [answer(result(applied=applied, quarantined=4))]
    check("reprocess", good, 0, told, *words, sent=[("POST", "/reprocess", None)], as_json=True)

    rows = ("phase\tin_doubt\tfinal\n", "outcome.result\t-\tapproved\n", "outcome.authorized_amount\t-\t11.2\n")
    words = [*(f"{ID}\t{row}" for row in rows), f"{OTHER_ID}\toutcome.receipt.card_type\tcredit\tdebit\n"]
    corrected = [answer(result(differences=[DIFFERENCE, CHANGED]))]
    shown = ("\nabout\tfield\tbefore\tafter\n", f"\n    posd show {ID}\n    posd show {OTHER_ID}\n")
    check("reprocess", corrected, 1, *words, *shown, lacks=["Every checked record matches its messages."], as_json=True)

    job = {"print_job_id": "receipt-1042"}
    difference = job | {"fields": ["status"], "before": {"status": "FAILED"}, "after": {}}
    found = {"print_jobs": 1, "applied": [job | {"id": 7, "verdict": "applied"}], "differences": [difference]}
    words = ("7\treceipt-1042\tapplied\n", "were corrected: print jobs: 1\n", "receipt-1042\tstatus\tFAILED\t-\n")
    printing = [answer(result(printing=found | {"differing": 1}))]
    check("reprocess", printing, 1, *words, "    posd show receipt-1042\n")
