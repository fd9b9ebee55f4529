"""What payments and print jobs have in common."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from posd.base.json_types import Moment


class Phase(StrEnum):
    """posd's own view of a transaction."""

    STARTING = "starting"
    IN_DOUBT = "in_doubt"
    ACTIVE = "active"
    FINAL = "final"


# Lines that the histories of payments and print jobs share (local API, history).


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What every line begins with."""

    at: Annotated[Moment, Meta(description="when")]


class IntentLine(Line, frozen=True, kw_only=True):
    """The till's call was recorded; whatever was sent was sent after it."""

    kind: Literal["intent"] = "intent"
    terminal: Annotated[str | None, Meta(description="serial number of the terminal that was asked")]


class AttemptLine(Line, frozen=True, kw_only=True):
    """The one attempt to send the request ended."""

    kind: Literal["attempt"] = "attempt"
    judgement: Annotated[
        str,
        Meta(description="what it proves: `acknowledged`, `accepted`, `canceled`, `refused`, `unsent`, `in_doubt`"),
    ]
    http_status: Annotated[int | None, Meta(description="the terminal's, null where no whole reply came")]
    reason: Annotated[str | None, Meta(description="why there was no reply")]


class QuarantinedLine(Line, frozen=True, kw_only=True):
    """An authentic callback was refused, and is kept in quarantine."""

    kind: Literal["quarantined"] = "quarantined"
    reason: Annotated[str, Meta(description="why")]


class DecisionLine(Line, frozen=True, kw_only=True):
    """What a person did begins with who and why."""

    kind: str
    operator: Annotated[str, Meta(description="who")]
    note: Annotated[str, Meta(description="why")]
    uid: Annotated[int | None, Meta(description="user id of the process that said so, where that is known")]


class TakenOverLine(Line, frozen=True, kw_only=True):
    """It was taken over, in doubt: from the replaced database, from the witness, or from a list of ids."""

    kind: Literal["taken_over"] = "taken_over"
    reason: Annotated[str, Meta(description="what is known of it, and from where")]


class ReappliedLine(Line, frozen=True, kw_only=True):
    """Callbacks of the quarantine were applied after all."""

    kind: Literal["reapplied"] = "reapplied"
