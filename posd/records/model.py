"""Shared model of payments and print jobs: state, entries, lines of the history, and tombstones of retention."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

from posd.base.json_types import Moment
from posd.base.problems import Problem
from posd.base.text import shown
from posd.terminals.attempt import Attempt, Replied


class Phase(StrEnum):
    """posd's own view of a payment or a print job."""

    STARTING = "starting"
    IN_DOUBT = "in_doubt"
    ACTIVE = "active"
    FINAL = "final"


class RecordAttention(msgspec.Struct, frozen=True):
    """Condition that an operator should check. An attention never changes an outcome."""

    code: str
    since: Annotated[Moment, Meta(description="since when")]
    detail: Annotated[str, Meta(description="its meaning, and what to do")]


class RecordState(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of a payment and a print job. Times are ISO 8601 texts."""

    terminal: str | None
    created_at: str
    updated_at: str
    phase: Phase
    sent_to: str | None = None  # base URL to which the request is sent
    acknowledged: bool = False  # the terminal accepted the request
    heard: bool = False  # a terminal has sent something about it, or may have done so before a restore
    attention: tuple[RecordAttention, ...] = ()
    revision: int = 0

    @property
    def orphan(self) -> bool:
        """Whether the database lacks the till's request: the record is from a callback, a restore or an operator."""
        return self.sent_to is None

    @property
    def updates_terminal(self) -> bool:
        """Whether callbacks of this record may update data of terminals. Callbacks of an ended record must not."""
        return self.phase is not Phase.FINAL

    @property
    def shown_attention(self) -> tuple[Any, ...]:
        """The open attentions, each with its detail in one printable line."""
        return tuple(msgspec.structs.replace(item, detail=shown(item.detail)) for item in self.attention)

    def attention_of(self, code: str) -> RecordAttention | None:
        """Return the open attention of that code, or None."""
        return next((item for item in self.attention if item.code == code), None)


S = TypeVar("S", bound=RecordState)


def attended(record: S, item: RecordAttention) -> S:
    """Return a record with an attention.

    If the record has an attention with this code, its start time stays, and its detail is replaced.
    """
    if (old := record.attention_of(item.code)) is not None:
        item = msgspec.structs.replace(item, since=old.since)
    others = tuple(other for other in record.attention if other.code != item.code)
    return msgspec.structs.replace(record, attention=(*others, item))


def clear(record: S, *codes: str) -> S:
    """Return a record without the attentions of these codes."""
    return msgspec.structs.replace(record, attention=tuple(item for item in record.attention if item.code not in codes))


# Entries that the journals of payments and print jobs share.


class DecisionEntry(msgspec.Struct, frozen=True, tag_field="kind"):
    """Common fields of an operator's decision. `uid`: user id of the calling process, None if unknown."""

    operator: Annotated[str, Meta(description="name of the operator")]
    note: Annotated[str, Meta(description="the reason of the decision")]
    uid: Annotated[int | None, Meta(description="user id of the process that decided, if known")]


class Quarantined(msgspec.Struct, frozen=True, tag="quarantined", tag_field="kind", omit_defaults=True):
    """An authentic callback was refused. `serial_number`: the serial in the callback, if it was the reason."""

    reason: Annotated[str, Meta(description="why the callback was refused")]
    serial_number: str | None = None


class Reapplied(msgspec.Struct, frozen=True, tag="reapplied", tag_field="kind"):
    """Quarantined callbacks were applied later. The quarantine has no more bodies of this record."""


class TakenOver(msgspec.Struct, frozen=True, tag="taken_over", tag_field="kind"):
    """The record was taken over in doubt, from a replaced database, the witness or a list of ids.

    Only the id and the facts in `reason` are known.
    """

    reason: Annotated[str, Meta(description="what posd knows about it, and the source")]


def tag(entry: msgspec.Struct | type[msgspec.Struct]) -> str:
    """Return the name of an entry's kind, as in the journal and in the feed."""
    return str(entry.__struct_config__.tag)


# Lines of the history of a payment or a print job (local API, history).


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of the lines of a history."""

    ENTRIES: ClassVar[tuple[type[msgspec.Struct], ...]] = ()  # types of the journal entries with this type of line

    at: Annotated[Moment, Meta(description="when")]


def line_of(name: str, words: str, *entries: type[msgspec.Struct]) -> type[Line]:
    """Return a type of lines for these types of journal entries.

    A line has those fields of the entries that have a description (`Meta`). `name` and `words`: name and description
    of the type in the API.
    """
    literal: Any = Literal
    hints = get_type_hints(entries[0], include_extras=True)
    described = [name for name in entries[0].__struct_fields__ if get_origin(hints[name]) is Annotated]
    fields = [("kind", literal[tuple(map(tag, entries))]), *((name, hints[name]) for name in described)]
    namespace = {"__doc__": words, "ENTRIES": entries}
    made = msgspec.defstruct(name, fields, bases=(Line,), namespace=namespace, frozen=True, kw_only=True)
    return cast("type[Line]", made)


def same_fields(kind: type[msgspec.Struct], *sources: object) -> dict[str, Any]:
    """Return name -> value of the fields of `kind`, from the sources. If several have a field, the last one counts."""
    pairs = ((name, getattr(source, name, NODEFAULT)) for source in sources for name in kind.__struct_fields__)
    return {name: value for name, value in pairs if value is not NODEFAULT}


def own_line(kinds: Iterable[type[Line]], at: str, entry: msgspec.Struct) -> Line:
    """Return the line for a journal entry. `kinds`: types of lines from `line_of`; one of them is for this entry."""
    kind: Any = next(kind for kind in kinds if type(entry) in kind.ENTRIES)
    return cast("Line", kind(at=at, kind=tag(entry), **same_fields(kind, entry)))


class IntentLine(Line, frozen=True, kw_only=True):
    """The till's call was recorded. The request to the terminal follows."""

    kind: Literal["intent"] = "intent"
    terminal: Annotated[str | None, Meta(description="serial number of the terminal")]


class AttemptLine(Line, frozen=True, kw_only=True):
    """The one attempt to send the request has ended."""

    kind: Literal["attempt"] = "attempt"
    judgement: Annotated[
        str,
        Meta(description="its conclusion: `acknowledged`, `accepted`, `canceled`, `refused`, `unsent`, `in_doubt`"),
    ]
    http_status: Annotated[int | None, Meta(description="the terminal's HTTP status, null without a complete reply")]
    reason: Annotated[str | None, Meta(description="why there was no reply")]


def facts_of(attempt: Attempt) -> dict[str, Any]:
    """Return the fields of a line about a call to a terminal: HTTP status, or the reason why there was no reply."""
    if isinstance(attempt, Replied):
        return {"http_status": attempt.status, "reason": None}
    return {"http_status": None, "reason": attempt.reason}


TAKEN_OVER_LINE = line_of(
    "TakenOverLine",
    "posd took it over, in doubt, from the replaced database, the witness or a list of ids.",
    TakenOver,
)
QUARANTINED_LINE = line_of(
    "QuarantinedLine", "An authentic callback was refused, and is kept in quarantine.", Quarantined
)
REAPPLIED_LINE = line_of("ReappliedLine", "Callbacks in quarantine were applied now.", Reapplied)


# Tombstones: the data that posd keeps of a record that retention removed (architecture, Promises).
#
# Retention removes an ended payment or print job without open attentions, with all its inputs and results. posd keeps
# its id for the life of the database, with terminal, type, result and day. posd never starts that id again. A call
# with the id is refused, and the Problem has the result.

#: Problem code of a call with a removed id.
CODE = "pruned"


class Pruned(msgspec.Struct, frozen=True):
    """Tombstone of a removed payment."""

    client_transaction_id: str
    terminal: str
    type: str | None
    result: str
    ended_on: str

    def refusal(self) -> Problem:
        """Return the problem for a call about a removed payment. Its text says whether the customer was charged."""
        kind = self.type or "payment"
        paid = self.result == "approved"
        advice = "The customer was charged then: do not charge again for it" if paid else "The customer was not charged"
        return Problem(
            CODE,
            f"{self.client_transaction_id} was used before: a {kind} on terminal {self.terminal or 'unknown'} that "
            f"ended {self.result} on {self.ended_on}. {advice}. Its record was removed at the end of "
            "its retention; this call did nothing. For a new payment choose a new id",
            result=self.result,
            terminal=self.terminal,
            transaction_type=self.type,
            ended_on=self.ended_on,
        )


class PrunedJob(msgspec.Struct, frozen=True):
    """Tombstone of a removed print job. `status` is None if the terminal did not accept it."""

    print_job_id: str
    terminal: str | None
    status: str | None
    ended_on: str

    def refusal(self) -> Problem:
        """Return the problem for a call about a removed print job."""
        return Problem(
            CODE,
            f"{self.print_job_id} was used before: a print job that ended {self.status or 'without being accepted'} on "
            f"{self.ended_on}. Its record was removed at the end of its retention; this call did "
            "nothing. For a new document choose a new id",
            print_status=self.status,
            terminal=self.terminal,
            ended_on=self.ended_on,
        )
