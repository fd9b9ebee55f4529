"""Promises of every command that calls posd: the JSON, the screen of 80 columns, the end of a wait for the response,
and the exit code.
"""

import json
import shlex
import socket
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from posd.base.problems import PROBLEMS, Problem, ProblemRow, StartStep
from posd.cli.app import connection
from posd.cli.app.context import ExitCode, for_print_job, for_transaction
from posd.cli.operate import database
from posd.cli.payments import decide
from posd.cli.payments.words import refused_step
from tests.cli.test_operator import SURE
from tests.cli.test_show import CLAIMED, LOST, entry, page
from tests.rig.commands import (
    FILE_TO_PRINT,
    PATIENCE,
    asked,
    check,
    posd,
    posd_interrupted,
    posd_on_terminal,
    posd_process,
)
from tests.rig.documents import ANSWERS, AT, FAILED, ID, JOB, answer, attention, outcome, print_job, transaction
from tests.rig.stub import Answer, Stub, problem
from tests.rig.tables import every

ENDED = {
    result: answer(transaction(outcome=outcome(result, {"kind": "search", "event_id": "e-1"})))
    for result in ("approved", "declined")
}
LISTED = {"transactions": [transaction(attention=[attention("orphan")])], "next_cursor": None}
DOUBTFUL = transaction(last_search={"at": AT, "result": "none"}, attention=[attention("in_doubt", "lost")])


WIDE = entry(12345, b"x" * 1_048_576, peer="2001:0db8:85a3:0000:0000:8a2e:0370:7334")
PRINTED = entry(12346, channel="print-jobs", client_transaction_id=None, print_job_id="receipt-1042")
LONG_JOB = print_job(
    print_job_id=ID, external_reference="2026-11-20/till-3/1042", attention=[attention("print_stuck", "for 300 s")]
)
REASON = "SN-3: also announced at https://192.0.2.9:1, which is not trusted: x"
NOTHING = dict.fromkeys(ANSWERS["prune"]["200"]["removed"], 0)
NOTHING_OLD = ANSWERS["prune"]["200"] | {"removed": NOTHING, "kept": {}}


@every(
    ("line", "script", "code", "words"),
    [
        ("list --print-jobs", [answer({"print_jobs": [], "next_cursor": None})], 0, ["No print jobs."]),
        ("list --print-jobs", [answer({"print_jobs": [LONG_JOB], "next_cursor": None})], 0, [ID[:8]]),
        ("quarantine", [page(PRINTED)], 0, ["receipt-1042"]),
        ("quarantine", [page()], 0, ["The quarantine is empty."]),
        ("quarantine", [page(WIDE, entry(12346))], 0, ["1048576", "7f3c0000 ", "192.168.100.120"]),
        ("terminals", [answer({"terminals": [LOST, CLAIMED]})], 0, ["SN-1: nothing listens there", REASON]),
        ("list --attention", [answer(LISTED)], 0, [f"posd acknowledge {ID} orphan"]),
        (f"reconcile {ID}", [ENDED["approved"]], 0, ["approved"]),
        (f"reconcile {ID}", [ENDED["declined"]], 1, ["declined"]),
        (f"print-jobs {JOB} --wait --json", [answer(FAILED)], 1, ["out of paper"]),
        ("quarantine 12", [answer(entry(12))], 0, ["set aside"]),
        ("explain", [], 0, ["posd.cannot_start"]),
        ("explain conflicting_final payments_of_process", [], 0, ["posd acknowledge"]),
        (f"reconcile {ID}", [answer(DOUBTFUL), SURE], 4, ["asking the terminal", f"posd release {ID}"]),
        ("prune", [answer(NOTHING_OLD)], 0, ["There is nothing to remove."]),
    ],
)
def test_80_columns_show_the_important_text_and_json_is_the_document_of_the_api(
    line: str, script: list[Answer], code: int, words: list[str]
) -> None:
    check(line, script, code, *words, lacks=["192.0.2.8"], types="n\n", as_json=len(script) == 1 and line != "prune")


QUARANTINED = [page(entry(3), entry(7)), page(entry(9)), page()]
PRINT_JOBS = [answer({"print_jobs": [FAILED], "next_cursor": cursor}) for cursor in ("c1", None)]


