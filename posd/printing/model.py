"""State of a print job, and its transitions.

A job is sent once. A job is `active` when it is proved that the terminal has it. A job is `final` after COMPLETED or
FAILED from the terminal, by a webhook or by a poll, whichever arrives first (`take`). A job is also `final`, without a
status, if it certainly was not accepted (`conclude`). Otherwise the job stays in doubt and is polled.

Effect of a report after the end, by the source of the end (`decided_by`):

| report                        | the terminal (webhook, poll)        | refusal, unsent     | operator            |
| ----------------------------- | ----------------------------------- | ------------------- | ------------------- |
| the same end                  | a missing error is added            | (not possible)      | replaced            |
| another end                   | `conflicting_final`, the end stays  | replaced, corrected | replaced, corrected |
| PENDING, IN_PROGRESS, unknown | none                                | reopened, corrected | none                |

"Replaced": the terminal is the source of the end from then on. "Corrected": the attention `outcome_corrected` is
raised. Elapsed time never ends a job. A job without an end is shown as stuck, and stays open.

Source: terminal API, Printing.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, assert_never

import msgspec
from msgspec import Meta

from posd.base.times import iso
from posd.records.model import Phase, RecordAttention, RecordState, attended, clear
from posd.terminals.attempt import Doubtful, NotSent, StartRefused, with_remark


class JobReport(msgspec.Struct, frozen=True):
    """The terminal's report about a job, by webhook, poll or reply. `status`: the terminal's word, known or unknown.

    `job_id`: the id in the report, or None. Errors are present for FAILED only (terminal API, Printing).
    """

    status: str
    job_id: str | None = None
    external_reference: str = ""
    error_code: str | None = None
    error_message: str | None = None


class JobAccepted(msgspec.Struct, frozen=True):
    """The terminal accepted the job. `job_id`: the id in the reply. `report`: the state in the reply, if any."""

    job_id: str | None = None
    report: JobReport | None = None


Judgement = JobAccepted | StartRefused | NotSent | Doubtful


#: Words for the log and the history, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    JobAccepted: "accepted",
    StartRefused: "refused",
    NotSent: "unsent",
    Doubtful: "in_doubt",
}


_set = msgspec.structs.replace


class PrintStatus(StrEnum):
    """The terminal's states of a print job (terminal API, Printing)."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @classmethod
    def known(cls, word: str) -> "PrintStatus | None":
        """Return the state for a word of the wire, or None for an unknown word."""
        return cls._value2member_map_.get(word)  # type: ignore[return-value]


FINALS = frozenset({PrintStatus.COMPLETED, PrintStatus.FAILED})

#: Order of the states. A job never goes back to a lower one, because a reply can be older than a webhook.
RANK: Mapping[PrintStatus | None, int] = {
    None: 0,
    PrintStatus.PENDING: 1,
    PrintStatus.IN_PROGRESS: 2,
    PrintStatus.COMPLETED: 3,
    PrintStatus.FAILED: 3,
}


class DecidedBy(StrEnum):
    """Source of the end of a print job (local API, `decided_by`)."""

    WEBHOOK = "webhook"
    POLL = "poll"  # or a reply to the creation request with an end state
    REFUSAL = "refusal"
    UNSENT = "unsent"
    OPERATOR = "operator"


#: Source of the terminal's report.
Source = Literal[DecidedBy.WEBHOOK, DecidedBy.POLL]

#: Sources of an end. `STATED`: the terminal reported it. `NOT_ACCEPTED`: the terminal certainly does not have the job.
STATED = frozenset({DecidedBy.WEBHOOK, DecidedBy.POLL})
NOT_ACCEPTED = frozenset({DecidedBy.REFUSAL, DecidedBy.UNSENT})


class PrintAttentionCode(StrEnum):
    """Code of an attention of a print job (local API, `attention`)."""

    IN_DOUBT = "in_doubt"
    PRINT_STUCK = "print_stuck"
    QUARANTINED_EVENT = "quarantined_event"
    UNKNOWN_STATUS = "unknown_status"
    ID_MISMATCH = "id_mismatch"
    CONFLICTING_FINAL = "conflicting_final"
    OUTCOME_CORRECTED = "outcome_corrected"
    ORPHAN = "orphan"


