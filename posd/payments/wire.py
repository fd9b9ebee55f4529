"""Wire codec: parses a terminal's bytes into events and acknowledgements (terminal API, Acknowledgement).

Events and acknowledgements have different shapes and are parsed separately. An event is parsed leniently, member by
member. An approval must not be lost because of a damaged byte, a number in a string, or an object of another shape. The
raw bytes are the record. This table shows the consequence of each unreadable member:

| member                   | needed for                          | where it cannot be read                             |
| ------------------------ | ----------------------------------- | --------------------------------------------------- |
| `status`                 | everything                          | no event: quarantine, and a search                  |
| `client_transaction_id`  | its transaction                     | that of the callback address, whose token proves    |
|                          |                                     | it; another id, or two: no event                    |
| `terminal.serial_number` | whether the terminal asked answers  | the token was given to that terminal alone; two of  |
|                          |                                     | them, or a payment not known here: no event         |
| `event_id`               | to know a repetition                | the digest of the bytes                             |
| `merchant_id`            | whether it is of another merchant   | not compared                                        |
| `occurred_at`            | the day of a void                   | its arrival                                         |
| `transaction_reference`  | to undo it                          | none: `missing_reference`                           |
| all others               | to show it                          | none; in a text U+FFFD                              |

A search has no callback address, so an element is matched only by its id, which must be complete. The state of an
element may be in the acquirer's answer instead (`read_element`). Some members were seen with two names, in snake_case
and in camelCase. Both names are read; two different values count as a contradiction.

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
    """A transaction event (terminal API, Events). `status` and `previous_status` are the wire's words, known or not.

    Unreadable `occurred_at`, `merchant_id`, `client_transaction_id` and serial are empty. An unreadable `event_id` is
    derived from the bytes (`digest`). `damaged`: names of the unreadable parts.
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
    """The immediate reply to an async call. An acknowledgement has camelCase names and another `event_id`, and is never
    parsed as an event.

    Source: terminal API, Acknowledgement.
    """

    status: str | None
    client_transaction_ids: tuple[str, ...]  # the echoed ids, one for each object that has an id
    serial_number: str | None


def read_event(body: bytes) -> TransactionEvent:
    """Read a transaction event. Raise NotAnEvent, whose message names the field.

    An event needs a readable status, and a readable id of its transaction or serial of its terminal. None of these
    values may be contradictory. `damaged` lists other unreadable parts.
    """
    members, damaged = _members_of(body)
    return _read(body, members, damaged, members.get("status"))


def read_element(body: bytes, *, paged: bool = False) -> TransactionEvent:
    """Read an element of a search's reply as an event. Raise NotAnEvent.

    Without `status`, the `transaction_status` in its acquirer's answer counts. `paged`: the element's own
    `transaction_status` counts too.
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
    """Read an event. `status`: its state. Raise NotAnEvent."""
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
    """Parse an acknowledgement at the top level, or in the member `object`. Both places were seen.

    Without `inner`, only the top level and one name of the serial are read, as in earlier versions.
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
    """Return the ids in a reply. An id that is not a text never equals ours."""
    echoes = [part.get("client_transaction_id") for part in parts]
    return tuple(
        (_text(part, "client_transaction_id") or "").lower()
        for part, echo in zip(parts, echoes, strict=True)
        # A damaged id does not make it another's reply, because only this request used the connection.
        if echo not in (None, "") and not (isinstance(echo, str) and UNREADABLE in echo)
    )


def _status(value: Any) -> str:
    """Return the status, the only required member. Raise NotAnEvent."""
    if not isinstance(value, str) or not value or UNREADABLE in value:
        raise NotAnEvent(CallbackResult.NO_STATUS)
    if len(value) > MAX_TEXT:
        raise NotAnEvent(CallbackResult.LONG_TEXT, name="status", most=MAX_TEXT)
    return value


#: Member with the state in the acquirer's answer.
_ACQUIRERS_WORDS = (Status.APPROVAL, Status.DECLINED)


def _acquirers_word(members: Object, *, paged: bool) -> Any:
    """Return the state in the acquirer's answer of an element. Return None if there is no state, or two."""
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
            raise NotAnEvent(CallbackResult.TWO_VALUES, name=f"{prefix}{name}")


def _object(members: Object, name: str) -> Object:
    value = members.get(name)
    return value if isinstance(value, Object) else _EMPTY


def _under_one(members: Object, name: str, other: str) -> Object:
    """Return an object in which a member with two possible names has the first name.

    Two values count as a repeated name.
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
    value = members.get(name)
    text = value if isinstance(value, str) else as_text(value)
    return None if text is None else text[:MAX_TEXT]


class _LenientReader:
    """Lenient reader of an event's members. The reader records the unreadable members.

    Each unreadable member is recorded with its object and its path.
    """

    def __init__(self, damaged: set[Place]) -> None:
        self.damaged = damaged

    def object(self, members: Object, *place: str) -> Object:
        """Return an object member, or an empty object if it is missing."""
        value = self._one(members, place)
        if value is None:
            return _EMPTY
        if isinstance(value, Object):
            return value
        self._note(value, place)
        return _EMPTY

    def text(self, members: Object, *place: str) -> str | None:
        """Return a text to be shown. A number becomes its digits, and unreadable parts become U+FFFD."""
        value = self._one(members, place)
        if value is None:
            return None
        text = value if isinstance(value, str) else as_text(value)
        if text is not None:
            return text[:MAX_TEXT]
        self._note(value, place)
        return None

    def whole(self, members: Object, *place: str) -> str | None:
        """Return a text for comparisons or look-ups. An incomplete text is returned as empty."""
        value = members.get(place[-1])
        if not members.repeated:  # the usual case
            if value is None:
                return None
            if type(value) is str and value and UNREADABLE not in value:
                return value[:MAX_TEXT]
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
        """Return an amount."""
        value = self._one(members, place)
        if value is None:
            return None
        amount = read_money(value)
        if amount is None:
            self._note(value, place)
        return amount

    def _one(self, members: Object, place: tuple[str, ...]) -> Any:
        """Return the member at the end of a path, or None if the name occurs twice."""
        if members.repeated and place[-1] in members.repeated:
            self.damaged.add(place)
            return None
        return members.get(place[-1])

    def _note(self, value: Any, place: tuple[str, ...]) -> None:
        """Record an unreadable value at this path, unless the value is empty."""
        if _something(value):
            self.damaged.add(place)


_EMPTY = Object()

#: Values of a terminal that count as missing.
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
