"""The lines of a transaction's history: what happened to it, and who did what (local API, history).

Each kind has fields of its own. `kind` is first but for `at`, so that it is no tag of msgspec's.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from posd.base.json_types import OPEN, Uuid, Wire
from posd.payments.abort_replies import AbortAnswer
from posd.payments.lifecycle import Verdict
from posd.payments.model import AttentionCode, Evidence, Result, SearchResult
from posd.records.history import (
    AttemptLine,
    DecisionLine,
    IntentLine,
    Line,
    QuarantinedLine,
    ReappliedLine,
    TakenOverLine,
)


class EventLine(Line, frozen=True, kw_only=True):
    """An event of the terminal came."""

    kind: Literal["event"] = "event"
    seq: Annotated[int, Meta(description="its place in `events`")]
    status: Annotated[str, Meta(description="the state that it states, known or not")]
    verdict: Annotated[str, Wire(Verdict), Meta(description="what became of it")]


class InterruptedLine(Line, frozen=True, kw_only=True):
    """A daemon started, and found that the one before had ended while it sent the request."""

    kind: Literal["interrupted"] = "interrupted"


class SearchLine(Line, frozen=True, kw_only=True):
    """The terminal was asked what became of it."""

    kind: Literal["search"] = "search"
    result: Annotated[SearchResult, Meta(description="what came")]
    http_status: Annotated[int | None, Meta(description="the terminal's, where it was no answer")]
    reason: Annotated[str | None, Meta(description="why it was no answer")]


class AbortRequestedLine(Line, frozen=True, kw_only=True):
    """An abort is about to be sent."""

    kind: Literal["abort_requested"] = "abort_requested"
    probe: Annotated[bool, Meta(description="posd asks by itself whether anything runs")]
    uid: Annotated[int | None, Meta(description="user id of the process that asked for it")]


class AbortAnsweredLine(Line, frozen=True, kw_only=True):
    """What came of the abort."""

    kind: Literal["abort_answered"] = "abort_answered"
    answer: Annotated[AbortAnswer, Meta(description="what the terminal makes of it")]
    http_status: Annotated[int | None, Meta(description="the terminal's, null where no whole reply came")]
    reason: Annotated[str | None, Meta(description="why there was no reply")]


class SilentLine(Line, frozen=True, kw_only=True):
    """Nothing came of the terminal."""

    kind: Literal["no_callback", "stalled"]
    seconds: Annotated[float, Meta(description="for so long")]


class ProofLine(Line, frozen=True, kw_only=True):
    """It was proved that it never started."""

    kind: Literal["proof"] = "proof"
    evidence: Annotated[tuple[Evidence, ...], Meta(description="by what")]


class ReleaseLine(DecisionLine, frozen=True, kw_only=True):
    """A person freed its terminal."""

    kind: Literal["release"] = "release"


class ResolveLine(DecisionLine, frozen=True, kw_only=True):
    """A person said how it ended."""

    kind: Literal["resolve"] = "resolve"
    result: Annotated[Result, Meta(description="how")]
    transaction_reference: Annotated[Uuid | None, Meta(description="the acquirer's, of an approval")]


class AcknowledgeLine(DecisionLine, frozen=True, kw_only=True):
    """A person closed an attention."""

    kind: Literal["acknowledge"] = "acknowledge"
    code: Annotated[AttentionCode, Meta(description="which")]


class BrokeOffLine(Line, frozen=True, kw_only=True):
    """The connection of an authentic callback broke off before its body was whole."""

    kind: Literal["callback_broke_off"] = "callback_broke_off"


class AddressLine(Line, frozen=True, kw_only=True):
    """This machine lost the address in its callback URL, or has it again."""

    kind: Literal["address_changed", "address_back"]
    host: Annotated[str, Meta(description="the address")]


HistoryLine = (
    IntentLine
    | EventLine
    | AttemptLine
    | InterruptedLine
    | SearchLine
    | AbortRequestedLine
    | AbortAnsweredLine
    | QuarantinedLine
    | SilentLine
    | ProofLine
    | ReleaseLine
    | ResolveLine
    | AcknowledgeLine
    | BrokeOffLine
    | TakenOverLine
    | ReappliedLine
    | AddressLine
)


class History(msgspec.Struct, frozen=True):
    """All that happened to a transaction, in order."""

    history: Annotated[list[Annotated[HistoryLine, OPEN]], Meta(description="in the order in which posd learnt of it")]