#: Attentions that the terminal's final report closes.
SETTLED = (
    PrintAttentionCode.IN_DOUBT,
    PrintAttentionCode.PRINT_STUCK,
    PrintAttentionCode.QUARANTINED_EVENT,
    PrintAttentionCode.UNKNOWN_STATUS,
)
#: Attentions that an operator's decision closes.
SETTLED_BY_PERSON = (PrintAttentionCode.IN_DOUBT, PrintAttentionCode.PRINT_STUCK)


class PrintAttention(RecordAttention, frozen=True):
    """Attention of a print job: condition, start and detail."""

    code: Annotated[PrintAttentionCode, Meta(description="which condition")]


class PrintJob(RecordState, frozen=True, kw_only=True):
    """One document for one terminal. `document`: the till's JSON object, verbatim."""

    print_job_id: str
    terminal: str | None  # None for an orphan, because a webhook has no serial
    external_reference: str = ""
    document: bytes = b"{}"
    reprint_of: str | None = None
    queued: bool = False  # it waits in the queue, and nothing was sent
    terminal_job_id: str | None = None  # the terminal's own id, if it is not `print_job_id`
    accepted_at: str | None = None  # time since which the terminal certainly has the job
    status: PrintStatus | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None  # why it was not accepted
    decided_by: DecidedBy | None = None
    attention: tuple[PrintAttention, ...] = ()

    @property
    def asked_as(self) -> str:
        """The id of the job in polls of the terminal."""
        return self.terminal_job_id or self.print_job_id


def attend(job: PrintJob, code: PrintAttentionCode, now: datetime, detail: str) -> PrintJob:
    """Raise an attention. If the attention is already open, keep its start time and set the newer detail."""
    return attended(job, PrintAttention(code=code, since=iso(now), detail=detail))


def belongs(job: PrintJob, named: str) -> bool:
    """Return whether a callback with this id belongs to the job of its token.

    The callback belongs to the job if it has the till's id, or the terminal's own id of the job. Until a reply has
    shown the terminal's own id, any id is accepted. The token proves that the address belongs to this job, and the
    terminal never sends the webhook again.
    """
    return named in (job.print_job_id, job.terminal_job_id) or (job.terminal_job_id is None and not job.acknowledged)


def conclude(job: PrintJob, judgement: Judgement, now: datetime) -> PrintJob:
    """Apply the judgement of the one creation request. A webhook can arrive before the judgement, and overrides it."""
    before = job
    match judgement:
        case JobAccepted(job_id=named, report=report):
            job = _accept(_name(_set(job, acknowledged=True), named, now), "its reply", now)
            known = report if report is not None and PrintStatus.known(report.status) else None
            job = _take(job, known, DecidedBy.POLL, now) if known else job
        case StartRefused() | NotSent() if job.phase is Phase.STARTING and not job.heard:
            job = _not_accepted(job, judgement)
        case StartRefused() | NotSent() if job.phase is Phase.STARTING:
            # An unusable callback arrived before the reply.
            job = doubt(job, "it was refused or not sent, and yet a callback of it arrived", now)
        case Doubtful(reason=reason) if job.phase is Phase.STARTING:
            job = doubt(job, reason, now)
        case StartRefused() | NotSent() | Doubtful():
            pass  # a webhook that arrived before the reply has more information
        case _:
            assert_never(judgement)
    return _touch(job, before, now)


def take(job: PrintJob, report: JobReport, source: Source, now: datetime) -> PrintJob:
    """Apply a report of the terminal. The caller has checked that the report is about this job."""
    before = job
    job = _set(job, heard=True)
    if report.job_id not in (None, job.print_job_id, job.terminal_job_id):
        job = _set(job, terminal_job_id=report.job_id)
    return _touch(_take(job, report, source, now), before, now)


def rebuild(report: JobReport, print_job_id: str, now: datetime) -> PrintJob:
    """Return a job (an orphan) for an authentic webhook whose id is not in the database."""
    orphan = PrintJob(
        print_job_id=print_job_id,
        terminal=None,
        created_at=iso(now),
        updated_at=iso(now),
        phase=Phase.ACTIVE,
        external_reference=report.external_reference,
    )
    return attend(
        orphan,
        PrintAttentionCode.ORPHAN,
        now,
        "an authentic webhook arrived for a print job that is not in this database (restored from a backup?); "
        "its terminal and its document are not known here",
    )


