"""Quarantined messages are shown without controlling the screen, and reprocess reports its corrections."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from posd.cli.operate import database as commands
from tests.cli.documents import AT, ID, OTHER_ID, answer
from tests.cli.processes import PATIENCE, posd, posd_interrupted, posd_on_terminal
from tests.cli.stub import Answer, Stub

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


def test_the_table_has_a_row_a_message(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [page(entry(3, b"x" * 1000), entry(7, reason="not\ta\tJSON text"))]) as stub:
        done = posd("quarantine", socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert stub.calls[0].path == "/v1/quarantine?limit=50&after=0"
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["id", "received", "channel", "about", "peer", "bytes", "reason"]
    assert rows[1][0] == "3"
    assert rows[1][2:] == ["payment", ID, "192.168.100.120", "1000", REASON]
    assert rows[2][5:] == ["2", r"not\ta\tJSON text"]
    assert "posd quarantine 3;" in done.stderr
    assert "--all" not in done.stderr


def test_the_channel_says_whether_it_is_about_a_payment_or_a_print_job(tmp_path: Path) -> None:
    printed = {"channel": "print-jobs", "client_transaction_id": None, "print_job_id": "receipt-1042"}
    with Stub(tmp_path / "s", [page(entry(3), entry(7, **printed), entry(9, **printed | {"print_job_id": None}))]):
        done = posd("quarantine", socket=tmp_path / "s")
    rows = [line.split("\t")[2:4] for line in done.stdout.splitlines()[1:]]
    assert rows == [["payment", ID], ["print", "receipt-1042"], ["print", "-"]]


def test_all_asks_page_after_page_until_an_empty_one_and_a_full_page_may_not_be_all(tmp_path: Path) -> None:
    script = [page(entry(3), entry(7)), page(entry(9)), page()]
    with Stub(tmp_path / "s", [*script, *script, script[0]]) as stub:
        done, program = (
            posd("quarantine", "--all", "--limit", "2", *more, socket=tmp_path / "s") for more in ((), ("--json",))
        )
        first = posd("quarantine", "--limit", "2", socket=tmp_path / "s")
    queries = [f"limit=2&after={after}" for after in (0, 7, 9)]
    assert [call.path.split("?")[1] for call in stub.calls] == [*queries, *queries, queries[0]]
    assert [line.split("\t")[0] for line in done.stdout.splitlines()[1:]] == ["3", "7", "9"]
    pages = [json.loads(line)["quarantine"] for line in program.stdout.splitlines()]
    assert pages == [[entry(3), entry(7)], [entry(9)]]
    assert ("--all" in done.stderr, "--all" in first.stderr) == (False, True)


def test_nothing_set_aside_is_a_sentence_for_people_and_an_empty_page_for_programs(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [page(), page()]):
        seen = posd_on_terminal("quarantine", socket=tmp_path / "s")
        done = posd("quarantine", "--json", "--all", socket=tmp_path / "s")
    assert seen.screen.strip() == "Nothing is set aside."
    assert json.loads(done.stdout) == {"quarantine": [], "next_after": 7}


def test_on_a_terminal_the_table_fits(tmp_path: Path) -> None:
    wide = entry(12345, b"x" * 1_048_576, peer="2001:0db8:85a3:0000:0000:8a2e:0370:7334")
    with Stub(tmp_path / "s", [page(wide, entry(12346))]):
        seen = posd_on_terminal("quarantine", socket=tmp_path / "s")
    assert seen.returncode == 0
    assert "1048576" in seen.screen
    assert "7f3c0000 " in seen.screen
    assert "192.168.100.120" in seen.screen
    assert all(cell_len(line) <= 80 for line in seen.screen.split("\n"))


def shown(tmp_path: Path, body: bytes) -> list[str]:
    with Stub(tmp_path / "s", [answer(entry(12, body))]) as stub:
        done = posd("quarantine", "12", socket=tmp_path / "s")
    assert stub.calls[0].path == "/v1/quarantine/12"
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "set aside"
    assert f"reason: {REASON}" in lines
    size = lines.index(f"body: {len(body)} bytes:")
    assert all(line.startswith(commands.MARGIN) for line in lines[size + 1 :])
    return [line.removeprefix(commands.MARGIN) for line in lines[size + 1 :]]


def test_a_json_body_is_indented_and_keeps_its_numbers(tmp_path: Path) -> None:
    assert shown(tmp_path, b'{"amount":{"iva":1.20},"n":1e2}') == [
        "{",
        '  "amount": {',
        '    "iva": 1.20',
        "  },",
        '  "n": 1e2',
        "}",
    ]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"<html>\r\n\x1b[2J caf\xc3\xa9\x07", ["<html>\\r", "\\u001b[2J café\\u0007"]),
        ('{"a":"\u009b2J\u202e\x7f"}'.encode(), ["{", '  "a": "\\u009b2J\\u202e\\u007f"', "}"]),
        (b'{"half":', ['{"half":']),
        (b"[" * 5000, ["[" * 5000]),
        (b"", [""]),
    ],
    ids=["text", "json", "half json", "deep json", "nothing"],
)
def test_text_is_shown_with_what_is_unprintable_escaped(tmp_path: Path, body: bytes, lines: list[str]) -> None:
    assert shown(tmp_path, body) == lines


def test_bytes_that_are_no_text_are_a_hex_dump(tmp_path: Path) -> None:
    assert shown(tmp_path, b"\xff\x1b[2J" + b"0123456789abcdef") == [
        "00000000  ff 1b 5b 32 4a 30 31 32 33 34 35 36 37 38 39 61  |..[2J0123456789a|",
        "00000010  62 63 64 65 66                                   |bcdef|",
    ]


def test_no_body_steers_a_terminal(tmp_path: Path) -> None:
    hostile = entry(12, b"\x1b]0;title\x07\x9b2J", reason="\x1b[2J\x9b", peer="\x1b[31mred")
    raw = json.dumps(hostile, ensure_ascii=False).encode()  # JSON need not escape U+009B, which steers as well
    for arguments in (("quarantine", "12"), ("quarantine", "12", "--json")):
        with Stub(tmp_path / "s", [Answer(200, raw)]):
            seen = posd_on_terminal(*arguments, socket=tmp_path / "s")
        assert seen.returncode == 0
        for sequence in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\x1b[31mred"):
            assert sequence not in seen.written
        assert all(cell_len(line) <= 80 for line in seen.screen.split("\n")) or "--json" in arguments


@pytest.mark.parametrize(("number", "code"), [("12", 0), ("0", 2), ("-1", 2), ("x", 2)])
def test_one_message_as_json_is_the_apis_and_what_is_no_number_is_refused(
    tmp_path: Path, number: str, code: int
) -> None:
    with Stub(tmp_path / "s", [answer(entry(12))]):
        done = posd("quarantine", "--json", "--", number, socket=tmp_path / "s")
    assert done.returncode == code
    assert code or json.loads(done.stdout) == entry(12)


# reprocess


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


def test_reprocess_without_differences_exits_0(tmp_path: Path) -> None:
    applied = [{"id": n, "client_transaction_id": ID, "verdict": verdict} for n, verdict in ((3, "applied"), (4, None))]
    with Stub(tmp_path / "s", [answer(result(applied=applied, quarantined=4))]) as stub:
        done = posd("reprocess", socket=tmp_path / "s")
    assert [(call.method, call.path, call.body) for call in stub.calls] == [("POST", "/v1/reprocess", b"")]
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "payments checked: 120, print jobs: 30" in lines
    assert any(line.endswith("whose records are too short to check: 2") for line in lines)
    assert "messages applied: 2, still set aside: 4 (posd quarantine)" in lines
    assert f"3\t{ID}\tapplied" in lines
    assert f"4\t{ID}\tknown" in lines
    assert "Nothing differed." in lines


def test_reprocess_with_differences_shows_them_and_exits_1(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(result(differences=[DIFFERENCE, CHANGED]))]):
        done = posd("reprocess", socket=tmp_path / "s")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    table = lines.index("about\tfield\tbefore\tafter")
    assert lines[table - 1].endswith("were corrected: payments: 2")
    assert lines[table + 1 : table + 5] == [
        f"{ID}\tphase\tin_doubt\tfinal",
        f"{ID}\toutcome.result\t-\tapproved",
        f"{ID}\toutcome.authorized_amount\t-\t11.2",
        f"{OTHER_ID}\toutcome.receipt.card_type\tcredit\tdebit",
    ]
    assert "Nothing differed." not in lines
    assert lines[-2:] == [f"    posd show {ID}", f"    posd show {OTHER_ID}"]


def test_reprocess_tells_of_print_jobs_beside_payments(tmp_path: Path) -> None:
    printed = {"print_job_id": "receipt-1042", "fields": ["status"], "before": {"status": "FAILED"}, "after": {}}
    applied = [{"id": 7, "print_job_id": "receipt-1042", "verdict": "applied"}]
    printing = {"print_jobs": 1, "applied": applied, "differences": [printed], "differing": 1}
    with Stub(tmp_path / "s", [answer(result(printing=printing))]):
        done = posd("reprocess", socket=tmp_path / "s")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "messages applied: 1, still set aside: 0 (posd quarantine)" in lines
    assert "7\treceipt-1042\tapplied" in lines
    assert "receipt-1042\tstatus\tFAILED\t-" in lines
    assert any(line.endswith("were corrected: print jobs: 1") for line in lines)
    assert lines[-1] == "    posd print-jobs receipt-1042"


def test_reprocess_counts_the_differences_that_the_daemon_left_out(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(result(skipped=0, differences=[CHANGED], differing=501))]):
        done = posd("reprocess", socket=tmp_path / "s")
    assert done.returncode == 1
    assert "were corrected: payments: 501\n" in done.stdout
    assert "and 500 more" in done.stdout
    assert "too little" not in done.stdout


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        (None, {}, [("x", "-", "-")]),
        ({"a": 1}, None, [("x.a", "1", "-")]),
        ([], ["gap"], [("x", "-", "gap")]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [("x.a.c", "2", "3")]),
    ],
)
def test_a_difference_is_told_member_by_member(before: object, after: object, rows: list[tuple[str, str, str]]) -> None:
    assert list(commands.changes("x", before, after)) == rows


def test_reprocess_as_json_is_the_apis_and_exits_the_same(tmp_path: Path) -> None:
    for document, code in ((result(), 0), (result(differences=[CHANGED]), 1)):
        with Stub(tmp_path / "s", [answer(document)]):
            done = posd("reprocess", "--json", socket=tmp_path / "s")
        assert (done.returncode, json.loads(done.stdout)) == (code, document)


def test_reprocess_on_a_terminal_shows_that_it_works_and_a_table_a_payment(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(result(differences=[DIFFERENCE, CHANGED]))]):
        seen = posd_on_terminal("reprocess", socket=tmp_path / "s")
    assert seen.returncode == 1
    assert "posd derives every payment and print job again" in seen.screen
    assert f"\n{OTHER_ID}\n" in seen.screen
    assert all(cell_len(line) <= 80 for line in seen.screen.split("\n"))


def test_reprocess_waits_longer_than_other_calls_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, began = threading.Event(), time.monotonic()
    assert commands.REPROCESS_SECONDS >= 1800
    monkeypatch.setattr(commands, "REPROCESS_SECONDS", 0.2)
    with Stub(tmp_path / "s", [Answer(before=over.wait, cut=True)]):
        done = posd("reprocess", socket=tmp_path / "s")
        over.set()
    assert done.returncode == 3
    assert "did not answer within 0.2 s" in done.stderr
    assert time.monotonic() - began < PATIENCE


def test_a_reprocess_that_is_cut_short_exits_4(tmp_path: Path) -> None:
    done = posd_interrupted(tmp_path, "reprocess")
    assert done.returncode == 4
    assert "posd may continue with it" in done.stderr
    assert "Traceback" not in done.stderr
