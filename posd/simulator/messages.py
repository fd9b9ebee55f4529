"""What the terminal says: the acknowledgement and the transaction event (terminal API, Events, Lifecycle).

The two have different shapes on purpose; each is built here field by field, as the terminal API's tables have it.

Source: terminal API, Acknowledgement.
"""

import asyncio
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import Any
from uuid import UUID

from posd.simulator import wire
from posd.simulator.operations import CHIP, Status
from posd.simulator.request import StartRequest
from posd.simulator.scenario import Failure, Fault, Reply, draw
from posd.simulator.wire import Number, Processed


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


# Answers: what the terminal would say, and what a scenario makes of it.

#: HTTP status and JSON body.
Usual = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it goes out: `delay` terminal seconds from now, and not before `awaited` is done."""

    status: int
    body: bytes
    content_type: str = "application/json"
    delay: float = 0.0
    fault: Fault | None = None
    awaited: asyncio.Future[Any] | None = None

    @property
    def waits(self) -> bool:
        """It does not go out at once."""
        return self.fault is Fault.SILENT or self.awaited is not None or self.delay > 0

    @property
    def http_status(self) -> int | None:
        """The status that reaches the caller; None where no answer does."""
        return None if self.fault in (Fault.LOST, Fault.SILENT) else int(self.status)


def coded(status: int, code: str, message: str) -> Usual:
    """Return an answer that consists of a code and words."""
    return status, {"code": code, "message": message}


def plain(usual: Usual) -> Answer:
    """Return the usual answer."""
    status, body = usual
    return Answer(status, wire.encode(body))


def apply(reply: Reply, usual: Usual, rng: Random, awaited: asyncio.Future[Any] | None = None) -> Answer:
    """Return what a scenario makes of the usual answer."""
    status, body = usual
    if reply.status is not None:
        status = reply.status
        if status >= 400:
            body = {"code": f"HTTP_{status}", "message": _phrase(status)}
    if reply.body is not None:
        raw = reply.body.encode()
    else:
        raw = wire.encode(body)
        if reply.set or reply.remove:
            raw = wire.encode(changed(wire.decode(raw), reply.set, reply.remove))
    return Answer(int(status), raw, reply.content_type, draw(reply.after, rng), reply.fault, awaited)


def changed(value: Any, members: Mapping[str, Any], removed: Iterable[str]) -> Any:
    """Return JSON with members replaced, added and removed, each named by its path with points.

    Of a list each item is changed. What a path leads through and is no object becomes one.
    """
    if isinstance(value, list):
        return [changed(item, members, removed) for item in value]
    value = deepcopy(value)
    for path, member in members.items():
        *above, name = path.split(".")
        parent = value
        for part in above:
            if not isinstance(parent.get(part), dict):
                parent[part] = {}
            parent = parent[part]
        parent[name] = member
    for path in removed:
        *above, name = path.split(".")
        parent = value
        for part in above:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent.pop(name, None)
    return value


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an error without a name"
