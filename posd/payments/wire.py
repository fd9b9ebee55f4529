"""Parser of events and acknowledgements of terminals (terminal API, Acknowledgement).

Events and acknowledgements have different forms and are parsed separately. An event is parsed leniently, member by
member. An approval must not be lost because of a damaged byte, a number in a string, or an object of another form. The
raw bytes are stored too. A body that is not an event goes to the quarantine, and posd searches for the transaction.
This table shows what happens if a member of an event cannot be read:

| member                   | use                                | if it cannot be read                                 |
| ------------------------ | ---------------------------------- | ---------------------------------------------------- |
| `status`                 | state of the transaction           | the body is not an event                             |
| `client_transaction_id`  | id of the transaction              | the id of the callback address, as its token proves; |
|                          |                                    | with another id, or with two, it is not an event     |
| `terminal.serial_number` | to check which terminal sends it   | not checked, because the token belongs to the        |
|                          |                                    | terminal; with two serials, or for an unknown        |
|                          |                                    | payment, the body is not an event                    |
| `event_id`               | to recognise a repeated event      | the digest of the bytes                              |
| `merchant_id`            | to refuse another merchant's event | not compared                                         |
| `occurred_at`            | the day of a void                  | the time of arrival                                  |
| `transaction_reference`  | to void or capture the payment     | None, and the attention `missing_reference`          |
| all others               | shown                              | None, or a text with U+FFFD                          |

A search has no callback address, so an element of its reply is matched only by its id, which must be complete. The
state of an element may be in the acquirer's answer instead (`read_element`). Some terminals write a member in
snake_case, and others in camelCase. Both names are read. Two different values count as a contradiction.

Source: terminal API, Events.
"""

import hashlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from posd.base.json_types import UNREADABLE, Object, Place, as_text, decoded, named
from posd.base.money import read_money
from posd.base.replies import CallbackResult, UnreadableBody
from posd.payments.lifecycle import Status
from posd.payments.model import Receipt, TerminalFailure

#: Longest name or code that is kept, in characters. The raw bytes have the full text.
MAX_TEXT = 256


class NotAnEvent(UnreadableBody):
    """Body that is not a transaction event."""


class RawResponse(msgspec.Struct, frozen=True):
    """Members of the acquirer's answer, `raw_response`, that posd reads. The raw bytes have the rest.

    Source: terminal API, Events.
    """

    transaction_reference: str | None
    ticket_number: str | None
    authorized_amount: Decimal | None
    receipt: Receipt


class TransactionEvent(msgspec.Struct, frozen=True):
    """A transaction event (terminal API, Events). `status` and `previous_status`: words of the terminal, known or not.

    Unreadable `occurred_at`, `merchant_id`, `client_transaction_id` and `serial_number` are empty. `digest` replaces an
    unreadable `event_id`. `damaged`: names of the unreadable parts.
    """

    event_id: str
    occurred_at: str
    status: str
    merchant_id: str
    client_transaction_id: str
    serial_number: str  # terminal.serial_number; the next two members are in the same object
    brand: str | None = None
    model: str | None = None
    previous_status: str | None = None
    reading_type: str | None = None
    operation_type: str | None = None
    tip: Decimal | None = None  # operation.amount.tip: added by the terminal
    currency: str | None = None  # operation.amount.currency: added by the terminal
    failure_reason: TerminalFailure | None = None  # of TERMINAL_REJECTED and DECLINED (terminal API, Refusals)
    raw_response: RawResponse | None = None
    damaged: tuple[str, ...] = ()


class StartAcknowledgement(msgspec.Struct, frozen=True):
    """The immediate reply to a start. Its members have other names than those of an event.

    Source: terminal API, Acknowledgement.
    """

    status: str | None
    client_transaction_ids: tuple[str, ...]  # the echoed ids, one for each object that has an id
    serial_number: str | None


def read_event(body: bytes) -> TransactionEvent:
    """Read a transaction event. Raise NotAnEvent, whose message names the field.

    An event needs a readable status. It also needs a readable id of its transaction, or a readable serial of its
    terminal. None of these may have two values.
    """
    members, damaged = _members_of(body)
    return _read(body, members, damaged, members.get("status"))


def read_element(body: bytes, *, paged: bool = False) -> TransactionEvent:
    """Read an element of a search's reply as an event. Raise NotAnEvent.

    Without a `status`, the `transaction_status` in the acquirer's answer counts. `paged`: a `transaction_status` of the
    element itself counts too.
    """
    members, damaged = _members_of(body)
    status = members.get("status")
    if not _something(status):
        status = _acquirers_word(members, paged=paged)
    return _read(body, members, damaged, status)