@every(
    ("line", "script", "queries"),
    [
        ("quarantine --limit 2", QUARANTINED, ["limit=2&after=0", "limit=2&after=7", "limit=2&after=9"]),
        ("list --print-jobs --limit 1", PRINT_JOBS, ["limit=1", "limit=1&cursor=c1"]),
    ],
)
def test_the_option_all_reads_page_after_page(line: str, script: list[Answer], queries: list[str]) -> None:
    done, program = (
        asked(script, *line.split(), "--all", *more).ends(0, lacks=["--all"]) for more in ((), ("--json",))
    )
    for calls in (done.calls, program.calls):
        assert [call.path.split("?")[1] for call in calls] == queries
    assert program.lines == [reply.body.decode() for reply in script[:2]]
    check(line, script[:1], 0, "--all")


@pytest.mark.slow
@every(
    ("line", "script", "words"),
    [
        ("backup /tmp/b.db", [], ["posd may continue with it"]),
        ("reprocess", [], ["posd may continue with it"]),
        (f"reconcile {ID}", [], [f"posd show {ID}"]),
        (f"charge 7 --id {ID}", [answer(transaction(), 201)], ["the payment goes on", f"posd abort {ID}"]),
        (
            f"print {FILE_TO_PRINT} --json",
            [answer(print_job(), 201)],
            ["Stopped waiting; the print job goes on.", f"posd await {JOB}"],
        ),
    ],
)
def test_ctrl_c_ends_a_wait_with_code_4_and_says_what_continues(
    line: str, script: list[Answer], words: list[str]
) -> None:
    done = posd_interrupted(*shlex.split(line), answers=script).ends(4, *words)
    assert "--json" not in line or done.document == print_job()


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [(decide, "RECONCILE_SECONDS", f"reconcile {ID}"), (database, "WORK_SECONDS", "reprocess")],
)
def test_a_long_call_ends_at_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, line: str
) -> None:
    over, began = threading.Event(), time.monotonic()
    assert database.WORK_SECONDS >= 1800
    monkeypatch.setattr(module, name, 0.2)
    with Stub(tmp_path / "s", [Answer(before=over.wait, cut=True)]):
        done = posd(*shlex.split(line), socket=tmp_path / "s")
        over.set()
    done.ends(3, "did not answer within 0.2 s")
    assert time.monotonic() - began < PATIENCE


# The contract's exit codes, row by row.


def test_the_result_decides_the_exit_code_and_an_open_record_gives_4() -> None:
    codes = {"approved": 0, "declined": 1, "rejected": 1, "canceled": 1, "not_started": 1, "of_a_later_version": 4}
    assert {result: for_transaction({"outcome": {"result": result}}) for result in codes} == codes
    assert for_transaction({"outcome": None}) == for_print_job({"phase": "active", "status": "COMPLETED"}) == 4


@every(("code", "row"), PROBLEMS.items())
def test_after_a_refusal_a_payment_counts_as_ended_only_if_it_never_started(code: str, row: ProblemRow) -> None:
    """Each problem is tested with an id from the command and with an id from the caller. After a refusal, a payment
    counts as ended only if it never started.
    """
    wrong = code == "draining" and ExitCode.UNREACHABLE
    refused = wrong or (ExitCode.USAGE if row.next_step is StartStep.FIX_CALL else ExitCode.NOT_DONE)
    unsent = row.status < 500 or row.status in (501, 503)
    for given, never_started in product((False, True), (None, False, True)):
        document = Problem(code, "why", **({} if never_started is None else {"never_started": never_started}))
        answer = Answer(row.status, json.dumps(document.document(starts=True)).encode(), "application/problem+json")
        done = asked([answer], "charge", "5", *(["--id", ID] if given else []))
        over = unsent and (never_started or not given)
        case = (code, given, never_started, done.stderr)
        assert done.returncode == (refused if over else wrong or ExitCode.OPEN), case
        assert ("Nothing was started." in done.stderr) is bool(over), case
        assert (refused_step("ask_person") in done.stderr) is (
            unsent and not over and document.document(starts=True)["next_step"] not in ("fix_call", "same_call")
        ), case
        assert "NOT PAID" not in done.stdout + done.stderr


def test_the_wait_for_an_unknown_payment_ends_only_if_posd_says_never_started() -> None:
    for extra, code in ((',"never_started":true', 1), (',"never_started":false', 4), ("", 4)):
        check(f"await {ID}", [problem(404, "not_found", "no such payment", extra)], code)


def test_a_refused_print_job_is_shown_with_the_daemons_text() -> None:
    bad = {"terminal_offline": (503, 1), "id_reused": (409, 1), "unknown_terminal": (422, 2), "draining": (503, 3)}
    for name, (status, code) in bad.items():
        refusal = problem(status, name, "a text of posd")
        check(f"print {FILE_TO_PRINT}", [refusal], code, "posd: a text of posd", as_json=True)


