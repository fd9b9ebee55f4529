"""What the answer to an abort says (its answers are not published).

Abort is a request: after every answer the outcome is still awaited. Only "nothing is running" is used further,
as a part of the proof in `payments.missing_proof`.

Source: terminal API, Calls to a terminal.
"""

from enum import StrEnum
from typing import assert_never

from posd.terminals.attempt import (
    UNAUTHENTICATED,
    UNDECIDED_CLIENT_ERRORS,
    Attempt,
    NotSent,
    Replied,
    ReplyLost,
    read_envelope,
)


class AbortAnswer(StrEnum):
    """What became of an abort."""

    TAKEN = "taken"  # the terminal says that it aborts
    NOTHING_RUNNING = "nothing_running"  # the terminal says that there is nothing to abort
    NOT_TAKEN = "not_taken"  # this is no abort to the terminal: wrong path, no access
    UNREACHABLE = "unreachable"  # it was not sent
    UNKNOWN = "unknown"  # it was sent, and may have been taken


#: The profile's row: 200 aborted, 409 nothing running.
NOTHING_RUNNING_STATUS = 409


def judge_abort(attempt: Attempt, *, reads_errors: bool = True) -> AbortAnswer:
    """Judge the attempt to send an abort; `reads_errors` as of `judge_start`."""
    error = read_envelope(attempt.body) if reads_errors and isinstance(attempt, Replied) else None
    match attempt:
        case NotSent():
            return AbortAnswer.UNREACHABLE
        case Replied(status=status, sealed=True) if status not in UNAUTHENTICATED:
            return AbortAnswer.UNKNOWN
        case Replied() if error is not None and error.busy:
            return AbortAnswer.UNKNOWN
        case Replied(status=status, complete=complete) if status == NOTHING_RUNNING_STATUS:
            # It is a part of a proof: not what was cut, what says two things, or what the acquirer said.
            unclear = not complete if error is None else error.acquirer or not error.clear
            return AbortAnswer.UNKNOWN if reads_errors and unclear else AbortAnswer.NOTHING_RUNNING
        case Replied(status=status) if 200 <= status < 300:
            return AbortAnswer.UNKNOWN if error and error.certain else AbortAnswer.TAKEN
        case Replied(status=status) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return AbortAnswer.NOT_TAKEN
        case Replied() | ReplyLost():
            return AbortAnswer.UNKNOWN
        case _:
            assert_never(attempt)


def finds_running(attempt: Attempt) -> bool:
    """Whether the answer to an abort says that the terminal is busy, under any HTTP status."""
    error = read_envelope(attempt.body) if isinstance(attempt, Replied) else None
    return error is not None and error.busy
