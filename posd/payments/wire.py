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

A search has no callback address: an element counts by its id alone, which has to be whole. Its state may stand in the
acquirer's answer instead (`read_element`). Some members were seen under two names, in snake_case and in camelCase: both
are read, and two that differ are one name that says two things.

Source: terminal API, Events.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
from posd.payments.refusals import Canceled, judge_error
from posd.terminals.attempt import (
    UNAUTHENTICATED,
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
from posd.terminals.envelope import envelope_in, read_envelope

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
    members, damaged = _members_of(body)
    return _read(body, members, damaged, members.get("status"))


def read_element(body: bytes, *, paged: bool = False) -> TransactionEvent:
    """Read an element of a search's reply, as an event. Raise NotAnEvent where it is none.

    Where it has no `status`, it is the `transaction_status` of the acquirer's answer in it; `paged`: or of its own.
    """
    members, damaged = _members_of(body)
    status = members.get("status")
    if not _something(status):
        status = _acquirers_word(members, paged=paged)
    return _read(body, members, damaged, status)


def _members_of(body: bytes) -> tuple[Object, frozenset[Place]]:
    """Return the members of an event, and the places that are damaged. Raise NotAnEvent."""
    try:
        members, damaged = decoded(body)
    except ValueError as error:
        raise NotAnEvent(str(error)) from error
    if not isinstance(members, Object):
        raise NotAnEvent("it is not a JSON object")
    _unambiguous(members, ("status", "client_transaction_id", "terminal"), "")
    return _under_one(members, "raw_response", "rawResponse"), damaged


def _read(body: bytes, members: Object, damaged: frozenset[Place], status: Any) -> TransactionEvent:
    """Read an event; `status` is what it says of its state. Raise NotAnEvent."""
    read = _Reading(set(damaged))
    terminal = _under_one(read.object(members, "terminal"), "serial_number", "serialNumber")
    if not _text(members, "client_transaction_id") and not _text(terminal, "serial_number"):
        raise NotAnEvent("it has neither a client_transaction_id nor a terminal.serial_number")
    _unambiguous(terminal, ("serial_number",), "terminal.")
    operation = read.object(members, "operation")
    amount = read.object(operation, "operation", "amount")
    return TransactionEvent(
        status=_status(status),
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
    return _acknowledgement(members) if isinstance(members, Object) else None


def _acknowledgement(members: Object, *, inner: bool = True) -> Acknowledgement | None:
    """Read an acknowledgement at the top, or in the member `object`, where one was seen too.

    `inner`: False as versions read it that looked at the top alone, for one name of the serial.
    """
    parts = (members, _object(members, "object")) if inner else (members,)
    operations = [_object(part, "operation") for part in parts]
    terminals = [_object(part, "terminal") for part in parts]
    if inner:
        terminals = [_under_one(terminal, "serialNumber", "serial_number") for terminal in terminals]
    try:
        for part, operation, terminal in zip(parts, operations, terminals, strict=True):
            _unambiguous(part, ("status", "client_transaction_id", "operation", "terminal"), "")
            _unambiguous(operation, ("client_transaction_id",), "operation.")
            _unambiguous(terminal, ("serialNumber",), "terminal.")
    except NotAnEvent:
        return None
    statuses = dict.fromkeys(filter(None, (_text(part, "status") for part in parts)))
    serials = dict.fromkeys(filter(None, (_text(part, "serialNumber") for part in terminals)))
    if len(statuses) > 1 or len(serials) > 1:
        return None
    return Acknowledgement(
        status=next(iter(statuses), None),
        client_transaction_ids=_echoed(*parts, *operations),
        serial_number=next(iter(serials), None),
    )


def _echoed(*parts: Object) -> tuple[str, ...]:
    """Return the ids that an answer names; one that is no text is not ours."""
    echoes = [part.get("client_transaction_id") for part in parts]
    return tuple(
        (_text(part, "client_transaction_id") or "").lower()
        for part, echo in zip(parts, echoes, strict=True)
        # One that is damaged says nothing; it was asked on this connection alone.
        if echo not in (None, "") and not (isinstance(echo, str) and UNREADABLE in echo)
    )


def _status(value: Any) -> str:
    """Return the one member without which nothing is known. Raise NotAnEvent."""
    if not isinstance(value, str) or not value or UNREADABLE in value:
        raise NotAnEvent("status is missing or not a string that can be read")
    if len(value) > MAX_TEXT:
        raise NotAnEvent(f"status is longer than {MAX_TEXT} characters")
    return value


#: What the acquirer's answer says of a payment in its own words, and no more than that.
_ACQUIRERS_WORDS = (Status.APPROVAL, Status.DECLINED)


def _acquirers_word(members: Object, *, paged: bool) -> Any:
    """Return the state that the acquirer's answer in an element states; None where it states none, or two."""
    name = "transaction_status"
    response = _EMPTY if "raw_response" in members.repeated else _object(members, "raw_response")
    places = (response, members) if paged else (response,)
    said = [place[name] for place in places if _something(place.get(name))]
    clear = not any(name in place.repeated for place in places) and said == said[:1] * len(said)
    return said[0] if said and clear and said[0] in _ACQUIRERS_WORDS else None


def _unambiguous(members: Mapping[str, Any], names: tuple[str, ...], prefix: str) -> None:
    if not isinstance(members, Object) or not members.repeated:
        return
    for name in names:
        if name in members.repeated:
            raise NotAnEvent(f"{prefix}{name} stands more than once, with different values")


def _object(members: Object, name: str) -> Object:
    value = members.get(name)
    return value if isinstance(value, Object) else _EMPTY


def _under_one(members: Object, name: str, other: str) -> Object:
    """Return an object with a member that was seen under two names under the first; two values are one name twice."""
    if other not in members:
        return members
    one = Object(members)
    value = one.pop(other)
    if other in members.repeated or (
        name in one and _something(value) and _something(one[name]) and one[name] != value
    ):
        one.repeated = members.repeated | {name}
        return one
    one.repeated = members.repeated
    if not _something(one.get(name)):
        one[name] = value
    return one


def _something(value: Any) -> bool:
    return value is not None and value not in _NOTHING


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
        if _something(value):
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


Judgement = Acknowledged | Canceled | Refused | Unsent | Doubtful


def judge(attempt: Attempt, client_transaction_id: str, *, errors_in_2xx: bool | None = False) -> Judgement:
    """Judge the attempt to start the transaction of that id.

    `errors_in_2xx`: the profile says that an error in an answer of 2xx means that it was not started. None: a version
    recorded it that did not read errors (see `judge_start`).
    """
    return judge_start(
        attempt,
        lambda reply: _judge_success(reply, client_transaction_id, errors_in_2xx),
        reads_errors=errors_in_2xx is not None,
    )


def _judge_success(reply: Replied, client_transaction_id: str, errors_in_2xx: bool | None) -> Judgement:
    members = None
    with suppress(ValueError):
        members = decoded(reply.body)[0] if reply.complete else None
    reads_errors = errors_in_2xx is not None
    acknowledgement = _acknowledgement(members, inner=reads_errors) if isinstance(members, Object) else None
    if acknowledgement is None or not isinstance(members, Object):
        words = f"the terminal answered HTTP {reply.status} with something that is no acknowledgement"
        return Doubtful(with_remark(words, reply.remark))
    acknowledged = acknowledgement.status == Status.TERMINAL_ACKNOWLEDGED
    if any(echoed != client_transaction_id for echoed in acknowledgement.client_transaction_ids):
        return Doubtful(f"the terminal {'acknowledged' if acknowledged else 'answered about'} another transaction")
    error = envelope_in(members) if reads_errors else None
    if error is not None and (error.certain or not acknowledged):
        return judge_error(reply, members, error, client_transaction_id, trusted=bool(errors_in_2xx))
    if not acknowledged:
        return Doubtful(f"the terminal answered HTTP {reply.status} with status {acknowledgement.status}")
    return Acknowledged(acknowledgement.serial_number)


#: Outcome words for the log, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    Acknowledged: "acknowledged",
    Canceled: "canceled",
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
    paged: bool = False  # they stood in a page of a list

    @cached_property
    def events(self) -> "tuple[TransactionEvent | NotAnEvent, ...]":
        """Each element as the event that it is, or why it is none. They are read once."""
        return tuple(_event(element, self.paged) for element in self.elements)

    @property
    def usable(self) -> bool:
        """Whether any of them says how the transaction stands."""
        return any(isinstance(event, TransactionEvent) for event in self.events)

    def kept(self, keep: Callable[[TransactionEvent | NotAnEvent], bool]) -> "Found":
        """Return it with those elements alone whose events are to be kept."""
        kept = tuple(element for element, event in zip(self.elements, self.events, strict=True) if keep(event))
        return self if len(kept) == len(self.elements) else Found(kept, self.damaged, self.paged)


class Nothing(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search ran, and no transaction has this id."""


class NoAnswer(msgspec.Struct, frozen=True, tag="no_answer"):
    """It is not known; `status` is the HTTP status where there was a reply.

    `bears_id`: something in it bears our id, and is not of ours: nothing to believe, and no "none" either.
    `serial_number`: of the terminal outside the fleet that it is of.
    `unreadable`: it may be ours, and what it says of it cannot be read.
    """

    reason: str
    status: int | None = None
    bears_id: bool = False
    serial_number: str | None = None
    unreadable: bool = False


Answer = Found | Nothing | NoAnswer

RESULTS: dict[type[Answer], SearchResult] = {
    Found: SearchResult.FOUND,
    Nothing: SearchResult.NONE,
    NoAnswer: SearchResult.NO_ANSWER,
}


def request_body(client_transaction_id: str) -> bytes:
    """Return the body of a search."""
    return encode({"client_transaction_id": client_transaction_id})


def read_reply(attempt: Attempt, pointer: str, client_transaction_id: str, *, paged: bool = False) -> Answer:
    """Read what a search brought; `pointer` (RFC 6901) says where the transactions stand in the reply.

    `paged`: they are a page of a list, in `data` where the pointer is empty.
    """
    pointer = pointer or (PAGE if paged else "")
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
                elements = list((_page if paged else _elements)(mended.body, pointer))
            except ValueError as error:
                return NoAnswer(with_remark(f"the reply cannot be used: {error}", attempt.remark), status)
        case _:
            assert_never(attempt)
    if not elements:  # the explicit "none" is a proof, and has to be whole and alone
        if mended.damaged:
            return NoAnswer("the reply says that there is none, but it is damaged", status)
        if _tells_beside(decode(mended.body), pointer):
            return NoAnswer("the list is empty, and the reply says more than that", status)
        return Nothing()
    if len(elements) > MAX_ELEMENTS:
        return NoAnswer(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    if not ours:
        return NoAnswer("the reply is about other transactions", status)
    found = Found(ours, named(mended.damaged), paged)
    if not found.usable:
        reason = f"what the reply has of this payment does not say how it stands: {found.events[0]}"
        return NoAnswer(reason, status, bears_id=True, unreadable=True)
    return found


def final_element(answers: Iterable[Answer], event_id: str) -> str | None:
    """Return the element of that event_id, verbatim, from answers that were kept."""
    for answer in answers:
        if isinstance(answer, Found):
            for element, event in zip(answer.elements, answer.events, strict=True):
                if isinstance(event, TransactionEvent) and event.event_id == event_id:
                    return element
    return None


def _event(element: str, paged: bool) -> TransactionEvent | NotAnEvent:
    try:
        return read_element(element.encode(), paged=paged)
    except NotAnEvent as error:
        return error.with_traceback(None)


def _elements(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements at the pointer, verbatim. Raise ValueError where there is no list and no object."""
    raw = _at(body, pointer)
    try:
        if raw.lstrip().startswith(b"["):
            return [bytes(item) for item in _LIST.decode(raw)]
        _OBJECT.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError("there is neither a list nor an object of transactions") from error
    return [raw.strip()]


#: Where a page has its transactions, unless the profile says otherwise.
PAGE = "/data"
#: Members that may stand beside an empty list, with what they say: how large a page may be, and that all went well.
_SIZES = frozenset({"size", "page_size", "pageSize", "per_page", "perPage", "limit"})
_WELL = frozenset({"ok", "success"})
#: What the names of members have in common that say whether there are further ones.
_FURTHER = ("next", "more")


def _page(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements of a page, verbatim. Raise ValueError where there is none."""
    raw = _at(body, pointer)
    if not raw.lstrip().startswith(b"["):
        raise ValueError(f"no list of transactions stands at {pointer}")
    return [bytes(item) for item in _LIST.decode(raw)]


def _tells_beside(around: Any, pointer: str) -> bool:
    """Whether anything around the empty list at the pointer says that there are transactions, or an error."""
    if isinstance(around, Object) and envelope_in(around):
        return True
    for step in _steps(pointer):
        place = int(step) if isinstance(around, list) else step
        members = enumerate(around) if isinstance(around, list) else around.items()
        others = Object((str(name), value) for name, value in members if name != place)
        others.repeated = getattr(around, "repeated", frozenset())
        if _tells("", others):
            return True
        around = around[place]
    return False


def _tells(name: str, value: Any) -> bool:
    """Whether a member beside an empty list says anything of what is not in it."""
    if isinstance(value, Object):
        return bool(value.repeated) or any(_tells(*member) for member in value.items())
    if isinstance(value, bool):
        return name not in _WELL if value else not any(word in name.lower() for word in _FURTHER)
    if name in _SIZES:
        return not str(value or 0).isdecimal()
    return bool(value) and str(value) != "0" and (name, str(value)) != ("page", "1")


def _at(body: bytes, pointer: str) -> bytes:
    """Return what stands at the pointer. Raise ValueError where nothing does."""
    for step in _steps(pointer):
        body = _member(body, step, pointer)
    return body


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


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


def judge_abort(attempt: Attempt, *, reads_errors: bool = True) -> AbortAnswer:
    """Judge the attempt to send an abort; `reads_errors` as of `judge_start`."""
    error = read_envelope(attempt.body) if reads_errors and isinstance(attempt, Replied) else None
    match attempt:
        case NotSent():
            return AbortAnswer.UNREACHABLE
        case Replied(status=status, sealed=True) if status not in UNAUTHENTICATED:
            return AbortAnswer.UNKNOWN
        case Replied() if error is not None and error.busy:
            return AbortAnswer.UNKNOWN
        case Replied(status=status, complete=complete) if status == NOTHING_RUNNING_STATUS:
            # It is a part of a proof: not what was cut, what says two things, or what the acquirer said.
            unclear = not complete if error is None else error.acquirer or not error.clear
            return AbortAnswer.UNKNOWN if reads_errors and unclear else AbortAnswer.NOTHING_RUNNING
        case Replied(status=status) if 200 <= status < 300:
            return AbortAnswer.UNKNOWN if error and error.certain else AbortAnswer.TAKEN
        case Replied(status=status) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return AbortAnswer.NOT_TAKEN
        case Replied() | Lost():
            return AbortAnswer.UNKNOWN
        case _:
            assert_never(attempt)


def finds_running(attempt: Attempt) -> bool:
    """Whether the answer to an abort says that the terminal is busy, under any HTTP status."""
    error = read_envelope(attempt.body) if isinstance(attempt, Replied) else None
    return error is not None and error.busy