def test_metrics_are_printed_verbatim_and_any_other_content_is_an_error() -> None:
    metrics = "# HELP posd_x X.\n# TYPE posd_x gauge\nposd_x 1\n"
    done = asked([Answer(200, metrics.encode(), "text/plain; version=0.0.4; charset=utf-8")], "metrics")
    assert (done.returncode, done.stdout, done.calls[0].path) == (0, metrics, "/metrics")
    check("metrics", [Answer(200, b"<html>hello</html>", "text/html")], 1, "not posd's")
    check("metrics", [problem(500, "internal_error", "posd failed")], 1, "posd failed")


# Commands without a daemon or without a configuration.


COMMANDS = (
    *("charge 1", "preauth 1", f"reauth {ID} 1", f"capture {ID} 1", f"tip {ID} 1", f"void {ID}", f"await {ID}"),
    *(f"abort {ID}", f"show {ID}", "list", f"print {FILE_TO_PRINT}", "list --print-jobs", "show receipt-1042"),
    *(f"reconcile {ID}", f"release {ID} --note x", f"resolve {ID} declined --note x --yes"),
    *(f"resolve {ID} FAILED --note x", f"acknowledge {ID} gap --note x", "quarantine", "reprocess", "terminals"),
    *("metrics", "status", "report --timezone UTC", "clock", "backup /tmp/b.db"),
)


@every(("line", "code"), [("list", 3), ("charge 1", 3), (f"resolve {ID} approved --note x", 2), ("show a/b", 2)])
def test_an_error_is_json_if_json_was_requested(tmp_path: Path, line: str, code: int) -> None:
    done = posd(*shlex.split(line), "--json", socket=tmp_path / "till.sock").ends(code)
    assert done.document["exit_code"] == code
    assert done.document["detail"] in done.stderr


def test_a_socket_without_a_daemon_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that listened has ended. The next daemon must find no call on the socket."""
    monkeypatch.setattr(connection, "START_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "till.sock"))
        held.setblocking(False)
        listen = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).listen()"
        subprocess.run([sys.executable, "-c", listen, str(held.fileno())], pass_fds=[held.fileno()], check=True)
        began = time.monotonic()
        for line in ("charge 1", "list", f"print {FILE_TO_PRINT}", "status"):
            done = posd(*shlex.split(line), socket=tmp_path / "till.sock").ends(3)
            assert ("Nothing was s" in done.stderr) == line.startswith(("charge", "print"))
        assert (time.monotonic() - began < PATIENCE, readable(held)) == (True, False)


def readable(held: socket.socket) -> bool:
    """Return whether the socket has data that the next daemon would read."""
    while True:
        try:
            connection, _ = held.accept()
        except BlockingIOError:
            return False
        with connection:
            if connection.recv(1):
                return True


def test_on_a_screen_a_failed_start_of_posd_names_the_command_that_says_why(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[database]\npath = "/dev/null/posd.db"\n[webhooks]\nlisten = "127.0.0.1:0"\n')
    seen = posd_on_terminal("--config", str(config), "run", socket=tmp_path / "none")
    assert (seen.returncode != 0, "> posd doctor" in seen.screen.splitlines()) == (True, True), seen.screen
    assert "posd doctor" not in posd_process("run", config=config).stderr
    config.write_text('[webhooks]\nlisten = 7\nadvertize_host = "x"\n')
    posd("run", config=config).ends(2, str(config), "webhooks.listen", "advertise_host")
    posd("run", config=tmp_path / "none.toml").ends(2, str(tmp_path / "none.toml"))


@every("content", [None, b"[local_api\n", b"\xff\xfe", b"[local_api]\ndirectory = 7\n"])
def test_without_a_configuration_every_command_uses_the_usual_socket(tmp_path: Path, content: bytes | None) -> None:
    """The configuration is missing or broken in several ways. No daemon runs."""
    config = tmp_path / "config.toml"
    if content is not None:
        config.write_bytes(content)
    for line in COMMANDS:
        posd(*shlex.split(line), config=config).ends(3, f"posd: {config}: ", "/run/posd/till.sock is tried (--socket")


def test_a_fault_in_another_setting_does_not_hide_the_path_of_the_socket(tmp_path: Path) -> None:
    """A named socket needs no configuration."""
    named = asked([Answer(body=b'{"quarantine":[]}')], "quarantine", "--json", config="[local_api\n")
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n[webhooks]\nlisten = 7\n[nonsense]\n')
    with Stub(tmp_path / "till.sock", [Answer(body=b'{"quarantine":[]}')]):
        done = posd("quarantine", "--json", config=config)
    assert (named.returncode, named.stderr) == (done.returncode, done.stderr) == (0, "")
