"""What the terminal says: the acknowledgement (spec 2.2) and the transaction event (spec 2.1, 3.1, 6.1).

The two have different shapes on purpose; each is built here field by field, as the spec's tables have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from posd.simulator.request import Number, StartRequest
from posd.simulator.scenarios import CHIP, Failure, Status


@dataclass(frozen=True, slots=True)
class Device:
    """Who the terminal is."""

    serial_number: str
    brand: str
    model: str
    merchant_id: str
    wifi_mac: str
    terminal_id: str
    room: str = ""
    country: str = "ECU"
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class Operation:
    """How one operation is called: in the acknowledgement (spec 2.2) and in the final event (spec 2.1)."""

    acknowledged_as: str
    reported_as: str


#: The operations that the terminal runs; a further one is a row here and a row in the routes.
CHARGE = Operation("charge", "CHARGE")

#: The conditional fields of each state's event (spec 6.1 and 3.1, rules 7 and 8); `previous_status` stands in all but
#: the first, and a field without a value (no card was presented) is left out.
CONDITIONAL_FIELDS: Mapping[Status, tuple[str, ...]] = {
    Status.TERMINAL_ACKNOWLEDGED: (),
    Status.CARD_PRESENTED: ("reading_type",),
    Status.APPROVAL_REQUESTED: ("reading_type",),
    Status.APPROVAL: ("reading_type", "operation", "raw_response"),
    Status.DECLINED: ("reading_type", "failure_reason"),
    Status.TERMINAL_REJECTED: ("reading_type", "operation", "failure_reason"),
    Status.TERMINAL_CANCELED: ("operation",),
}

#: Fields of the operation that the request may set, and what the terminal takes where it does not.
OPERATION_DEFAULTS: Mapping[str, Any] = {
    "is_deferred": False,
    "is_cashback": False,
    "cashback_amount": 0,
    "omit_card": False,
    "query_deferred": False,
    "default_deferred": "",
    "show_decimal_places": True,
}
#: The members of `extra_taxes` (spec 2.1).
EXTRA_TAXES = ("airport_tax", "iac", "ice", "travel_agency")
#: Amount members that the event leaves out when they are zero (spec 2.1).
OMITTED_WHEN_ZERO = ("iva", "subtotal_iva")


@dataclass(frozen=True, slots=True)
class Event:
    """Everything that an event is made of, before its shape."""

    event_id: str
    occurred_at: str
    status: Status
    previous_status: Status | None
    reading_type: str | None
    failure: Failure | None
    raw_response: dict[str, Any] | None


def new_uuid(rng: Random) -> str:
    """Draw a random UUID (version 4)."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def acknowledgement(device: Device, start: StartRequest, event_id: str) -> dict[str, Any]:
    """Build the immediate answer of an asynchronous operation (spec 2.2)."""
    return {
        "event_id": event_id,
        "status": Status.TERMINAL_ACKNOWLEDGED.value,
        "previous_status": "",
        "operation": {**start.fields, "type": CHARGE.acknowledged_as},
        "terminal": {
            "serialNumber": device.serial_number,
            "model": device.model,
            "wifiMac": device.wifi_mac,
            "room": device.room,
            "terminal_id": device.terminal_id,
        },
    }


def transaction_event(device: Device, start: StartRequest, event: Event) -> dict[str, Any]:
    """Build the JSON of a transaction event (spec 2.1)."""
    body: dict[str, Any] = {
        "event_id": event.event_id,
        "occurred_at": event.occurred_at,
        "status": event.status.value,
        "merchant_id": device.merchant_id,
        "client_transaction_id": start.client_transaction_id,
        "terminal": {"serial_number": device.serial_number, "brand": device.brand, "model": device.model},
    }
    if event.previous_status is not None:
        body["previous_status"] = event.previous_status.value
    values: dict[str, Any] = {
        "reading_type": event.reading_type,
        "operation": operation(device, start),
        "failure_reason": _failure_reason(event.failure),
        "raw_response": event.raw_response,
    }
    body |= {name: values[name] for name in CONDITIONAL_FIELDS[event.status] if values[name] is not None}
    return body


def operation(device: Device, start: StartRequest) -> dict[str, Any]:
    """Build the operation as the terminal processed it, for the final event (spec 2.1)."""
    fields: dict[str, Any] = {
        "type": CHARGE.reported_as,
        "amount": processed_amount(device, start),
        "transaction_mode": "ONLINE",
        "client_transaction_id": start.client_transaction_id,
        "country": device.country,
        **{name: start.fields.get(name, default) for name, default in OPERATION_DEFAULTS.items()},
        "metadata": start.metadata,
    }
    if start.events_webhook_url is not None:
        fields["events_webhook_url"] = start.events_webhook_url
    return fields


def processed_amount(device: Device, start: StartRequest) -> dict[str, Any]:
    """Build the amount of the event: currency and tip added, zero taxes left out (spec 2.1)."""
    amount = {
        "currency": device.currency,
        "subtotal_iva0": 0,
        "tip": 0,
        **start.amount,
        "extra_taxes": dict.fromkeys(EXTRA_TAXES, 0) | start.amount.get("extra_taxes", {}),
    }
    for name in OMITTED_WHEN_ZERO:
        if amount.get(name) == 0:
            del amount[name]
    return amount


def total(start: StartRequest) -> Number:
    """Add up what the cardholder pays, exactly: taxes, subtotals, tip and extra taxes."""
    members = [start.amount.get(name, 0) for name in ("iva", "subtotal_iva", "subtotal_iva0", "tip")]
    taxes = start.amount.get("extra_taxes", {})
    return sum([*members, *(taxes.get(name, 0) for name in EXTRA_TAXES)], start=Decimal(0))


def approval(start: StartRequest, reading_type: str | None, rng: Random) -> dict[str, Any]:
    """Make up the acquirer's answer to an approved operation: `raw_response` (spec 2.1)."""
    authorized = total(start)
    return {
        "additional_amounts": {
            "account_type": "00",
            "amount": authorized,
            "amount_type": "00",
            "card_type": "CREDIT",
            "currency_code": "840",
        },
        "authorized_amount": authorized,
        "card_type": "CREDIT",
        "cvm_type": "PIN" if reading_type == CHIP else "NO_CVM",
        "franchise": "VISA",
        "gateway_response": {"code": "00", "message": "Approved"},
        "message_fields": {
            "F11": f"{rng.randrange(1, 1_000_000):06}",
            "F38": f"{rng.randrange(1, 1_000_000):06}",
            "F39": "00",
            "F55": f"9F2608{rng.getrandbits(64):016X}9F2701809F3602{rng.getrandbits(16):04X}",
        },
        "transaction_reference": new_uuid(rng),
        "transaction_status": "APPROVED",
        "transaction_type": CHARGE.reported_as,
        "ticket_number": f"{rng.randrange(1, 1_000_000):06}",
        "card_data": {"bank": "Simulated Bank", "brand": "VISA", "country": "EC", "type": "CREDIT"},
    }


def _failure_reason(failure: Failure | None) -> dict[str, str] | None:
    return None if failure is None else {"type": failure.type, "code": failure.code, "message": failure.message}
