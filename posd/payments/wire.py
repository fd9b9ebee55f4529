"""Wire codec: bytes of the terminal -> transaction event and acknowledgement (terminal API, Acknowledgement).

The two have different shapes and are read separately. An event is read leniently, member by member: an approval is not
lost because a byte of it is damaged, a number came as a string, or an object has another shape. The raw bytes are the
record. What each member is needed for decides what becomes of the event where that member cannot be read:

| member                   | needed for                          | where it cannot be read                             |
| ------------------------ | ----------------------------------- | --------------------------------------------------- |
| `status`                 | everything                          | no event: quarantine, and a search                  |
| `client_transaction_id`  | whose it is                         | that of the callback address, whose token proves    |
|                          |                                     | it; another id, or two: no event                    |
| `terminal.serial_number` | whether the terminal asked answers  | the token was given to that terminal alone; two of  |
|                          |                                     | them, or a payment not known here: no event         |
| `event_id`               | to know a repetition                | the digest of the bytes                             |
| `merchant_id`            | whether it is of another merchant   | not compared                                        |
| `occurred_at`            | the day of a void                   | when it came                                        |
| `transaction_reference`  | to undo it                          | none: `missing_reference`                           |
| all others               | to show it                          | none; in a text U+FFFD                              |

A search has no callback address: an element counts by its id alone, which has to be whole.

Source: terminal API, Events.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, assert_never

import msgspec

from posd.base.damaged_json import UNREADABLE, Place, decoded, named, readable
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
    with_remark,
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
    """A transaction event (terminal API, Events). `status` and `previous_status` are the wire's words, known or not.

    `occurred_at`, `merchant_id`, `client_transaction_id` and the serial are empty where they cannot be read; `event_id`
    is then made of the bytes (`digest`). `damaged` names what could not be read, in words.
    """

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
    currency: str | None = None  # operation.amount.currency: added by the terminal
    failure_reason: FailureReason | None = None
    raw_response: RawResponse | None = None
    damaged: tuple[str, ...] = ()


class Acknowledgement(msgspec.Struct, frozen=True):
    """The immediate answer to an async call; camelCase, another event_id, never read as an event.

    Source: terminal API, Acknowledgement.
    """

    status: str | None
    client_transaction_ids: tuple[str, ...]  # those that it echoes: none, or one in each place where one can stand
    serial_number: str | None


def read_event(body: bytes) -> TransactionEvent:
    """Read a transaction event. Raise NotAnEvent where it is none; the message names the field.

    It is one where its status can be read, it names its transaction or its terminal, and neither says two things.
    What else cannot be read is named in `damaged`.
    """
    try:
        members, damaged = decoded(body)
    except ValueError as error:
        raise NotAnEvent(str(error)) from error
    if not isinstance(members, Object):
        raise NotAnEvent("it is not a JSON object")
    _unambiguous(members, ("status", "client_transaction_id", "terminal"), "")
    read = _Reading(set(damaged))
    terminal = read.object(members, "terminal")
    if not _text(members, "client_transaction_id") and not _text(terminal, "serial_number"):
        raise NotAnEvent("it has neither a client_transaction_id nor a terminal.serial_number")
    _unambiguous(terminal, ("serial_number",), "terminal.")
    operation = read.object(members, "operation")
    amount = read.object(operation, "operation", "amount")
    return TransactionEvent(
        status=_status(members),
        event_id=read.event_id(members, body),
        occurred_at=read.always(members, "occurred_at"),
        merchant_id=read.always(members, "merchant_id"),
        client_transaction_id=read.always(members, "client_transaction_id").lower(),
        terminal=Terminal(
            serial_number=read.always(terminal, "terminal", "serial_number"),
            brand=read.text(terminal, "terminal", "brand"),
            model=read.text(terminal, "terminal", "model"),
        ),
        previous_status=read.whole(members, "previous_status"),
        reading_type=read.text(members, "reading_type") or None,
        operation_type=read.text(operation, "operation", "type"),
        tip=read.amount(amount, "operation", "amount", "tip"),
        currency=read.whole(amount, "operation", "amount", "currency"),
        failure_reason=_failure_reason(read, members),
        raw_response=_raw_response(read, members),
        damaged=named(read.damaged),
    )


def digest(body: bytes) -> str:
    """Return what stands for the `event_id` of an event whose own cannot be read: the same bytes are the same event."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def read_acknowledgement(body: bytes) -> Acknowledgement | None:
    """Read the answer to an async call, None where it is none: no JSON object, or one that says two things."""
    try:
        members, _ = decoded(body)
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
    echoes = [part.get("client_transaction_id") for part in (members, operation)]
    bearers = [
        part
        for part, echo in zip((members, operation), echoes, strict=True)
        # One that is damaged says nothing; it was asked on this connection alone.
        if echo not in (None, "") and not (isinstance(echo, str) and UNREADABLE in echo)
    ]
    return Acknowledgement(
        status=_text(members, "status"),
        # One that is no text is not ours.
        client_transaction_ids=tuple((_text(part, "client_transaction_id") or "").lower() for part in bearers),
        serial_number=_text(terminal, "serialNumber"),
    )


def _status(members: Object) -> str:
    """Return the one member without which nothing is known. Raise NotAnEvent."""
    value = members.get("status")
    if not isinstance(value, str) or not value or UNREADABLE in value:
        raise NotAnEvent("status is missing or not a string that can be read")
    if len(value) > MAX_TEXT:
        raise NotAnEvent(f"status is longer than {MAX_TEXT} characters")
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