def doubt(job: PrintJob, reason: str, now: datetime) -> PrintJob:
    """Put a job in doubt. `reason`: why its request may have reached the terminal."""
    detail = f"cannot tell whether terminal {job.terminal or '(unknown)'} has this print job: {reason}"
    return attend(_set(job, phase=Phase.IN_DOUBT, queued=False), PrintAttentionCode.IN_DOUBT, now, detail)


def interrupted(job: PrintJob, now: datetime, *, in_line: bool) -> PrintJob:
    """Recover a job that a daemon left in phase `starting`. If the job still waited in the queue, nothing was sent."""
    if job.phase is not Phase.STARTING:
        return job
    if in_line and not job.heard:
        return _touch(_not_accepted(job, NotSent("posd ended before it was this job's turn to be sent")), job, now)
    return _touch(doubt(job, "posd was interrupted while it sent the request", now), job, now)


def turn(job: PrintJob, sent_to: str | None, now: datetime) -> PrintJob:
    """Record that the job is about to be sent. `sent_to`: the terminal's present address, or None if it is unknown."""
    if job.orphan:
        sent_to = None  # only its journal was restored, so the job stays an orphan
    return _touch(_set(job, queued=False, sent_to=sent_to or job.sent_to), job, now)


def stuck(job: PrintJob, seconds: float, now: datetime) -> PrintJob:
    """Record that the terminal has had the job for some seconds without an end."""
    if job.phase is not Phase.ACTIVE:
        return job
    detail = (
        f"terminal {job.terminal or '(unknown)'} has had the job for {seconds:g} s without an end ({job.status}): "
        f"check whether it is out of paper or jammed; then record what it printed (posd resolve {job.print_job_id})"
    )
    return _touch(attend(job, PrintAttentionCode.PRINT_STUCK, now, detail), job, now)


def quarantined(job: PrintJob, reason: str, now: datetime) -> PrintJob:
    """Record that an authentic callback of this job was refused.

    The callback's token proves that the request arrived.
    """
    detail = f"a callback of this print job could not be used: {reason}"
    noted = attend(_set(job, heard=True), PrintAttentionCode.QUARANTINED_EVENT, now, detail)
    if noted.decided_by in NOT_ACCEPTED:
        noted = doubt(_reopen(noted, "something that could not be used", now), "a callback arrived after all", now)
    return _touch(noted, job, now)


def resolved(job: PrintJob, status: PrintStatus, now: datetime) -> PrintJob:
    """Close an open job by an operator's decision. A later report of the terminal supersedes it."""
    if job.phase is Phase.FINAL:
        return job
    ended = _end(job, status, DecidedBy.OPERATOR)
    return _touch(clear(ended, *SETTLED_BY_PERSON), job, now)


def dismissed(job: PrintJob, code: PrintAttentionCode, now: datetime) -> PrintJob:
    """Close one attention, by an operator's decision or because its cause has ended."""
    return _touch(clear(job, code), job, now)


def taken_over(job: PrintJob, reason: str, now: datetime) -> PrintJob:
    """Put a job in doubt, because a restore has little more of it than the id (`TakenOver`)."""
    doubtful = doubt(_set(job, heard=True), reason, now)
    detail = f"{reason}; how this print job ended is not known here: check the paper"
    return _touch(attend(doubtful, PrintAttentionCode.ORPHAN, now, detail), job, now)


def _touch(job: PrintJob, before: PrintJob, now: datetime) -> PrintJob:
    return job if job == before else _set(job, updated_at=iso(now))


def _name(job: PrintJob, named: str | None, now: datetime) -> PrintJob:
    """Record the terminal's own id of the job from the reply. A callback with another id may be of another job."""
    if named is None:
        return job
    earlier, own = job.terminal_job_id, None if named == job.print_job_id else named
    job = _set(job, terminal_job_id=own)
    if earlier is None or earlier == own:
        return job
    detail = (
        f"the terminal calls it {named} in its reply, and called it {earlier} in a callback before: the state in "
        "the callback may be of another print job"
    )
    return attend(job, PrintAttentionCode.ID_MISMATCH, now, detail)


