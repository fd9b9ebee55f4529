"""What the answer to an abort says (its answers are not published).

Abort is a request: whatever it answers, the outcome is still awaited. Only "nothing is running" is used further, as a
part of the proof in `posd.payments.not_started`.

Source: terminal API, Calls to a terminal.
"""

from enum import StrEnum
from typing import assert_never

from posd.records.start_reply import UNDECIDED_CLIENT_ERRORS
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied


class AbortAnswer(StrEnum):
    """What became of an abort."""

    TAKEN = "taken"  # the terminal says that it aborts
    NOTHING_RUNNING = "nothing_running"  # the terminal says that there is nothing to abort
    NOT_TAKEN = "not_taken"  # this is no abort to the terminal: wrong path, no access
    UNREACHABLE = "unreachable"  # it was not sent
    UNKNOWN = "unknown"  # it was sent, and may have been taken


#: The profile's row: 200 aborted, 409 nothing running.
NOTHING_RUNNING_STATUS = 409


def judge_abort(attempt: Attempt) -> AbortAnswer:
    """Judge the attempt to send an abort."""
    match attempt:
        case NotSent():
            return AbortAnswer.UNREACHABLE
        case Replied(status=status) if status == NOTHING_RUNNING_STATUS:
            return AbortAnswer.NOTHING_RUNNING
        case Replied(status=status) if 200 <= status < 300:
            return AbortAnswer.TAKEN
        case Replied(status=status) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return AbortAnswer.NOT_TAKEN
        case Replied() | Lost():
            return AbortAnswer.UNKNOWN
        case _:
            assert_never(attempt)
