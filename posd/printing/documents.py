"""The documents of print jobs (local API, Print jobs)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from posd.base.json_types import OPEN, Moment, Wire
from posd.printing.events import NoAnswer
from posd.printing.model import DecidedBy, PrintAttention, PrintAttentionCode, PrintStatus
from posd.records.history import (
    AttemptLine,
    DecisionLine,
    IntentLine,
    Line,
    QuarantinedLine,
    ReappliedLine,
    TakenOverLine,
)
from posd.records.model import Phase


class PrintJob(msgspec.Struct, frozen=True, kw_only=True):
    """One document for one terminal, as it stands; the document itself is not shown again."""

    print_job_id: Annotated[str, Meta(description="the id that the till chose")]
    terminal: Annotated[
        str | None, Meta(description="serial number of the terminal, null for a job that was rebuilt from a webhook")
    ]
    external_reference: Annotated[str, Meta(description="the till's own, empty where it gave none")]
    reprint_of: Annotated[str | None, Meta(description="the job that this one prints again")]
    reprints: Annotated[list[str], Meta(description="the jobs that print this one again")]
    status: Annotated[PrintStatus | None, Meta(description="the terminal's state, null while it has not accepted it")]
    phase: Annotated[
        Phase, Meta(description="posd's own view; `in_doubt`: it is not known whether the terminal has it")
    ]
    error_code: Annotated[str | None, Meta(description="the terminal's, of FAILED")]
    error_message: Annotated[str | None, Meta(description="the terminal's, of FAILED")]
    reason: Annotated[str | None, Meta(description="why it was not accepted")]
    terminal_job_id: Annotated[str | None, Meta(description="the terminal's own id, where it is another")]
    created_at: Annotated[Moment, Meta(description="when the till asked for it")]
    updated_at: Annotated[Moment, Meta(description="when it changed last")]
    decided_by: Annotated[DecidedBy | None, Meta(description="what its end rests on, null until it has one")]
    attention: Annotated[tuple[PrintAttention, ...], Meta(description="what a person should look at")]


class PrintJobPage(msgspec.Struct, frozen=True):
    """Print jobs, newest first."""

    print_jobs: Annotated[list[PrintJob], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]


class TurnLine(Line, frozen=True, kw_only=True):
    """Its turn to be sent came, after it had waited for those before it."""

    kind: Literal["turn"] = "turn"
    sent_to: Annotated[
        str | UnsetType, Meta(description="where its terminal was by then; absent where that was not known")
    ] = UNSET


class PrintInterruptedLine(Line, frozen=True, kw_only=True):
    """A daemon started, and found that the one before had ended before the job was sent, or meanwhile."""

    kind: Literal["interrupted"] = "interrupted"
    in_line: Annotated[bool, Meta(description="its turn had not come: nothing was sent")]


class WebhookLine(Line, frozen=True, kw_only=True):
    """A webhook of it came."""

    kind: Literal["webhook"] = "webhook"
    status: Annotated[str, Meta(description="the state that it states, known or not")]
    error_code: Annotated[str | None, Meta(description="the terminal's, of FAILED")]
    error_message: Annotated[str | None, Meta(description="the terminal's, of FAILED")]
    body: Annotated[Raw, Wire(dict[str, object]), Meta(description="the webhook as it came")]


class PollLine(Line, frozen=True, kw_only=True):
    """The terminal was asked for its state, and said it."""

    kind: Literal["poll"] = "poll"
    status: Annotated[str, Meta(description="the state that it states, known or not")]
    error_code: Annotated[str | None, Meta(description="the terminal's, of FAILED")]
    error_message: Annotated[str | None, Meta(description="the terminal's, of FAILED")]


class UnansweredPollLine(Line, frozen=True, kw_only=True):
    """The terminal was asked for its state, and did not say it."""

    kind: Literal["poll"] = "poll"
    answer: Annotated[NoAnswer, Meta(description="what came instead")]


class StuckLine(Line, frozen=True, kw_only=True):
    """The terminal has had it for long without an end."""

    kind: Literal["print_stuck"] = "print_stuck"
    seconds: Annotated[float, Meta(description="for so long")]


class PrintResolveLine(DecisionLine, frozen=True, kw_only=True):
    """A person said what came out of the printer."""

    kind: Literal["resolve"] = "resolve"
    result: Annotated[PrintStatus, Meta(description="how it ended")]


class PrintAcknowledgeLine(DecisionLine, frozen=True, kw_only=True):
    """A person closed an attention."""

    kind: Literal["acknowledge"] = "acknowledge"
    code: Annotated[PrintAttentionCode, Meta(description="which")]


PrintHistoryLine = (
    IntentLine
    | TurnLine
    | AttemptLine
    | PrintInterruptedLine
    | WebhookLine
    | PollLine
    | UnansweredPollLine
    | StuckLine
    | QuarantinedLine
    | ReappliedLine
    | PrintResolveLine
    | PrintAcknowledgeLine
    | TakenOverLine
)


class PrintHistory(msgspec.Struct, frozen=True):
    """All that happened to a print job, in order."""

    history: Annotated[
        list[Annotated[PrintHistoryLine, OPEN]], Meta(description="in the order in which posd learnt of it")
    ]