def _members_of(body: bytes) -> tuple[Object, frozenset[Place]]:
    """Return the members of an event, and the damaged places. Raise NotAnEvent."""
    try:
        members, damaged = decoded(body)
    except ValueError as error:
        raise NotAnEvent(CallbackResult.NOT_JSON, reason=str(error)) from error
    if not isinstance(members, Object):
        raise NotAnEvent(CallbackResult.NO_OBJECT)
    _unambiguous(members, ("status", "client_transaction_id", "terminal"), "")
    return _under_one(members, "raw_response", "rawResponse"), damaged


def _read(body: bytes, members: Object, damaged: frozenset[Place], status: Any) -> TransactionEvent:
    """Read an event from its members. `status`: the value of its status. Raise NotAnEvent."""
    read = _LenientReader(set(damaged))
    terminal = _under_one(read.object(members, "terminal"), "serial_number", "serialNumber")
    if not _text(members, "client_transaction_id") and not _text(terminal, "serial_number"):
        raise NotAnEvent(CallbackResult.NO_SUBJECT)
    _unambiguous(terminal, ("serial_number",), "terminal.")
    operation = read.object(members, "operation")
    amount = read.object(operation, "operation", "amount")
    return TransactionEvent(
        status=_status(status),
        event_id=read.event_id(members, body),
        occurred_at=read.always(members, "occurred_at"),
        merchant_id=read.always(members, "merchant_id"),
        client_transaction_id=read.always(members, "client_transaction_id").lower(),
        serial_number=read.always(terminal, "terminal", "serial_number"),
        brand=read.text(terminal, "terminal", "brand"),
        model=read.text(terminal, "terminal", "model"),
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
    """Return the replacement for an unreadable `event_id`. Equal bytes give an equal value."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def read_acknowledgement(members: Object, *, inner: bool = True) -> StartAcknowledgement | None:
    """Read an acknowledgement at the top level of a reply, or in its member `object`. Terminals use both places.

    Without `inner`, read only the top level and one name of the serial, as earlier versions did. Return None if the
    values contradict each other.
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
    return StartAcknowledgement(
        status=next(iter(statuses), None),
        client_transaction_ids=_echoed(*parts, *operations),
        serial_number=next(iter(serials), None),
    )


def _echoed(*parts: Object) -> tuple[str, ...]:
    """Return the ids in a reply. An id that is not a text never equals the id of a transaction."""
    echoes = [part.get("client_transaction_id") for part in parts]
    return tuple(
        (_text(part, "client_transaction_id") or "").lower()
        for part, echo in zip(parts, echoes, strict=True)
        # A damaged id is omitted. The reply is to this request, because no other request used the connection.
        if echo not in (None, "") and not (isinstance(echo, str) and UNREADABLE in echo)
    )


def _status(value: Any) -> str:
    """Return the status. Raise NotAnEvent if it is not readable text."""
    if not isinstance(value, str) or not value or UNREADABLE in value:
        raise NotAnEvent(CallbackResult.NO_STATUS)
    if len(value) > MAX_TEXT:
        raise NotAnEvent(CallbackResult.LONG_TEXT, name="status", most=MAX_TEXT)
    return value


#: States that the acquirer's answer can have.
_ACQUIRERS_WORDS = (Status.APPROVAL, Status.DECLINED)


def _acquirers_word(members: Object, *, paged: bool) -> Any:
    """Return the state in the acquirer's answer or, in a page, in the element itself.

    Return None if there is no state, or if two states contradict each other.
    """
    name = "transaction_status"
    response = _EMPTY if "raw_response" in members.repeated else _object(members, "raw_response")
    places = (response, members) if paged else (response,)
    said = [place[name] for place in places if _something(place.get(name))]
    clear = not any(name in place.repeated for place in places) and said == said[:1] * len(said)
    return said[0] if said and clear and said[0] in _ACQUIRERS_WORDS else None


def _unambiguous(members: Object, names: tuple[str, ...], prefix: str) -> None:
    for name in names:
        if name in members.repeated:
            raise NotAnEvent(CallbackResult.TWO_VALUES, name=f"{prefix}{name}")


def _object(members: Object, name: str) -> Object:
    value = members.get(name)
    return value if isinstance(value, Object) else _EMPTY


def _under_one(members: Object, name: str, other: str) -> Object:
    """Return the object with its member `other` renamed to `name`. Terminals use both names for one member.

    If both names are present with different values, treat `name` as a member that occurs twice.
    """
    if other not in members:
        return members
    one = Object(members)
    value = one.pop(other)
    if other in members.repeated or (
        name in one and _something(value) and _something(one[name]) and not _same(one[name], value)
    ):
        one.repeated = members.repeated | {name}
        return one
    one.repeated = members.repeated
    if not _something(one.get(name)):
        one[name] = value
    return one


def _same(one: Any, other: Any) -> bool:
    text = as_text(one)
    return one == other or (text is not None and text == as_text(other))


def _something(value: Any) -> bool:
    return value is not None and value not in _NOTHING


def _text(members: Mapping[str, Any], name: str) -> str | None:
    text = as_text(members.get(name))
    return None if text is None else text[:MAX_TEXT]


class _LenientReader:
    """Lenient reader of an event's members. `damaged`: paths of the unreadable members.

    In the methods, `members` is the object that has the member, and `place` is the path of the member in the event.
    """

    def __init__(self, damaged: set[Place]) -> None:
        self.damaged = damaged

    def object(self, members: Object, *place: str) -> Object:
        """Return an object member, or an empty object if it is missing."""
        value = self._one(members, place)
        if isinstance(value, Object):
            return value
        self._note(value, place)
        return _EMPTY

    def text(self, members: Object, *place: str) -> str | None:
        """Return a text to be shown. A number becomes its digits. Unreadable parts are U+FFFD."""
        value = self._one(members, place)
        text = as_text(value)
        if text is not None:
            return text[:MAX_TEXT]
        self._note(value, place)
        return None

    def whole(self, members: Object, *place: str) -> str | None:
        """Return a text for comparisons or look-ups, or None if it is missing or incomplete."""
        text = self.text(members, *place)
        if text and UNREADABLE not in text:
            return text
        self._note(text, place)
        return None

    def always(self, members: Object, *place: str) -> str:
        """Return a text of a member that the terminal API marks "always".

        If it is missing, record it and return an empty text.
        """
        text = self.whole(members, *place)
        if text is None:
            self.damaged.add(place)
        return text or ""

    def event_id(self, members: Object, body: bytes) -> str:
        """Return the `event_id`, or the digest of the bytes, so that two events do not count as one."""
        text = self.always(members, "event_id")
        if text and text == as_text(members.get("event_id")):
            return text
        self.damaged.add(("event_id",))
        return digest(body)

    def amount(self, members: Object, *place: str) -> Decimal | None:
        """Return an amount, or None if it is missing or no amount."""
        value = self._one(members, place)
        amount = read_money(value)
        if amount is None:
            self._note(value, place)
        return amount

    def _one(self, members: Object, place: tuple[str, ...]) -> Any:
        """Return the value of a member. Return None if it is missing, or has two values."""
        if place[-1] in members.repeated:
            self.damaged.add(place)
            return None
        return members.get(place[-1])

    def _note(self, value: Any, place: tuple[str, ...]) -> None:
        """Record that the value at a path is unreadable, unless it is empty."""
        if _something(value):
            self.damaged.add(place)


_EMPTY = Object()

#: Values that count as missing.
_NOTHING: tuple[Any, ...] = ("", [], {})


def _failure_reason(read: _LenientReader, members: Object) -> TerminalFailure | None:
    reason = members.get("failure_reason")
    if isinstance(reason, str):
        return TerminalFailure(type=None, code=None, message=reason[:MAX_TEXT])
    given = read.object(members, "failure_reason")
    if not isinstance(reason, dict):
        return None
    type_, code, message = (read.text(given, "failure_reason", name) for name in ("type", "code", "message"))
    return TerminalFailure(type=type_, code=code, message=message)


def _raw_response(read: _LenientReader, members: Object) -> RawResponse | None:
    place = "raw_response"
    response = read.object(members, place)
    if response is _EMPTY:
        return None
    fields = read.object(response, place, "message_fields")
    return RawResponse(
        transaction_reference=read.whole(response, place, "transaction_reference"),
        ticket_number=read.text(response, place, "ticket_number") or None,
        authorized_amount=read.amount(response, place, "authorized_amount"),
        receipt=Receipt(
            authorization_code=read.text(fields, place, "message_fields", "F38"),  # ISO 8583 field 38
            franchise=read.text(response, place, "franchise"),
            card_type=read.text(response, place, "card_type"),
            cvm_type=read.text(response, place, "cvm_type"),
        ),
    )
