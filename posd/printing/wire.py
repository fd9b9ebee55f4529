"""Messages of the terminal about a print job, and the judgement of the attempt to create it (terminal API, Printing).

The terminal client reports only whether anything was written, and whether a complete reply arrived.
"""

from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta

from posd.base.json_types import UNREADABLE, Object, as_text, decode, decoded
from posd.base.replies import CallbackResult, UnreadableBody
from posd.printing.model import JobAccepted, JobReport, Judgement, PrintJob, PrintStatus
from posd.terminals.attempt import Attempt, Doubtful, NotSent, Replied, ReplyLost, envelope_in, judge_start, with_remark

#: Longest code or message that is kept, in characters. The raw bytes have the full text.
MAX_TEXT = 512
#: Longest id of a job that is accepted from a terminal, in characters. The path of a poll has the id.
MAX_JOB_ID = 256
#: Maximum number of objects in a poll's reply that are read. A poll is for one job.
MAX_ELEMENTS = 256
#: Possible names of the id in replies. The webhook uses `printJobId` (terminal API, Printing).
ID_NAMES = ("printJobId", "print_job_id", "id")

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NotAPrintEvent(UnreadableBody):
    """Body that is not a print webhook."""


class NoAnswer(msgspec.Struct, frozen=True, tag="no_answer"):
    """Result of a poll that did not give the state of the job. `status`: the HTTP status of the reply, if any."""

    reason: Annotated[str, Meta(description="why there is no usable answer, in words")]
    status: Annotated[int | None, Meta(description="the terminal's HTTP status, if there was a reply")] = None


class PollAnswered(msgspec.Struct, frozen=True, tag="answer"):
    """Result of a poll that gave the state of the job."""

    report: JobReport


Answer = PollAnswered | NoAnswer


@lru_cache(maxsize=16)  # a commit reads the same webhook several times
def read_webhook(body: bytes) -> JobReport:
    """Read a print webhook. Raise NotAPrintEvent, whose message names the field.

    A damaged id becomes None, because the token of the address proves the job.

    Source: terminal API, Printing.
    """
    try:
        members = decoded(body)[0]
    except ValueError as error:
        raise NotAPrintEvent(CallbackResult.NOT_JSON, reason=str(error)) from error
    if not isinstance(members, Object):
        raise NotAPrintEvent(CallbackResult.NO_OBJECT)
    job_id, status = _required(members, "printJobId"), _required(members, "status")
    if UNREADABLE in status:
        raise NotAPrintEvent(CallbackResult.DAMAGED_STATUS)
    return _report(
        status,
        members,
        job_id=None if UNREADABLE in job_id else job_id,
        external_reference=_text(members.get("externalReference")) or "",
    )


def _report(status: str, members: Object, job_id: str | None = None, external_reference: str = "") -> JobReport:
    error_code, error_message = _text(members.get("errorCode")), _text(members.get("errorMessage"))
    return JobReport(status, job_id, external_reference, error_code, error_message)


def read_status(body: bytes) -> str:
    """Return the state in a webhook that `read_webhook` has accepted."""
    try:
        return str(_text(decode(bytes(_MEMBERS.decode(body)["status"]))))
    except (ValueError, RecursionError):  # a part of the webhook is damaged
        return read_webhook(body).status


def judge(attempt: Attempt, *, reads_errors: bool = True) -> Judgement:
    """Judge the one attempt to create a job. `reads_errors` as in `judge_start`.

    The form of the reply is not published (terminal API, Printing). So any 2xx without an error means that the terminal
    has the job. After a 2xx with an error the terminal may have the job, and posd polls it.
    """
    said: JobAccepted | Doubtful = JobAccepted()
    if isinstance(attempt, Replied) and attempt.complete:
        said = _read_acceptance(attempt, reads_errors)
    return judge_start(attempt, lambda _reply: said, reads_errors=reads_errors)


def read_poll(attempt: Attempt, job: PrintJob) -> Answer:
    """Return the result of a poll. The state of the job is in an object, or in a list of objects.

    A single object without an id is accepted, because the poll had the id of the job. A 404 proves nothing.
    """
    match attempt:
        case NotSent(reason=reason) | ReplyLost(reason=reason):
            return NoAnswer(reason)
        case Replied(status=status) if not 200 <= status < 300:
            return NoAnswer(with_remark(f"the terminal answered HTTP {status}", attempt.remark), status)
        case Replied(status=status, complete=False):
            return NoAnswer("the reply is too long to be read", status)
        case Replied(status=status, body=body):
            return _read_elements(body, status, job)
        case _:
            assert_never(attempt)


def _read_elements(body: bytes, status: int, job: PrintJob) -> Answer:
    try:
        found = decoded(body)[0]
    except ValueError as error:
        return NoAnswer(f"the reply cannot be used: {error}", status)
    elements = found[:MAX_ELEMENTS] if isinstance(found, list) else [found]
    alone = len(elements) == 1
    ours = [element for element in elements if isinstance(element, Object) and _is_of(element, job, alone=alone)]
    if not ours:
        return NoAnswer("the reply does not have this print job", status)
    words = {None if "status" in element.repeated else _text(element.get("status")) for element in ours}
    word = words.pop()
    if words or not word or UNREADABLE in word:
        return NoAnswer("the reply has this print job, but not its status", status)
    if PrintStatus.known(word) is None and (failure := envelope_in(ours[0])) is not None and failure.certain:
        return NoAnswer(f"the terminal answered HTTP {status} with {failure.name}", status)
    return PollAnswered(_report(word, ours[0]))


def _is_of(element: Object, job: PrintJob, *, alone: bool) -> bool:
    named = [element[name] for name in ID_NAMES if name in element]
    if element.repeated.intersection(ID_NAMES):
        return False  # the reply has two ids
    if not named:
        return alone
    return any(_text(value) in (job.print_job_id, job.terminal_job_id or job.print_job_id) for value in named)


def _read_acceptance(reply: Replied, reads_errors: bool) -> JobAccepted | Doubtful:
    members = None
    with suppress(ValueError):
        members = decoded(reply.body)[0]
    if not isinstance(members, Object):
        return JobAccepted()
    error = envelope_in(members) if reads_errors else None
    if error is not None and error.certain:
        return Doubtful(f"the terminal answered HTTP {reply.status} with {error.name}")
    known = [name for name in ID_NAMES if name in members and name not in members.repeated]
    named = _identity(members[known[0]]) if known else None
    word = _text(members.get("status")) if "status" not in members.repeated else None
    if not word or UNREADABLE in word:
        return JobAccepted(named)
    return JobAccepted(named, _report(word, members))


def _identity(value: Any) -> str | None:
    """Return an id that is valid in the path of a poll, or None."""
    text = _text(value, MAX_JOB_ID + 1)
    return text if text and len(text) <= MAX_JOB_ID and text.strip(".") and UNREADABLE not in text else None


def _required(members: Object, name: str) -> str:
    if name in members.repeated:
        raise NotAPrintEvent(CallbackResult.TWO_VALUES, name=name)
    text = _text(members.get(name), MAX_JOB_ID + 1)
    if not text or not text.strip("."):
        raise NotAPrintEvent(CallbackResult.NO_TEXT, name=name)
    if len(text) > MAX_JOB_ID:
        raise NotAPrintEvent(CallbackResult.LONG_TEXT, name=name, most=MAX_JOB_ID)
    return text


def _text(value: Any, limit: int = MAX_TEXT) -> str | None:
    text = as_text(value)
    return None if text is None else text[:limit]
