"""What the terminal says: the acknowledgement and the transaction event (terminal API, Events, Lifecycle).

The two have different shapes on purpose; each is built here field by field, as the terminal API's tables have it.

Source: terminal API, Acknowledgement.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from posd.simulator.amounts import Number, Processed
from posd.simulator.lifecycle import CHIP, Status
from posd.simulator.request import StartRequest
from posd.simulator.scenario import Failure


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


#: The conditional fields of each state's event (terminal API, Lifecycle); `previous_status` stands in all but
#: the first, and a field without a value (no card was presented) is left out.
CONDITIONAL_FIELDS: Mapping[str, tuple[str, ...]] = {
    Status.TERMINAL_ACKNOWLEDGED: (),
    Status.CARD_PRESENTED: ("reading_type",),
    Status.APPROVAL_REQUESTED: ("reading_type",),
    Status.APPROVAL: ("reading_type", "operation", "raw_response"),
    Status.DECLINED: ("reading_type", "failure_reason"),
    Status.TERMINAL_REJECTED: ("reading_type", "operation", "failure_reason"),
    Status.TERMINAL_CANCELED: ("operation",),
}
#: Those of a state that is not published.
UNPUBLISHED_FIELDS = ("reading_type",)

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


@dataclass(frozen=True, slots=True)
class Event:
    """Everything that an event is made of, before its shape."""

    event_id: str
    occurred_at: str
    status: str
    previous_status: str | None
    reading_type: str | None
    failure: Failure | None
    raw_response: dict[str, Any] | None


def new_uuid(rng: Random) -> str:
    """Draw a random UUID (version 4)."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def acknowledgement(device: Device, start: StartRequest, event_id: str) -> dict[str, Any]:
    """Build the immediate answer of an asynchronous operation (terminal API, Acknowledgement)."""
    return {
        "event_id": event_id,
        "status": Status.TERMINAL_ACKNOWLEDGED.value,
        "previous_status": "",
        "operation": {**start.fields, "type": start.operation.name},
        "terminal": {
            "serialNumber": device.serial_number,
            "model": device.model,
            "wifiMac": device.wifi_mac,
            "room": device.room,
            "terminal_id": device.terminal_id,
        },
    }


def transaction_event(device: Device, start: StartRequest, amount: Processed, event: Event) -> dict[str, Any]:
    """Build the JSON of a transaction event (terminal API, Events)."""
    body: dict[str, Any] = {
        "event_id": event.event_id,
        "occurred_at": event.occurred_at,
        "status": event.status,
        "merchant_id": device.merchant_id,
        "client_transaction_id": start.client_transaction_id,
        "terminal": {"serial_number": device.serial_number, "brand": device.brand, "model": device.model},
    }
    if event.previous_status is not None:
        body["previous_status"] = event.previous_status
    values: dict[str, Any] = {
        "reading_type": event.reading_type,
        "operation": operation(device, start, amount),
        "failure_reason": _failure_reason(event.failure),
        "raw_response": event.raw_response,
    }
    conditional = CONDITIONAL_FIELDS.get(event.status, UNPUBLISHED_FIELDS)
    body |= {name: values[name] for name in conditional if values[name] is not None}
    return body


def operation(device: Device, start: StartRequest, amount: Processed) -> dict[str, Any]:
    """Build the operation as the terminal processed it, for the final event (terminal API, Events)."""
    fields: dict[str, Any] = {
        "type": start.operation.reported_as,
        "amount": amount.reported,
        "transaction_mode": "ONLINE",
        "client_transaction_id": start.client_transaction_id,
        "country": device.country,
        **{name: start.fields.get(name, default) for name, default in OPERATION_DEFAULTS.items()},
        "metadata": start.metadata,
    }
    if start.events_webhook_url is not None:
        fields["events_webhook_url"] = start.events_webhook_url
    if start.operation.reports_reference:
        fields["transaction_reference"] = start.transaction_reference
    return fields


def approval(start: StartRequest, authorized: Number, reading_type: str | None, rng: Random) -> dict[str, Any]:
    """Make up the acquirer's answer to an approved operation: `raw_response` (terminal API, Events).

    Its reference is always a new one; the original's stands in the operation, where it stands at all.
    """
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
        "transaction_type": start.operation.reported_as,
        "ticket_number": f"{rng.randrange(1, 1_000_000):06}",
        "card_data": {"bank": "Simulated Bank", "brand": "VISA", "country": "EC", "type": "CREDIT"},
    }


def _failure_reason(failure: Failure | None) -> dict[str, str] | None:
    return None if failure is None else {"type": failure.type, "code": failure.code, "message": failure.message}
