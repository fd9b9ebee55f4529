"""Wire codec: bytes of the terminal -> transaction event and acknowledgement (terminal API, Acknowledgement).

The two have different shapes and are read separately. The envelope of an event (what the terminal API marks "always")
must be there and be readable; everything else is read leniently, field by field: an approval is never refused because a
number came as a string or an object that posd does not need has another shape. The raw bytes are the record.

Source: terminal API, Events.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, assert_never

import msgspec

from posd.base.json_types import Object, decode, encode
from posd.base.money import read_money
from posd.payments.lifecycle import Status
from posd.payments.model import SearchResult
from posd.terminals.attempt import (
    UNDECIDED_CLIENT_ERRORS,
    Attempt,
    Doubtful,
    Lost,
    NotSent,
    Refused,
    Replied,
    Unsent,
    judge_start,
)

#: Longest text that is kept of a name or code of the wire, in characters; the raw bytes keep it whole.
MAX_TEXT = 256


class NotAnEvent(ValueError):
    """The body is no transaction event; the message says why."""


class Terminal(msgspec.Struct, frozen=True):
    """`terminal` of an event (terminal API, Events)."""

    serial_number: str
    brand: str | None
    model: str | None


class FailureReason(msgspec.Struct, frozen=True):
    """`failure_reason` of TERMINAL_REJECTED and DECLINED (terminal API, Events, Refusals)."""

    type: str | None
    code: str | None
    message: str | None


class RawResponse(msgspec.Struct, frozen=True):
    """What posd reads of the acquirer's answer, `raw_response`; all else stays in the raw bytes.

    Source: terminal API, Events.
    """

    transaction_reference: str | None
    ticket_number: str | None
    authorized_amount: Decimal | None
    authorization_code: str | None  # ISO 8583 field 38, message_fields.F38
    franchise: str | None
    card_type: str | None
    cvm_type: str | None


class TransactionEvent(msgspec.Struct, frozen=True):
    """A transaction event (terminal API, Events). `status` and `previous_status` are the wire's words, known or not."""

    event_id: str
    occurred_at: str
    status: str
    merchant_id: str
    client_transaction_id: str
    terminal: Terminal
    previous_status: str | None = None
    reading_type: str | None = None
    operation_type: str | None = None
    tip: Decimal | None = None  # operation.amount.tip: added by the terminal
    failure_reason: FailureReason | None = None
    raw_response: RawResponse | None = None


class Acknowledgement(msgspec.Struct, frozen=True):
    """The immediate answer to an async call; camelCase, another event_id, never read as an event.

    Source: terminal API, Acknowledgement.
    """

    status: str | None
    client_transaction_ids: tuple[str, ...]  # those that it echoes: none, or one in each place where one can stand
    serial_number: str | None


def read_event(body: bytes) -> TransactionEvent:
    """Read a transaction event. Raise NotAnEvent where it is none; the message names the field."""
    try:
        members = decode(body)
    except ValueError as error:
        raise NotAnEvent(str(error)) from error
    if not isinstance(members, Object):
        raise NotAnEvent("it is not a JSON object")
    _unambiguous(members, ("terminal",), "")
    terminal = members.get("terminal")
    if not isinstance(terminal, Object):
        raise NotAnEvent("terminal is missing or not an object")
    event = TransactionEvent(
        event_id=_required(members, "event_id"),
        occurred_at=_required(members, "occurred_at"),
        status=_required(members, "status"),
        merchant_id=_required(members, "merchant_id"),
        client_transaction_id=_required(members, "client_transaction_id").lower(),
        terminal=Terminal(
            serial_number=_required(terminal, "serial_number", "terminal."),
            brand=_text(terminal, "brand"),
            model=_text(terminal, "model"),
        ),
        previous_status=_text(members, "previous_status") or None,
        reading_type=_text(members, "reading_type") or None,
        operation_type=_text(_object(members, "operation"), "type"),
        tip=_amount(_object(_object(members, "operation"), "amount"), "tip"),
        failure_reason=_failure_reason(members),
        raw_response=_raw_response(members),
    )
    _unambiguous(members, ("previous_status", "raw_response"), "")
    _unambiguous(_object(members, "raw_response"), ("transaction_reference", "ticket_number"), "raw_response.")
    return event


def read_acknowledgement(body: bytes) -> Acknowledgement | None:
    """Read the answer to an async call, None where it is none: no JSON object, or one that says two things."""
    try:
        members = decode(body)
    except ValueError:
        return None
    if not isinstance(members, Object):
        return None
    operation = _object(members, "operation")
    terminal = _object(members, "terminal")
    try:
        _unambiguous(members, ("status", "client_transaction_id", "operation", "terminal"), "")
        _unambiguous(operation, ("client_transaction_id",), "operation.")
        _unambiguous(terminal, ("serialNumber",), "terminal.")
    except NotAnEvent:
        return None
    bearers = [part for part in (members, operation) if part.get("client_transaction_id") not in (None, "")]
    return Acknowledgement(
        status=_text(members, "status"),
        # One that is no text is not ours.
        client_transaction_ids=tuple((_text(part, "client_transaction_id") or "").lower() for part in bearers),
        serial_number=_text(terminal, "serialNumber"),
    )