class _Reading:
    """Reads the members of an event leniently, and notes which of them are there and cannot be read.

    Each is named by the object that it stands in, and by its place.
    """

    def __init__(self, damaged: set[Place]) -> None:
        self.damaged = damaged

    def object(self, members: Object, *place: str) -> Object:
        """Return an object, an empty one where there is none."""
        value = self._one(members, place)
        if isinstance(value, Object):
            return value
        self._note(value, place)
        return _EMPTY

    def text(self, members: Object, *place: str) -> str | None:
        """Return a text for people, or a number's digits; what cannot be read in it is U+FFFD."""
        value = self._one(members, place)
        if isinstance(value, str):
            return value[:MAX_TEXT]
        if isinstance(value, Decimal):
            return str(value)[:MAX_TEXT]
        self._note(value, place)
        return None

    def whole(self, members: Object, *place: str) -> str | None:
        """Return a text that something is compared with or found by: one that is not whole is none."""
        text = self.text(members, *place)
        if text and UNREADABLE not in text:
            return text
        self._note(text, place)
        return None

    def always(self, members: Object, *place: str) -> str:
        """Return such a text of what the terminal API marks "always", empty where it is not there."""
        text = self.whole(members, *place)
        if text is None:
            self.damaged.add(place)
        return text or ""

    def event_id(self, members: Object, body: bytes) -> str:
        """Return the `event_id`, or the digest of the bytes: two events must not be taken for one."""
        text, given = self.always(members, "event_id"), members.get("event_id")
        if text and text == given:
            return text
        self.damaged.add(("event_id",))
        return digest(body)

    def amount(self, members: Object, *place: str) -> Decimal | None:
        """Return an amount."""
        value = self._one(members, place)
        amount = read_money(value)
        if amount is None:
            self._note(value, place)
        return amount

    def _one(self, members: Object, place: tuple[str, ...]) -> Any:
        """Return what stands under the last name of a place, nothing where that says two things."""
        if members.repeated and place[-1] in members.repeated:
            self.damaged.add(place)
            return None
        return members.get(place[-1])

    def _note(self, value: Any, place: tuple[str, ...]) -> None:
        """Note that what stands there cannot be read, if anything does."""
        if value is not None and value not in _NOTHING:
            self.damaged.add(place)


_EMPTY = Object()

#: What a terminal may write where there is nothing.
_NOTHING: tuple[Any, ...] = ("", [], {})


def _failure_reason(read: _Reading, members: Object) -> FailureReason | None:
    reason = members.get("failure_reason")
    if isinstance(reason, str):
        return FailureReason(type=None, code=None, message=reason[:MAX_TEXT])
    given = read.object(members, "failure_reason")
    if not isinstance(reason, dict):
        return None
    type_, code, message = (read.text(given, "failure_reason", name) for name in ("type", "code", "message"))
    return FailureReason(type=type_, code=code, message=message)


def _raw_response(read: _Reading, members: Object) -> RawResponse | None:
    place = "raw_response"
    response = read.object(members, place)
    if response is _EMPTY:
        return None
    fields = read.object(response, place, "message_fields")
    return RawResponse(
        transaction_reference=read.whole(response, place, "transaction_reference"),
        ticket_number=read.text(response, place, "ticket_number") or None,
        authorized_amount=read.amount(response, place, "authorized_amount"),
        authorization_code=read.text(fields, place, "message_fields", "F38"),
        franchise=read.text(response, place, "franchise"),
        card_type=read.text(response, place, "card_type"),
        cvm_type=read.text(response, place, "cvm_type"),
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
        words = f"the terminal answered HTTP {reply.status} with something that is no acknowledgement"
        return Doubtful(with_remark(words, reply.remark))
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


class Found(msgspec.Struct, frozen=True, tag="found", dict=True, omit_defaults=True):
    """Our transaction is there; `elements` are what stands of it, in the order of the reply.

    They are verbatim, but for what is damaged in them.
    """

    elements: tuple[str, ...]
    damaged: tuple[str, ...] = ()  # what could not be read of the reply, in words

    @cached_property
    def events(self) -> "tuple[TransactionEvent | NotAnEvent, ...]":
        """Each element as the event that it is, or why it is none. They are read once."""
        return tuple(map(_event, self.elements))

    def kept(self, keep: Callable[[TransactionEvent | NotAnEvent], bool]) -> "Found":
        """Return it with those elements alone whose events are to be kept."""
        kept = tuple(element for element, event in zip(self.elements, self.events, strict=True) if keep(event))
        return self if len(kept) == len(self.elements) else Found(kept, self.damaged)


class Nothing(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search ran, and no transaction has this id."""


class NoAnswer(msgspec.Struct, frozen=True, tag="no_answer"):
    """It is not known; `status` is the HTTP status where there was a reply.

    `bears_id`: something in it bears our id, and is not of ours: nothing to believe, and no "none" either.
    `serial_number`: of the terminal outside the fleet that it is of.
    """

    reason: str
    status: int | None = None
    bears_id: bool = False
    serial_number: str | None = None


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
            return NoAnswer(with_remark(f"the terminal answered HTTP {status}", attempt.remark), status)
        case Replied(status=status, complete=False):
            return NoAnswer("the reply is too long to be read", status)
        case Replied(status=status, body=body):
            try:
                mended = readable(body)
                elements = list(_elements(mended.body, pointer))
            except ValueError as error:
                return NoAnswer(with_remark(f"the reply cannot be used: {error}", attempt.remark), status)
        case _:
            assert_never(attempt)
    if not elements:  # the explicit "none" is a proof, and has to be whole
        return NoAnswer("the reply says that there is none, but it is damaged", status) if mended.damaged else Nothing()
    if len(elements) > MAX_ELEMENTS:
        return NoAnswer(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    return Found(ours, named(mended.damaged)) if ours else NoAnswer("the reply is about other transactions", status)


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
