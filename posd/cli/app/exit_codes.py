"""What a command's exit code says ("Command line" in the local API's contract), as tables."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from posd.client.documents import Problem


class ExitCode(IntEnum):
    """The five exit codes of every posd command."""

    DONE = 0  #: done; for a payment: approved
    NOT_DONE = 1  #: declined, rejected, canceled, not started, or refused by posd
    USAGE = 2  #: wrong usage, an invalid request or a wrong configuration
    UNREACHABLE = 3  #: the daemon cannot be reached
    OPEN = 4  #: still open: a wait was cut short and the payment goes on; or how it ended is not known


#: outcome's `result` -> exit code.
RESULT_CODES: Mapping[str, ExitCode] = {
    "approved": ExitCode.DONE,
    "declined": ExitCode.NOT_DONE,
    "rejected": ExitCode.NOT_DONE,
    "canceled": ExitCode.NOT_DONE,
    "not_started": ExitCode.NOT_DONE,
}

#: HTTP statuses of a call that is wrong: repeated as it is, it never succeeds.
WRONG_CALL = frozenset({400, 403, 405, 408, 413, 415, 422, 501})


def for_transaction(transaction: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for a transaction as the local API shows it: by its outcome, OPEN without one.

    A result that this version does not know is OPEN too: it may be a payment.
    """
    outcome = transaction.get("outcome")
    if outcome is None:
        return ExitCode.OPEN
    return RESULT_CODES.get(outcome["result"], ExitCode.OPEN)


def for_print_job(job: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for a print job as the local API shows it: DONE only where it is printed."""
    if job["phase"] != "final":
        return ExitCode.OPEN
    return ExitCode.DONE if job["status"] == "COMPLETED" else ExitCode.NOT_DONE


def for_pruned(left: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for what is left of a removed payment or print job: the fields of the problem `pruned`."""
    if "print_status" in left:
        return ExitCode.DONE if left["print_status"] == "COMPLETED" else ExitCode.NOT_DONE
    return RESULT_CODES.get(left.get("result", ""), ExitCode.OPEN)


def for_problem(problem: Problem, *, starts: bool = False) -> ExitCode:
    """Return the exit code for a problem; `starts`: of a command that starts something, or waits for it.

    Then only what was never started is NOT_DONE or USAGE: all else may have been started.
    """
    if problem.away:  # about to stop: to the caller the same as not being there
        return ExitCode.UNREACHABLE
    if starts and not problem.never_started:
        return ExitCode.OPEN
    wrong = problem.next_step == "fix_call" or problem.status in WRONG_CALL
    return ExitCode.USAGE if wrong else ExitCode.NOT_DONE
