"""Problems, with the stable codes of posd's refusals (local API, Problems; RFC 9457)."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from posd.base.json_types import Exact, Moment, Uuid, WireFormat
from posd.base.text import shown


class FieldError(msgspec.Struct, frozen=True):
    """Fault of one field of a request."""

    path: Annotated[str, Meta(description="JSON Pointer into the body, or the name of the parameter")]
    message: Annotated[str, Meta(description="what is wrong with the field, for a developer")]


class IdentityClaim(msgspec.Struct, frozen=True):
    """Address that a device claims for a terminal."""

    base_url: Annotated[str, Meta(description="the address")]
    source: Annotated[str, Meta(description="source of the address: `config`, `mdns`, or `trusted` (used last)")]
    since: Annotated[str | None, Meta(description="time since which the address is known")]
    proof: Annotated[str, Meta(description="proof that the terminal is there: `pinned`, `ca` or `none`")]


class RemedyStep(msgspec.Struct, frozen=True):
    """One step that an operator should take."""

    does: Annotated[str, Meta(description="the step in words; empty if the command says it")]
    command: Annotated[str | None, Meta(description="command to type, or null; replace the words in capitals")] = None


def remedy(steps: Iterable[RemedyStep]) -> str:
    """Return steps as one line of text."""
    return "; ".join(": ".join(filter(None, (step.does, step.command))) for step in steps)


class StartStep(StrEnum):
    """Next step of the till after the refusal of a call that starts something."""

    FIX_CALL = "fix_call"
    SAME_CALL = "same_call"
    ASK_PERSON = "ask_person"
    NEW_ID_OK = "new_id_ok"


FIX_CALL, SAME_CALL, ASK_PERSON, NEW_ID_OK = StartStep


class ProblemRow(msgspec.Struct, frozen=True):
    """Properties of a problem code: HTTP status, title, condition (`when`), and its own fields (name -> type).

    `optional`: whether some problems of the code lack these fields. `print_extra`: the fields in calls for print jobs,
    if they differ. `next_step`: next step in calls that start something; None if no such call returns the code.
    """

    status: int
    title: str
    when: str
    next_step: StartStep | None = None
    extra: Mapping[str, Any] = {}
    optional: bool = False
    print_extra: Mapping[str, Any] = {}


#: Additional members of a problem about an unknown id.
UNKNOWN_ID: Mapping[str, Any] = {
    "never_started": Annotated[
        bool,
        Meta(description="`true`: nothing was ever sent under this id. Otherwise an earlier call may have used it"),
    ],
    "records_missing_from": Annotated[
        Moment | None,
        Meta(
            description="a restore may have lost what was started after this moment; null: it may have lost everything "
            "before `records_missing_until`"
        ),
    ],
    "records_missing_until": Annotated[
        Moment,
        Meta(description="an id that the till made after this moment was never started: no later record is missing"),
    ],
}

#: Codes without the members of `UNKNOWN_ID`: the id is known, may be known by now, or was not looked up.
NOT_OF_UNKNOWN_ID = frozenset({"id_reused", "pruned", "internal_error", "forbidden", "method_not_allowed"})

_TRANSACTIONS = {"transactions": Annotated[list[Uuid], Meta(description="transactions that prevent this one")]}

#: The codes are part of the contract and never change their meaning.
PROBLEMS: Mapping[str, ProblemRow] = {
    "malformed_json": ProblemRow(400, "The body cannot be read as JSON", "the body cannot be read as JSON", FIX_CALL),
    "invalid_request": ProblemRow(
        422,
        "The request does not match the description",
        "the body or a parameter does not match this description",
        FIX_CALL,
        {"errors": Annotated[list[FieldError], Meta(description="everything that is wrong")]},
    ),
    "unknown_terminal": ProblemRow(
        422,
        "The terminal is not in the fleet",
        "the serial is not in the fleet, or the call names none and the fleet has several",
        FIX_CALL,
        {"fleet": Annotated[list[str], Meta(description="serial numbers of the fleet")]},
    ),
    "terminal_offline": ProblemRow(
        503,
        "The terminal cannot be reached",
        "no address of the terminal is known, an abort did not reach it, or a reload changed it during the call",
        SAME_CALL,
    ),
    "identity_conflict": ProblemRow(
        503,
        "It is not certain which device is the terminal",
        "several devices claim the serial of the terminal, it moved and cannot prove its identity, or "
        "the device at its address says that it is another one; an operator decides",
        SAME_CALL,
        {"claims": Annotated[list[IdentityClaim], Meta(description="devices that claim to be the terminal")]},
    ),
    "terminal_busy": ProblemRow(
        409,
        "The terminal is busy",
        "an open transaction holds the terminal",
        SAME_CALL,
        {"blocking_transaction": Annotated[Uuid, Meta(description="id of the transaction that holds the terminal")]},
    ),
    "id_reused": ProblemRow(
        409,
        "The id belongs to another request",
        "an earlier request has the id, and stays unchanged",
        ASK_PERSON,
        {"fields": Annotated[list[str], Meta(description="the fields that differ; `body`: the whole body")]},
    ),
    "sale_conflict": ProblemRow(
        409,
        "The sale has another payment",
        "another payment of this `sale` is open or approved",
        ASK_PERSON,
        _TRANSACTIONS,
    ),
    "already_derived": ProblemRow(
        409,
        "The original has another such operation",
        "another operation of this type on the same original is open or approved",
        ASK_PERSON,
        _TRANSACTIONS,
    ),
    "chain_conflict": ProblemRow(
        409,
        "The chain does not allow this operation",
        "another operation of the same chain, of any type, is open, or has ended the chain",
        ASK_PERSON,
        _TRANSACTIONS,
    ),
    "amount_exceeds": ProblemRow(
        422,
        "The amount is not allowed",
        "a capture, void or refund exceeds what its original allows, a void is for less than the whole amount, or a "
        "sum is above `[amounts] max_amount`",
        FIX_CALL,
        {
            "asked": Annotated[Exact, Meta(description="the requested sum")],
            "allowed": Annotated[Exact, Meta(description="the allowed sum")],
            "transactions": Annotated[list[Uuid], Meta(description="ids of the operations that reduce `allowed`")],
        },
    ),
    "expired": ProblemRow(
        409,
        "The time limit of the request has passed",
        "the request was not sent before `not_after`, and will not be sent",
        NEW_ID_OK,
        {
            "not_after": Annotated[Moment, Meta(description="the time limit of the request")],
            "now": Annotated[Moment, Meta(description="the time by the clock of this machine")],
        },
    ),
    "unknown_original": ProblemRow(
        422,
        "Nothing can be derived from that original",
        "the original is not known, not approved, or of an unsuitable type; for a reprint: the job is not known",
        FIX_CALL,
    ),
    "restore_unseen": ProblemRow(
        409,
        "The database was restored, or is an older copy",
        "the database lacks the id, and may have lost its record: the request may have been sent before",
        ASK_PERSON,
        {
            "since": Annotated[Moment, Meta(description="time of the restore, or when posd found the older copy")],
            "how": Annotated[str, Meta(description="what happened, and the command that confirms it")],
        },
    ),
    "not_found": ProblemRow(404, "Not found", "there is no such path, or no record with this id", FIX_CALL),
    "pruned": ProblemRow(
        410,
        "The record was removed",
        "the id was used, and its record was removed by retention",
        ASK_PERSON,
        {
            "result": Annotated[str, Meta(description="of a payment: its result")],
            "transaction_type": Annotated[str | None, Meta(description="of a payment: its type")],
            "print_status": Annotated[str | None, Meta(description="of a print job: its final status")],
            "terminal": Annotated[str | None, Meta(description="serial number of the terminal")],
            "ended_on": Annotated[str, Meta(description="the day on which the payment or print job ended")],
        },
        optional=True,
    ),
    "past_point_of_no_return": ProblemRow(
        409, "The acquirer was already asked", "an abort is too late now; wait for the outcome"
    ),
    "already_final": ProblemRow(
        409,
        "The payment or print job has already ended",
        "it had ended before the call to abort, release or resolve it",
        extra={"outcome": Annotated[Any, WireFormat("TransactionOutcome | None"), Meta(description="the outcome")]},
        optional=True,
        print_extra={"outcome": Annotated[Any, WireFormat("PrintJob | None"), Meta(description="the print job")]},
    ),
    "nothing_running": ProblemRow(
        409, "The terminal runs nothing", "the terminal had nothing to abort; posd asks it for the outcome"
    ),
    "clock_unsure": ProblemRow(
        503,
        "The clock of this machine is not trusted",
        "the call needs the time (`not_after`, signed calls), and posd does not trust the clock",
        SAME_CALL,
    ),
    "not_abortable": ProblemRow(
        409, "No abort may be sent", "an abort could stop another payment, or the terminal cannot abort this one"
    ),
    "call_outstanding": ProblemRow(409, "A call to the terminal is under way", "resolve or release after its return"),
    "not_configured": ProblemRow(
        501, "Not available", "the configured profile of the terminal has no such call", FIX_CALL
    ),
    "queue_full": ProblemRow(
        503,
        "Too many print jobs are waiting",
        "new print jobs are refused until some of the waiting jobs are printed",
        SAME_CALL,
    ),
    "limit_reached": ProblemRow(
        429,
        "A limit for one program is reached",
        "one process or user has too many connections or streams, or has started too much today; ask again later",
        SAME_CALL,
        {
            "limit": Annotated[str, Meta(description="name of the limit (docs/reference/resource-limits.md)")],
            "retry_after_seconds": Annotated[int, Meta(description="repeat the call after this many seconds")],
        },
    ),
    "storage_unavailable": ProblemRow(
        503,
        "The database cannot be written",
        "reads or writes of the database fail, for example because the disk is full",
        SAME_CALL,
    ),
    "draining": ProblemRow(503, "posd is stopping", "no new calls are accepted; ask again in a moment", SAME_CALL),
    "forbidden": ProblemRow(
        403,
        "Not allowed on this socket",
        "only another socket serves this call; or relay.metadata does not allow metadata on the feed socket",
        FIX_CALL,
    ),
    "method_not_allowed": ProblemRow(405, "Method not allowed", "the path has no such method", FIX_CALL),
    "request_timeout": ProblemRow(408, "The request took too long", "the body did not arrive in time", FIX_CALL),
    "payload_too_large": ProblemRow(
        413,
        "The body is too large",
        "the body is too large",
        FIX_CALL,
        {"limit_bytes": Annotated[int, Meta(description="the largest allowed size")]},
    ),
    "unsupported_media_type": ProblemRow(415, "The body must be JSON", "the body's content type is not JSON", FIX_CALL),
    "internal_error": ProblemRow(
        500,
        "A fault of posd",
        "posd failed; if the call starts something, repeat the same call with the same id",
        SAME_CALL,
        {"error_id": Annotated[str, Meta(description="id by which the log names the fault")]},
    ),
}


class Problem(Exception):
    """Refused call, with a code of `PROBLEMS`, the next step as text, and the code's own fields.

    The detail is one line that tills can show and log. Quoted text in the detail is escaped.
    """

    def __init__(self, code: str, detail: str, **extra: Any) -> None:
        self.code = code
        self.detail = shown(detail)
        super().__init__(self.detail)
        self.extra = extra

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return PROBLEMS[self.code].status

    def document(self, *, starts: bool = False) -> dict[str, Any]:
        """Return the body of the problem response. `starts`: whether the call starts something.

        A field of the code never replaces a member that every problem has.
        """
        row = PROBLEMS[self.code]
        own = {
            "type": f"urn:posd:problem:{self.code}",
            "title": row.title,
            "status": row.status,
            "detail": self.detail,
            "code": self.code,
        }
        if starts:
            step = row.next_step or StartStep.ASK_PERSON
            may_be_started = step is StartStep.NEW_ID_OK and self.extra.get("never_started") is False
            own["next_step"] = StartStep.ASK_PERSON if may_be_started else step
        return own | self.extra | own
