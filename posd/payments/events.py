"""Wire codec: bytes of the terminal -> transaction event and acknowledgement (terminal API, Acknowledgement).

The two have different shapes and are read separately. The envelope of an event (what the terminal API marks "always")
must be there and be readable; everything else is read leniently, field by field: an approval is never refused because a
number came as a string or an object that posd does not need has another shape. The raw bytes are the record.

Source: terminal API, Events.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from posd.base.json_text import Object, decode
from posd.base.money import read_money

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
        # One that is no text is not ours, whatever it is.
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
