"""Journal of a print job: every input as received, in order of arrival. `apply` computes its effect.

Only these entries change the state of a job. So `replay` can derive the state again from the first state and the
journal. The journal has the raw bytes of each webhook.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, assert_never

import msgspec
from msgspec import Meta

from posd.base.limits import CALLBACKS_OF_PRINT_JOB
from posd.printing import model
from posd.printing.model import NAMES, DecidedBy, Judgement, PrintAttentionCode, PrintJob, PrintStatus
from posd.printing.wire import Answer, PollAnswered, judge, read_status, read_webhook
from posd.records.model import DecisionEntry, Quarantined, Reapplied, TakenOver, tag
from posd.terminals.attempt import Attempt


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, tag="turn", tag_field="kind"):
    """The job is sent next, after it has waited in the queue. `sent_to`: the terminal's present address.

    None: no present address is known, and the job is sent to the address that was known at its start.
    """

    sent_to: str | None = None


class Created(msgspec.Struct, frozen=True, tag="attempt", tag_field="kind"):
    """The one attempt to send the job, as the terminal client reported it. Bodies are base64 in JSON.

    `reads_errors`: False if a version of posd that ignored errors in replies recorded this (see `wire.judge`).
    """

    attempt: Attempt
    reads_errors: bool = False

    @property
    def judgement(self) -> Judgement:
        """Return the judgement of the attempt."""
        return judge(self.attempt, reads_errors=self.reads_errors)


class Interrupted(msgspec.Struct, frozen=True, tag="interrupted", tag_field="kind"):
    """A daemon started and found the job in phase `starting`. `in_line`: whether the job still waited in the queue."""

    in_line: Annotated[bool, Meta(description="true: the job was still waiting, and nothing was sent")]


class Called(msgspec.Struct, frozen=True, omit_defaults=True, tag="webhook", tag_field="kind"):
    """An accepted webhook. `body`: the terminal's raw bytes, stored beside the entry."""

    body: bytes = b""


class Polled(msgspec.Struct, frozen=True, tag="poll", tag_field="kind"):
    """A poll has ended."""

    answer: Answer


class Stuck(msgspec.Struct, frozen=True, tag="print_stuck", tag_field="kind"):
    """The terminal has had the job for some seconds without an end."""

    seconds: Annotated[float, Meta(description="for how long the terminal has had the job")]


class Resolved(DecisionEntry, frozen=True, tag="resolve"):
    """An operator recorded the end of the job."""

    result: Annotated[PrintStatus, Meta(description="how it ended")]


class Dismissed(DecisionEntry, frozen=True, tag="acknowledge"):
    """An operator closed one attention."""

    code: Annotated[PrintAttentionCode, Meta(description="code of the attention")]


#: Maximum number of stored webhooks of one job.
MAX_CALLBACKS = CALLBACKS_OF_PRINT_JOB.value

Entry = (
    Turn | Created | Interrupted | Called | Polled | Stuck | Quarantined | Reapplied | Resolved | Dismissed | TakenOver
)


def apply(job: PrintJob, entry: Entry, now: datetime) -> PrintJob:
    """Return the job after the entry."""
    match entry:
        case Turn(sent_to=sent_to):
            return model.turn(job, sent_to, now)
        case Created(judgement=judgement):
            return model.conclude(job, judgement, now)
        case Interrupted(in_line=in_line):
            return model.interrupted(job, now, in_line=in_line)
        case Called(body=body):
            return model.take(job, read_webhook(body), DecidedBy.WEBHOOK, now)
        case Polled(answer=PollAnswered(report=report)):
            return model.take(job, report, DecidedBy.POLL, now)
        case Polled():
            return job
        case Stuck(seconds=seconds):
            return model.stuck(job, seconds, now)
        case Quarantined(reason=reason):
            return model.quarantined(job, reason, now)
        case Reapplied():
            return model.dismissed(job, PrintAttentionCode.QUARANTINED_EVENT, now)
        case Resolved(result=result):
            return model.resolved(job, result, now)
        case Dismissed(code=code):
            return model.dismissed(job, code, now)
        case TakenOver(reason=reason):
            return model.taken_over(job, reason, now)
        case _:
            assert_never(entry)


def repeats(job: PrintJob, body: bytes, recorded: Sequence[bytes], now: datetime) -> bool:
    """Return whether a webhook has nothing new. Such a webhook is answered and not stored.

    `recorded`: the accepted webhooks of the job. Above `MAX_CALLBACKS`, only a webhook that ends the job is stored.

    Source: terminal API, Printing.
    """
    if body in recorded:
        return True
    after = apply(job, Called(body), now)
    if len(recorded) >= MAX_CALLBACKS:
        return (after.decided_by, after.status) == (job.decided_by, job.status)
    # This runs inside a commit, and payments wait for it. So only the status of the recorded webhooks is parsed again.
    return after == job and read_status(body) in map(read_status, recorded)


def feed_word(entry: Entry) -> str:
    """Return the feed's word for an entry, such as `accepted`, `webhook:COMPLETED` or `resolve`."""
    match entry:
        case Created(judgement=judgement):
            return NAMES[type(judgement)]
        case Called(body=body):
            return f"webhook:{read_webhook(body).status}"
        case Polled(answer=PollAnswered(report=report)):
            return f"poll:{report.status}"
        case Polled():
            return "poll:no_answer"
        case _:
            return tag(entry)


def replay(initial: PrintJob, inputs: Iterable[tuple[datetime, Entry]]) -> PrintJob:
    """Derive a job again from its first state and all inputs in order."""
    job = initial
    for at, entry in inputs:
        job = apply(job, entry, at)
    return job
