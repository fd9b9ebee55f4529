"""The contract's exit codes, row by row."""

import pytest

from posd.base.problems import PROBLEMS
from posd.cli.app.exit_codes import PROBLEM_CODES, ExitCode, for_print_job, for_problem, for_transaction


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


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("invalid_request", 2),
        ("malformed_json", 2),
        ("unknown_terminal", 2),
        ("not_configured", 2),
        ("forbidden", 2),
        ("method_not_allowed", 2),
        ("payload_too_large", 2),
        ("unsupported_media_type", 2),
        ("terminal_busy", 1),
        ("terminal_offline", 1),
        ("id_reused", 1),
        ("not_found", 1),
        ("past_point_of_no_return", 1),
        ("already_final", 1),
        ("call_outstanding", 1),
        ("sale_conflict", 1),
        ("already_derived", 1),
        ("unknown_original", 1),
        ("nothing_running", 1),
        ("queue_full", 1),
        ("storage_unavailable", 1),
        ("request_timeout", 1),
        ("internal_error", 1),
        ("draining", 3),
        ("a_code_of_a_later_version", 1),
    ],
)
def test_a_problem_exits_by_its_code(code: str, exit_code: int) -> None:
    assert for_problem(code) == exit_code


def test_no_problem_is_told_as_done_or_as_still_open() -> None:
    assert not {ExitCode.DONE, ExitCode.OPEN} & set(PROBLEM_CODES.values())


def test_a_code_that_is_no_plain_refusal_is_one_of_the_daemon() -> None:
    assert PROBLEM_CODES.keys() <= PROBLEMS.keys()
    assert ExitCode.NOT_DONE not in PROBLEM_CODES.values()