def _required(members: Object, name: str, prefix: str = "") -> str:
    _unambiguous(members, (name,), prefix)
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise NotAnEvent(f"{prefix}{name} is missing or not a string")
    if len(value) > MAX_TEXT:
        raise NotAnEvent(f"{prefix}{name} is longer than {MAX_TEXT} characters")
    return value


def _unambiguous(members: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> None:
    if not isinstance(members, Object) or not members.repeated:
        return
    for name in names:
        if name in members.repeated:
            raise NotAnEvent(f"{prefix}{name} stands more than once, with different values")


def _object(members: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if isinstance(value, Decimal):
        value = str(value)
    return value[:MAX_TEXT] if isinstance(value, str) else None


def _amount(members: Mapping[str, Any], name: str) -> Decimal | None:
    """Return an amount, None where it is none or stands more than once with different values."""
    if isinstance(members, Object) and name in members.repeated:
        return None
    return read_money(members.get(name))


def _failure_reason(members: Mapping[str, Any]) -> FailureReason | None:
    reason = members.get("failure_reason")
    if isinstance(reason, str):
        return FailureReason(type=None, code=None, message=reason[:MAX_TEXT])
    if not isinstance(reason, dict):
        return None
    return FailureReason(type=_text(reason, "type"), code=_text(reason, "code"), message=_text(reason, "message"))


def _raw_response(members: Mapping[str, Any]) -> RawResponse | None:
    response = members.get("raw_response")
    if not isinstance(response, dict):
        return None
    return RawResponse(
        transaction_reference=_text(response, "transaction_reference") or None,
        ticket_number=_text(response, "ticket_number") or None,
        authorized_amount=_amount(response, "authorized_amount"),
        authorization_code=_text(_object(response, "message_fields"), "F38"),
        franchise=_text(response, "franchise"),
        card_type=_text(response, "card_type"),
        cvm_type=_text(response, "cvm_type"),
    )


# What the one attempt to send a start request proves.
#
# `Attempt` is what the terminal client saw; `judge` turns it into what is known. The line that matters is whether
# anything of the request was written: before it nothing can have been charged, after it everything is possible.
#
# Source: terminal API, Acknowledgement, Calls to a terminal.


class Acknowledged(msgspec.Struct, frozen=True):
    """The terminal took the request; `serial_number` is who says so, where it says it."""

    serial_number: str | None


Judgement = Acknowledged | Refused | Unsent | Doubtful


def judge(attempt: Attempt, client_transaction_id: str) -> Judgement:
    """Judge the attempt to start the transaction of that id."""
    return judge_start(attempt, lambda reply: _judge_success(reply, client_transaction_id))


def _judge_success(reply: Replied, client_transaction_id: str) -> Judgement:
    acknowledgement = read_acknowledgement(reply.body) if reply.complete else None
    if acknowledgement is None:
        return Doubtful(f"the terminal answered HTTP {reply.status} with something that is no acknowledgement")
    if acknowledgement.status != Status.TERMINAL_ACKNOWLEDGED:
        return Doubtful(f"the terminal answered HTTP {reply.status} with status {acknowledgement.status}")
    if any(echoed != client_transaction_id for echoed in acknowledgement.client_transaction_ids):
        return Doubtful("the terminal acknowledged another transaction")
    return Acknowledged(acknowledgement.serial_number)


#: Outcome words for the log, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    Acknowledged: "acknowledged",
    Refused: "refused",
    Unsent: "unsent",
    Doubtful: "in_doubt",
}


# What the reply to a transaction search says (terminal API, Not known).
#
# A reply is one object, or a list of them, in the shape of the transaction event, at a configurable place. Only
# elements that bear our `client_transaction_id` count. An empty list is the explicit "none". Everything else is no
# answer: a 404, a 5xx, HTML, half JSON, and transactions of other people say nothing about ours.
#
# Source: terminal API, Calls to a terminal.

#: Elements of a reply that are looked at; a search for one id has one, or its few events.
MAX_ELEMENTS = 256

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Found(msgspec.Struct, frozen=True, tag="found", dict=True):
    """Our transaction is there; `elements` are what stands of it, verbatim, in the order of the reply."""

    elements: tuple[str, ...]

    @cached_property
    def events(self) -> "tuple[TransactionEvent | NotAnEvent, ...]":
        """Each element as the event that it is, or why it is none. They are read once."""
        return tuple(map(_event, self.elements))

    def kept(self, keep: Callable[[TransactionEvent | NotAnEvent], bool]) -> "Found":
        """Return it with those elements alone whose events are to be kept."""
        kept = tuple(element for element, event in zip(self.elements, self.events, strict=True) if keep(event))
        return self if len(kept) == len(self.elements) else Found(kept)


class Nothing(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search ran, and no transaction has this id."""


class NoAnswer(msgspec.Struct, frozen=True, tag="no_answer"):
    """It is not known; `status` is the HTTP status where there was a reply.

    `bears_id`: something in it bears our id, and is not of ours: nothing to believe, and no "none" either.
    """

    reason: str
    status: int | None = None
    bears_id: bool = False


Answer = Found | Nothing | NoAnswer

RESULTS: dict[type[Answer], SearchResult] = {
    Found: SearchResult.FOUND,
    Nothing: SearchResult.NONE,
    NoAnswer: SearchResult.NO_ANSWER,
}


def request_body(client_transaction_id: str) -> bytes:
    """Return the body of a search."""
    return encode({"client_transaction_id": client_transaction_id})


def read_reply(attempt: Attempt, pointer: str, client_transaction_id: str) -> Answer:
    """Read what a search brought; `pointer` (RFC 6901) says where the transactions stand in the reply."""
    match attempt:
        case NotSent(reason=reason) | Lost(reason=reason):
            return NoAnswer(reason)
        case Replied(status=status) if not 200 <= status < 300:
            return NoAnswer(f"the terminal answered HTTP {status}", status)
        case Replied(status=status, complete=False):
            return NoAnswer("the reply is too long to be read", status)
        case Replied(status=status, body=body):
            try:
                elements = list(_elements(body, pointer))
            except ValueError as error:
                return NoAnswer(f"the reply cannot be used: {error}", status)
        case _:
            assert_never(attempt)
    if not elements:
        return Nothing()
    if len(elements) > MAX_ELEMENTS:
        return NoAnswer(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    return Found(ours) if ours else NoAnswer("the reply is about other transactions", status)


def final_element(answers: Iterable[Answer], event_id: str) -> str | None:
    """Return the element of that event_id, verbatim, from answers that were kept."""
    for answer in answers:
        if isinstance(answer, Found):
            for element, event in zip(answer.elements, answer.events, strict=True):
                if isinstance(event, TransactionEvent) and event.event_id == event_id:
                    return element
    return None


def _event(element: str) -> TransactionEvent | NotAnEvent:
    try:
        return read_event(element.encode())
    except NotAnEvent as error:
        return error.with_traceback(None)


def _elements(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements at the pointer, verbatim. Raise ValueError where there is no list and no object."""
    decode(body)  # strict, and never deeper than can be read
    raw = body
    for step in pointer.split("/")[1:]:
        raw = _member(raw, step.replace("~1", "/").replace("~0", "~"), pointer)
    try:
        if raw.lstrip().startswith(b"["):
            return [bytes(item) for item in _LIST.decode(raw)]
        _OBJECT.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError("there is neither a list nor an object of transactions") from error
    return [raw.strip()]


def _member(raw: bytes, name: str, pointer: str) -> bytes:
    """Return what stands one step of the pointer further. Raise ValueError where nothing does."""
    try:
        if name.isascii() and name.isdigit() and raw.lstrip().startswith(b"["):
            return bytes(_LIST.decode(raw)[int(name)])
        document = decode(raw)
        if isinstance(document, Object) and name in document.repeated:
            raise ValueError(f"{name} stands more than once, with different values")
        return bytes(_OBJECT.decode(raw)[name])
    except (msgspec.ValidationError, LookupError):
        raise ValueError(f"nothing stands at {pointer}") from None


def _bears(raw: bytes, client_transaction_id: str) -> bool:
    element: Any = decode(raw)
    identity = element.get("client_transaction_id") if isinstance(element, dict) else None
    return isinstance(identity, str) and identity.lower() == client_transaction_id


# What the answer to an abort says (its answers are not published).
#
# Abort is a request: after every answer the outcome is still awaited. Only "nothing is running" is used further,
# as a part of the proof in `posd.payments.schedule`.
#
# Source: terminal API, Calls to a terminal.


class AbortAnswer(StrEnum):
    """What became of an abort."""

    TAKEN = "taken"  # the terminal says that it aborts
    NOTHING_RUNNING = "nothing_running"  # the terminal says that there is nothing to abort
    NOT_TAKEN = "not_taken"  # this is no abort to the terminal: wrong path, no access
    UNREACHABLE = "unreachable"  # it was not sent
    UNKNOWN = "unknown"  # it was sent, and may have been taken


#: The profile's row: 200 aborted, 409 nothing running.
NOTHING_RUNNING_STATUS = 409


def judge_abort(attempt: Attempt) -> AbortAnswer:
    """Judge the attempt to send an abort."""
    match attempt:
        case NotSent():
            return AbortAnswer.UNREACHABLE
        case Replied(status=status) if status == NOTHING_RUNNING_STATUS:
            return AbortAnswer.NOTHING_RUNNING
        case Replied(status=status) if 200 <= status < 300:
            return AbortAnswer.TAKEN
        case Replied(status=status) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return AbortAnswer.NOT_TAKEN
        case Replied() | Lost():
            return AbortAnswer.UNKNOWN
        case _:
            assert_never(attempt)
