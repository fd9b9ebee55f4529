"""Documents of print jobs (local API, Print jobs)."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from posd.base.json_types import Moment, WireFormat, presentable
from posd.printing import entries, model, rows
from posd.printing.entries import Called, Created, Entry, Polled, Turn
from posd.printing.model import NAMES, DecidedBy, PrintAttention, PrintStatus
from posd.printing.wire import NoAnswer, PollAnswered, read_webhook
from posd.records.model import (
    QUARANTINED_LINE,
    REAPPLIED_LINE,
    TAKEN_OVER_LINE,
    AttemptLine,
    IntentLine,
    Line,
    Phase,
    facts_of,
    line_of,
    own_line,
    same_fields,
)
from posd.records.pages import Filters, encode_cursor, joined
from posd.records.quarantine import MAX_SHOWN, ReprocessResult


class PrintJob(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one print job. The printed document is not included."""

    print_job_id: Annotated[str, Meta(description="the id that the till chose")]
    terminal: Annotated[
        str | None, Meta(description="serial number of the terminal, null for a job that was rebuilt from a webhook")
    ]
    external_reference: Annotated[str, Meta(description="the till's reference, empty without one")]
    reprint_of: Annotated[str | None, Meta(description="the job that this one reprints")]
    reprints: Annotated[list[str], Meta(description="the jobs that reprint this one")]
    status: Annotated[PrintStatus | None, Meta(description="the terminal's state of the job, null until accepted")]
    phase: Annotated[
        Phase, Meta(description="posd's own view; `in_doubt`: posd cannot tell whether the terminal has it")
    ]
    error_code: Annotated[str | None, Meta(description="the terminal's code, if `FAILED`")]
    error_message: Annotated[str | None, Meta(description="the terminal's message, if `FAILED`")]
    reason: Annotated[str | None, Meta(description="why the job was not accepted; else null")]
    terminal_job_id: Annotated[str | None, Meta(description="the terminal's own id of the job, if it differs")]
    created_at: Annotated[Moment, Meta(description="time of the till's request")]
    updated_at: Annotated[Moment, Meta(description="when it changed last")]
    decided_by: Annotated[DecidedBy | None, Meta(description="the basis of its end, null before the end")]
    attention: Annotated[tuple[PrintAttention, ...], Meta(description="what an operator should check")]


class AskedPrintJob(msgspec.Struct, frozen=True):
    """Reply of the terminal to a poll of a print job, and the state of the job after it."""

    status: Annotated[str | None, Meta(description="the state in the reply, known or not; null if there is none")]
    reason: Annotated[str | None, Meta(description="why there is no usable reply; else null")]
    print_job: Annotated[PrintJob, Meta(description="the print job after the call")]


class PrintJobPage(msgspec.Struct, frozen=True):
    """Print jobs, newest first."""

    print_jobs: Annotated[list[PrintJob], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]


class TurnLine(Line, frozen=True, kw_only=True):
    """The jobs before this one in the queue were sent, and this job is sent next."""

    kind: Literal["turn"] = "turn"
    sent_to: Annotated[
        str | UnsetType, Meta(description="its terminal's address at that time; absent if not known")
    ] = UNSET


class WebhookLine(Line, frozen=True, kw_only=True):
    """A webhook of the job arrived."""

    kind: Literal["webhook"] = "webhook"
    status: Annotated[str, Meta(description="the state in the webhook, known or not")]
    error_code: Annotated[str | None, Meta(description="the terminal's code, if `FAILED`")]
    error_message: Annotated[str | None, Meta(description="the terminal's message, if `FAILED`")]
    body: Annotated[Raw, WireFormat(dict[str, object]), Meta(description="the webhook as received, tokens redacted")]


class PollLine(Line, frozen=True, kw_only=True):
    """The terminal was polled, and gave the state of the job."""

    kind: Literal["poll"] = "poll"
    status: Annotated[str, Meta(description="the state in the reply, known or not")]
    error_code: Annotated[str | None, Meta(description="the terminal's code, if `FAILED`")]
    error_message: Annotated[str | None, Meta(description="the terminal's message, if `FAILED`")]


class UnansweredPollLine(Line, frozen=True, kw_only=True):
    """The terminal was polled, and did not give the state of the job."""

    kind: Literal["poll"] = "poll"
    answer: Annotated[NoAnswer, Meta(description="the reply without a state, or why none arrived")]


#: Types of the lines, in the order of the API's description. `line_of` makes some of them from the journal entries.
HISTORY_LINES: tuple[type[Line], ...] = (
    IntentLine,
    TurnLine,
    AttemptLine,
    line_of(
        "PrintInterruptedLine",
        "posd started, and found that its earlier process had ended before or while it sent the job.",
        entries.Interrupted,
    ),
    WebhookLine,
    PollLine,
    UnansweredPollLine,
    line_of("StuckLine", "The terminal accepted the job long ago, and has not ended it.", entries.Stuck),
    QUARANTINED_LINE,
    REAPPLIED_LINE,
    line_of("PrintResolveLine", "An operator recorded what was printed.", entries.Resolved),
    line_of("PrintAcknowledgeLine", "An operator closed an attention.", entries.Dismissed),
    TAKEN_OVER_LINE,
)
HISTORY_LINE: Any = Union[HISTORY_LINES]  # noqa: UP007 - of a tuple


