"""A quarantined message does not control the screen that shows it. Reprocess reports its corrections."""

import base64
from typing import Any

from posd.cli.operate import database as commands
from tests.cli.documents import AT, ID, OTHER_ID, answer
from tests.cli.processes import asked
from tests.cli.stub import Answer
from tests.support.tables import every

REASON = "serial SN-9 is neither in the fleet nor that of an open transaction"


def entry(number: int, body: bytes = b"{}", **fields: Any) -> dict[str, Any]:
    document = {
        "id": number,
        "received_at": AT,
        "channel": "transactions",
        "client_transaction_id": ID,
        "print_job_id": None,
        "reason": REASON,
        "peer": "192.168.100.120",
        "body": base64.b64encode(body).decode(),
    }
    return document | fields


def page(*entries: dict[str, Any]) -> Answer:
    return answer({"quarantine": list(entries), "next_after": entries[-1]["id"] if entries else 7})


def test_the_table_has_one_row_for_each_message() -> None:
    printed = {"channel": "print-jobs", "client_transaction_id": None, "print_job_id": "receipt-1042"}
    wrong = entry(7, reason="not\ta\tJSON text", **printed)
    done = asked([page(entry(3, b"x" * 1000), wrong, entry(9) | printed | {"print_job_id": None})], "quarantine")
    assert (done.returncode, done.calls[0].path) == (0, "/v1/quarantine?limit=50&after=0")
    head, payment, job, nothing = done.rows
    assert head == ["id", "received", "channel", "about", "peer", "bytes", "reason"]
    assert (payment[0], payment[2:]) == ("3", ["payment", ID, "192.168.100.120", "1000", REASON])
    assert (job[2:4], job[5:]) == (["print", "receipt-1042"], ["2", r"not\ta\tJSON text"])
    assert nothing[2:4] == ["print", "-"]
    assert "posd quarantine 3;" in done.stderr
    assert "--all" not in done.stderr


def test_all_asks_for_pages_until_an_empty_one() -> None:
    script = [page(entry(3), entry(7)), page(entry(9)), page()]
    done, program = (asked(script, "quarantine", "--all", "--limit", "2", *more) for more in ((), ("--json",)))
    for calls in (done.calls, program.calls):
        assert [call.path.split("?")[1] for call in calls] == [f"limit=2&after={after}" for after in (0, 7, 9)]
    assert [row[0] for row in done.rows[1:]] == ["3", "7", "9"]
    assert program.lines == [reply.body.decode() for reply in script[:2]]
    first = asked(script[:1], "quarantine", "--limit", "2")
    assert ("--all" in done.stderr, "--all" in first.stderr) == (False, True)
    assert asked([page()], "quarantine", "--json", "--all").document == {"quarantine": [], "next_after": 7}


@every(
    ("body", "lines"),
    [
        (
            b'{"amount":{"iva":1.20},"n":1e2}',
            ["{", '  "amount": {', '    "iva": 1.20', "  },", '  "n": 1e2', "}"],
        ),
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
def test_a_body_is_shown_as_json_escaped_text_or_a_hex_dump(body: bytes, lines: list[str]) -> None:
    done = asked([answer(entry(12, body))], "quarantine", "12")
    assert (done.returncode, done.calls[0].path, done.lines[0]) == (0, "/v1/quarantine/12", "set aside")
    assert f"reason: {REASON}" in done.lines
    shown = done.lines[done.lines.index(f"body: {len(body)} bytes:") + 1 :]
    assert shown == [commands.MARGIN + line for line in lines]


# Reprocess.


def result(**fields: Any) -> dict[str, Any]:
    printing = {"print_jobs": 30, "applied": [], "differences": [], "differing": 0}
    document = {"transactions": 120, "skipped": 2, "applied": [], "differences": [], "quarantined": 0}
    return document | {"printing": printing} | fields


DIFFERENCE = {
    "client_transaction_id": ID,
    "fields": ["phase", "outcome"],
    "before": {"phase": "in_doubt", "outcome": None},
    "after": {"phase": "final", "outcome": {"result": "approved", "authorized_amount": 11.20, "supersedes": None}},
}
CHANGED = {
    "client_transaction_id": OTHER_ID,
    "fields": ["outcome"],
    "before": {"outcome": {"result": "declined", "receipt": {"franchise": "VISA", "card_type": "credit"}}},
    "after": {"outcome": {"result": "declined", "receipt": {"franchise": "VISA", "card_type": "debit"}}},
}


def test_reprocess_without_differences_exits_0() -> None:
    applied = [{"id": n, "client_transaction_id": ID, "verdict": verdict} for n, verdict in ((3, "applied"), (4, None))]
    done = asked([answer(result(applied=applied, quarantined=4))], "reprocess")
    assert (done.sent, done.returncode, done.stderr) == ([("POST", "/reprocess", None)], 0, "")
    for line in (
        "payments checked: 120, print jobs: 30",
        "messages applied: 2, still set aside: 4 (posd quarantine)",
        f"3\t{ID}\tapplied",
        f"4\t{ID}\tknown",
        "Nothing differed.",
    ):
        assert line in done.lines
    assert any(line.endswith("whose records are too short to check: 2") for line in done.lines)


def test_reprocess_with_differences_shows_them_and_exits_1() -> None:
    done = asked([answer(result(differences=[DIFFERENCE, CHANGED]))], "reprocess")
    assert done.returncode == 1
    table = done.lines.index("about\tfield\tbefore\tafter")
    assert done.lines[table - 1].endswith("were corrected: payments: 2")
    assert done.lines[table + 1 : table + 5] == [
        f"{ID}\tphase\tin_doubt\tfinal",
        f"{ID}\toutcome.result\t-\tapproved",
        f"{ID}\toutcome.authorized_amount\t-\t11.2",
        f"{OTHER_ID}\toutcome.receipt.card_type\tcredit\tdebit",
    ]
    assert "Nothing differed." not in done.lines
    assert done.lines[-2:] == [f"    posd show {ID}", f"    posd show {OTHER_ID}"]


def test_reprocess_reports_print_jobs_and_payments() -> None:
    printed = {"print_job_id": "receipt-1042", "fields": ["status"], "before": {"status": "FAILED"}, "after": {}}
    applied = [{"id": 7, "print_job_id": "receipt-1042", "verdict": "applied"}]
    printing = {"print_jobs": 1, "applied": applied, "differences": [printed], "differing": 1}
    done = asked([answer(result(printing=printing))], "reprocess")
    assert done.returncode == 1
    told = ("messages applied: 1, still set aside: 0 (posd quarantine)", "7\treceipt-1042\tapplied")
    assert {*told, "receipt-1042\tstatus\tFAILED\t-"} <= set(done.lines)
    assert any(line.endswith("were corrected: print jobs: 1") for line in done.lines)
    assert done.lines[-1] == "    posd print-jobs receipt-1042"
