"""The contract's exit codes, row by row."""

import json
from itertools import product
from pathlib import Path

import pytest

from posd.base.problems import PROBLEMS, Problem, ProblemRow, StartStep
from posd.cli.app.context import ExitCode, for_print_job, for_problem, for_transaction
from posd.cli.payments.words import refused_step
from posd.client import documents as client
from tests.cli.documents import ID
from tests.cli.processes import posd
from tests.cli.stub import Answer, Stub, problem
from tests.support.tables import every


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("approved", 0),
        ("declined", 1),
        ("rejected", 1),
        ("canceled", 1),
        ("not_started", 1),
        ("a_result_of_a_later_version", 4),
    ],
)
def test_a_final_payment_exits_by_its_result(result: str, code: int) -> None:
    assert for_transaction({"outcome": {"result": result}}) == code


def test_an_open_payment_exits_4() -> None:
    assert for_transaction({"outcome": None}) == 4


@pytest.mark.parametrize(
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
def test_a_print_job_is_done_only_where_it_is_printed(phase: str, status: str | None, code: int) -> None:
    assert for_print_job({"phase": phase, "status": status}) == code


@every(("code", "row"), PROBLEMS.items())
def test_a_refused_start_is_told_by_its_next_step_and_never_started(tmp_path: Path, code: str, row: ProblemRow) -> None:
    """Each problem, for an id of the command and for a given id; only a payment that was never started has ended."""
    wrong = code == "draining" and ExitCode.UNREACHABLE
    refused = wrong or (ExitCode.USAGE if row.next_step is StartStep.FIX_CALL else ExitCode.NOT_DONE)
    unsent = row.status < 500 or row.status in (501, 503)
    for given, never_started in product((False, True), (None, False, True)):
        document = Problem(code, "why", **({} if never_started is None else {"never_started": never_started}))
        answer = Answer(row.status, json.dumps(document.document(starts=True)).encode(), "application/problem+json")
        with Stub(tmp_path / "s", [answer]):
            done = posd("charge", "5", *(["--id", ID] if given else []), socket=tmp_path / "s")
        over = unsent and (never_started or not given)
        case = (code, given, never_started, done.stderr)
        assert done.returncode == (refused if over else wrong or ExitCode.OPEN), case
        assert ("Nothing was started." in done.stderr) is bool(over), case
        assert (refused_step("ask_person") in done.stderr) is (
            unsent and not over and document.document(starts=True)["next_step"] not in ("fix_call", "same_call")
        ), case
        assert "NOT PAID" not in done.stdout + done.stderr


@pytest.mark.parametrize(("never_started", "code"), [(True, 1), (False, 4), (None, 4)])
def test_what_is_waited_for_and_is_not_known_is_over_only_where_it_was_never_started(
    tmp_path: Path, never_started: bool | None, code: int
) -> None:
    extra = "" if never_started is None else f',"never_started":{json.dumps(never_started)}'
    with Stub(tmp_path / "s", [problem(404, "not_found", "no such payment", extra)]):
        assert posd("await", ID, socket=tmp_path / "s").returncode == code


@every(("code", "row"), PROBLEMS.items())
def test_a_problem_of_any_other_command_is_a_refusal_or_a_wrong_call(code: str, row: ProblemRow) -> None:
    problem = client.Problem(code, row.status, "why", {})
    assert for_problem(problem) in (ExitCode.NOT_DONE, ExitCode.USAGE, ExitCode.UNREACHABLE)