def _accept(job: PrintJob, news: str, now: datetime) -> PrintJob:
    """Record that the terminal has the job. If posd had inferred that it does not, reopen it. Any other end stays."""
    if job.decided_by in NOT_ACCEPTED:
        job = _reopen(job, news, now)
    if job.phase is Phase.FINAL:
        return job
    job = _set(
        job,
        phase=Phase.ACTIVE,
        queued=False,
        accepted_at=job.accepted_at or iso(now),
        status=job.status or PrintStatus.PENDING,
    )
    return clear(job, PrintAttentionCode.IN_DOUBT)


def _reopen(job: PrintJob, news: str, now: datetime) -> PrintJob:
    """Withdraw the conclusion that the job was not accepted."""
    detail = f"it was concluded that the terminal does not have it ({job.decided_by}), but the terminal sent {news}"
    job = _set(job, phase=Phase.ACTIVE, decided_by=None, reason=None)
    return attend(job, PrintAttentionCode.OUTCOME_CORRECTED, now, detail)


def _take(job: PrintJob, report: JobReport, source: Source, now: datetime) -> PrintJob:
    status = PrintStatus.known(report.status)
    if status in FINALS:
        return _finish(job, status, report, source, now)
    job = _accept(job, report.status, now)
    if job.phase is Phase.FINAL:
        return job
    if status is None:
        detail = f"the terminal reports a state of a print job that is unknown here: {report.status}"
        return attend(job, PrintAttentionCode.UNKNOWN_STATUS, now, detail)
    return _set(job, status=status) if RANK[status] > RANK[job.status] else job


def _finish(job: PrintJob, status: PrintStatus, report: JobReport, source: Source, now: datetime) -> PrintJob:
    """Apply a final report of the terminal."""
    if job.decided_by in STATED:
        return _compare(job, status, report, source, now)
    inferred, old = job.decided_by, job.status
    error_code, error_message = _errors(status, report)
    job = _end(job, status, source, error_code, error_message)
    job = clear(_set(job, accepted_at=job.accepted_at or iso(now)), *SETTLED)
    if inferred is None or old is status:
        return job
    detail = f"it had ended by {inferred} ({old or 'not accepted'}), and the terminal says {status}, which counts"
    return attend(job, PrintAttentionCode.OUTCOME_CORRECTED, now, detail)


def _compare(job: PrintJob, status: PrintStatus, report: JobReport, source: Source, now: datetime) -> PrintJob:
    """Compare a final report of the terminal with the end that the terminal reported first."""
    if status is not job.status:
        detail = (
            f"the terminal said {job.status} by {job.decided_by}, and then {status} by {source}; the first "
            "report counts. Check the paper"
        )
        return attend(job, PrintAttentionCode.CONFLICTING_FINAL, now, detail)
    error_code, error_message = _errors(status, report)
    return _set(job, error_code=job.error_code or error_code, error_message=job.error_message or error_message)


def _errors(status: PrintStatus, report: JobReport) -> tuple[str | None, str | None]:
    return (report.error_code, report.error_message) if status is PrintStatus.FAILED else (None, None)


def _not_accepted(job: PrintJob, judgement: StartRefused | NotSent) -> PrintJob:
    match judgement:
        case StartRefused(status=status, body=body, remark=remark):
            words = f"the terminal refused it (HTTP {status})" + (f": {body}" if body.strip() else "")
            reason = with_remark(words, remark)
            return _set(_end(job, None, DecidedBy.REFUSAL), reason=reason)
        case NotSent(reason=reason):
            return _set(_end(job, None, DecidedBy.UNSENT), reason=f"it was not sent: {reason}")
        case _:
            assert_never(judgement)


def _end(
    job: PrintJob,
    status: PrintStatus | None,
    decided_by: DecidedBy,
    error_code: str | None = None,
    error_message: str | None = None,
) -> PrintJob:
    return _set(
        job,
        phase=Phase.FINAL,
        queued=False,
        status=status,
        error_code=error_code,
        error_message=error_message,
        reason=None,
        decided_by=decided_by,
    )