class PrintHistory(msgspec.Struct, frozen=True):
    """All that happened to a print job, in order."""

    history: Annotated[
        list[Annotated[Line, WireFormat(HISTORY_LINE), Meta(extra={"later": "LaterPrintLine"})]],
        Meta(description="in the order in which posd received them"),
    ]


# Conversion of jobs and rows into documents (local API, Print jobs). The fields have the names of the API.


def job_document(db: sqlite3.Connection | None, job: model.PrintJob) -> PrintJob:
    """Return the local API's document of a job, without the printed document. With `db` None, omit its reprints."""
    reprints = [] if db is None else rows.reprints(db, job.print_job_id)
    return PrintJob(**same_fields(PrintJob, job) | {"reprints": reprints, "attention": job.shown_attention})


def history_document(db: sqlite3.Connection, job: model.PrintJob) -> PrintHistory:
    """Return the history of a job in order: its start and the entries of its journal."""
    first = IntentLine(at=job.created_at, terminal=job.terminal)
    lines = [line(at, entry) for at, entry in rows.journal(db, job.print_job_id)]
    return PrintHistory(lines if job.orphan else [first, *lines])


def line(at: str, entry: Entry) -> Line:
    """Return the line of the history for an entry of the journal."""
    match entry:
        case Turn(sent_to=sent_to):
            return TurnLine(at=at, sent_to=sent_to or msgspec.UNSET)
        case Called(body=body):
            said = same_fields(WebhookLine, read_webhook(body))
            return WebhookLine(at=at, **said, body=msgspec.Raw(presentable(body)))
        case Created(attempt=attempt):
            return AttemptLine(at=at, judgement=NAMES[type(entry.judgement)], **facts_of(attempt))
        case Polled(answer=PollAnswered(report=said)):
            return PollLine(at=at, status=said.status, error_code=said.error_code, error_message=said.error_message)
        case Polled(answer=NoAnswer() as answer):
            return UnansweredPollLine(at=at, answer=answer)
        case _:
            return own_line(HISTORY_LINES, at, entry)


# The list of print jobs (local API, GET /print-jobs).


class PrintJobQuery(Filters, frozen=True, kw_only=True):
    """Filters of the list of print jobs."""

    external_reference: str | None = None

    def index(self) -> str:
        """Return the name of the index to read (see `Filters.index`)."""
        return "external_reference" if self.external_reference else super().index()


def read_page(db: sqlite3.Connection, page: PrintJobQuery) -> tuple[list[model.PrintJob], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next page.

    A filter by the beginning of ids has one page, sorted by id.
    """
    if page.id is not None:
        return rows.beginning(db, page.id, page.limit), None
    conditions = [*page.conditions().values(), *page.places("created_at", "print_job_id")]
    if page.external_reference is not None:
        conditions.append(("external_reference = ?", (page.external_reference,)))
        if page.external_reference:
            conditions.append(("external_reference <> ''", ()))
    found = rows.select(db, page.index(), *joined(conditions), page.limit + 1)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return shown, encode_cursor(shown[-1].created_at, shown[-1].print_job_id) if more else None


# Results of reprocessing (local API, POST /reprocess).


class PrintApplied(msgspec.Struct, frozen=True):
    """A body of the quarantine that was applied."""

    id: Annotated[int, Meta(description="its id in the quarantine")]
    print_job_id: Annotated[str, Meta(description="the record that it belongs to")]
    verdict: Annotated[str | None, Meta(description="`applied`, or `repeated` if it had nothing new")]


class PrintDifference(msgspec.Struct, frozen=True):
    """A job whose stored state differed from the state derived from its journal."""

    print_job_id: Annotated[str, Meta(description="the corrected print job")]
    fields: Annotated[tuple[str, ...], Meta(description="changed fields of the record; the names are posd's own")]
    before: Annotated[dict[str, Any], Meta(description="the earlier values")]
    after: Annotated[dict[str, Any], Meta(description="the values derived again, now stored")]


class PrintReport(msgspec.Struct):
    """Result of reprocessing for print jobs."""

    print_jobs: Annotated[int, Meta(description="number of records derived again")] = 0
    applied: Annotated[list[PrintApplied], Meta(description="the applied bodies of the quarantine")] = []
    differences: Annotated[list[PrintDifference], Meta(description=f"the corrections; the first {MAX_SHOWN}")] = []
    differing: Annotated[int, Meta(description="number of corrected print jobs")] = 0


def report(done: ReprocessResult) -> PrintReport:
    """Return the result of reprocessing for print jobs as a document of the local API."""
    return PrintReport(done.derived, done.applied, done.differences, done.differing)
