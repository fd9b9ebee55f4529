"""What a terminal says of a print job, and what the one attempt to create it proves (terminal API, Printing).

Of the transport no more is asked than whether anything was written and whether a whole reply came, as for every call.
"""

from collections.abc import Mapping

import msgspec

from posd.records import start_reply
from posd.records.start_reply import Doubtful, Refused, Unsent
from posd.terminals.attempt import Attempt


class Report(msgspec.Struct, frozen=True):
    """What the terminal says of a job, by webhook, poll or reply; `status` is its word, known or not.

    `job_id` is the id that it names, None where it names none; the errors belong to FAILED alone
    (terminal API, Printing).
    """

    status: str
    job_id: str | None = None
    external_reference: str = ""
    error_code: str | None = None
    error_message: str | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The terminal took the job. `job_id` is the id that its reply names; `report` its state, where it says one."""

    job_id: str | None = None
    report: Report | None = None


Judgement = Accepted | Refused | Unsent | Doubtful

#: Words for the log and the history, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    Accepted: "accepted",
    Refused: "refused",
    Unsent: "unsent",
    Doubtful: "in_doubt",
}


def judge_reply(attempt: Attempt, accepted: Accepted) -> Judgement:
    """Judge the one attempt to create a job; `accepted` is what its reply says, in case it is a 2xx.

    The shape of the reply is not shown (terminal API, Printing), so that any 2xx means that the terminal has the job.
    """
    return start_reply.judge(attempt, lambda _reply: accepted)
