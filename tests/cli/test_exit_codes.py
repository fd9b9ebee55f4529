"""The contract's exit codes, row by row."""

import json
from itertools import product
from typing import Any

from posd.base.problems import PROBLEMS, Problem, ProblemRow, StartStep
from posd.cli.app.context import ExitCode, for_print_job, for_problem, for_transaction
from posd.cli.payments.words import refused_step
from posd.client import documents as client
from tests.cli.documents import ID
from tests.cli.processes import asked
from tests.cli.stub import Answer, problem
from tests.support.tables import every


@every(
    ("outcome", "code"),
    [
        ({"result": "approved"}, 0),
        *(({"result": result}, 1) for result in ("declined", "rejected", "canceled", "not_started")),
        ({"result": "a_result_of_a_later_version"}, 4),
        (None, 4),
    ],
)
def test_a_final_payment_exits_by_its_result_and_an_open_one_with_4(outcome: dict[str, str] | None, code: int) -> None:
    assert for_transaction({"outcome": outcome}) == code


@every(
    ("phase", "status", "code"),
    [
        ("final", "COMPLETED", 0),
        ("final", "FAILED", 1),
        ("final", None, 1),
        ("starting", None, 4),
        ("in_doubt", "PENDING", 4),
        ("active", "IN_PROGRESS", 4),
        ("active", "COMPLETED", 4),
    ],
)
def test_a_print_job_succeeds_only_if_it_is_printed(phase: str, status: str | None, code: int) -> None:
    assert for_print_job({"phase": phase, "status": status}) == code


@every(("code", "row"), PROBLEMS.items())
def test_a_refused_start_exits_by_its_next_step_and_never_started(code: str, row: ProblemRow) -> None:
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


@every(("never_started", "code"), [({"never_started": True}, 1), ({"never_started": False}, 4), ({}, 4)])
def test_a_wait_for_an_unknown_payment_ends_only_if_it_was_never_started(
    never_started: dict[str, Any], code: int
) -> None:
    extra = "".join(f',"{name}":{json.dumps(value)}' for name, value in never_started.items())
    assert asked([problem(404, "not_found", "no such payment", extra)], "await", ID).returncode == code


@every(
    ("refusal", "code"),
    [
        (problem(503, "terminal_offline", "no address of SN-0001 is known"), 1),
        (problem(409, "id_reused", "this id was used for another document"), 1),
        (problem(422, "unknown_terminal", "the fleet has several"), 2),
        (problem(413, "payload_too_large", "the body is too large"), 2),
        (problem(503, "draining", "posd is stopping"), 3),
    ],
)
def test_a_refused_print_job_is_shown_with_the_daemons_text(refusal: Answer, code: int) -> None:
    done, program = (asked([refusal], "print", __file__, *more) for more in ((), ("--json",)))
    assert (done.returncode, program.returncode) == (code, code)
    assert f"posd: {json.loads(refusal.body)['detail']}" in done.stderr
    assert program.stdout.encode() == refusal.body + b"\n"


@every(("code", "row"), PROBLEMS.items())
def test_a_problem_of_any_other_command_is_a_refusal_or_a_wrong_call(code: str, row: ProblemRow) -> None:
    problem = client.Problem(code, row.status, "why", {})
    assert for_problem(problem) in (ExitCode.NOT_DONE, ExitCode.USAGE, ExitCode.UNREACHABLE)


METRICS = b"# HELP posd_x X.\n# TYPE posd_x gauge\nposd_x 1\n"


@every(
    ("answer", "code", "words"),
    [
        (Answer(200, METRICS, "text/plain; version=0.0.4; charset=utf-8"), 0, ""),
        (Answer(200, b"<html>hello</html>", "text/html"), 1, "not posd's"),
        (problem(500, "internal_error", "posd failed"), 1, "posd failed"),
    ],
)
def test_metrics_are_printed_verbatim_and_other_content_is_reported(answer: Answer, code: int, words: str) -> None:
    done = asked([answer], "metrics")
    assert (done.returncode, done.stdout, words in done.stderr) == (code, "" if code else METRICS.decode(), True)
    assert done.calls[0].path == "/metrics"
