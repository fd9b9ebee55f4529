"""Requests of callers, and replies, acknowledgements and events of the terminal (terminal API).

An acknowledgement and an event have different members. Both are built field by field from the tables of the terminal
API.

Source: terminal API, Start request, Acknowledgement, Events, Lifecycle.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from http.client import responses
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import msgspec

from posd.simulator import wire
from posd.simulator.scenario import Failure, Fault, Reply, Scenario, draw
from posd.simulator.settings import Settings
from posd.simulator.wire import PaymentStatus, Refused

#: Reply before a scenario changes it: HTTP status and JSON body.
Usual = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply to one call. It is sent `delay` terminal seconds from now, and not before `awaited` is done."""

    status: int
    body: bytes
    content_type: str = "application/json"
    delay: float = 0.0
    fault: Fault | None = None
    awaited: asyncio.Future[Any] | None = None

    @property
    def waits(self) -> bool:
        """Whether the reply is not sent at once."""
        return self.fault == "silent" or self.awaited is not None or self.delay > 0

    @property
    def http_status(self) -> int | None:
        """The status that reaches the caller, or None if no reply does."""
        return None if self.fault in ("lost", "silent") else int(self.status)


def coded(status: int, code: str, message: str) -> Usual:
    """Return a reply whose body has a code and a message."""
    return status, {"code": code, "message": message}


def plain(usual: Usual) -> Answer:
    """Return the usual reply without changes."""
    status, body = usual
    return Answer(status, wire.encode(body))


def apply(
    settings: Settings,
    reply: Reply,
    usual: Usual,
    rng: Random,
    transaction: str | None = None,
    awaited: asyncio.Future[Any] | None = None,
) -> Answer:
    """Return the usual reply with the changes of a scenario. `transaction`: client_transaction_id for a refusal."""
    status, body = usual
    if reply.status is not None:
        status = reply.status
        if status >= 400:
            said = reply.refusal or Failure(f"HTTP_{status}", responses.get(status, "an error without a name"))
            status, body = refusal(settings, Refused(status, said.code, said.message, kind=said.type), transaction)
    if reply.body is not None:
        raw = reply.body.encode()
    else:
        raw = wire.encode(body)
        if reply.set or reply.remove:
            raw = wire.encode(changed(wire.decode(raw), reply.set, reply.remove))
    return Answer(int(status), raw, reply.content_type, draw(reply.after, rng), reply.fault, awaited)


def changed(value: Any, members: Mapping[str, Any], removed: Iterable[str]) -> Any:
    """Return JSON with members replaced, added and removed. A member is named by its dotted path (`a.b`).

    In a list, each item is changed. If a path leads through a value that is not an object, an object replaces it.
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


#: The simulator's own code -> published type and code of that refusal.
_SAME_AS: Mapping[str, tuple[str, str]] = {"TERMINAL_BUSY": ("TERMINAL", "TER-003")}
#: HTTP status -> type and code prefix of a refusal. The exact codes are not published.
_FAMILIES: Mapping[int, tuple[str, str]] = {
    HTTPStatus.UNAUTHORIZED: ("AUTHENTICATION", "AUTH-"),
    HTTPStatus.FORBIDDEN: ("AUTHENTICATION", "AUTH-"),
    HTTPStatus.NOT_FOUND: ("NOT_FOUND", "NF-"),
    HTTPStatus.CONFLICT: ("TERMINAL", "TER-"),
    HTTPStatus.TOO_MANY_REQUESTS: ("TERMINAL", "TER-"),
}


def refusal(settings: Settings, refused: Refused, transaction: str | None = None) -> Usual:
    """Return the reply to a refused request. `transaction`: its client_transaction_id, if known.

    If the refusal has no type, its reply in the classic edition has a code and a message. Every other reply is a
    LinkFailure (terminal API, Refusals).
    """
    if settings.edition == "classic" and refused.kind is None:
        return coded(refused.status, refused.code, refused.message)
    family = ("TERMINAL", "TER-") if refused.status >= 500 else ("PARAMETER", "PAR-")
    published = _SAME_AS.get(refused.code) or _FAMILIES.get(refused.status, family)
    link_type, code = published if refused.kind is None else (refused.kind, refused.code)
    named = {} if transaction is None else {"client_transaction_id": transaction}
    return refused.status, {
        "type": link_type,
        "code": code,
        "message": refused.message,
        **({} if refused.param is None else {"param": refused.param}),
        "object": {**named, "terminal_id": settings.terminal_id, "serial_number": settings.serial},
    }


# Requests: conversion of bytes to a request or a refusal.

#: Ids of a start: name in the ledger -> name in the body.
START_IDS = {"client_transaction_id": "client_transaction_id", "transaction_reference": "transaction_reference"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class ReceivedStart:
    """Valid start request. `fields`: the whole body, which the acknowledgement echoes.

    `transaction_reference`: reference of the original, as sent. `amount`: in the main unit; None: the amount of the
    original. `scenario`: the scenario in the metadata, or None.
    """

    operation: wire.SimulatedOperation
    client_transaction_id: str
    transaction_reference: str | None
    amount: dict[str, Any] | None
    events_webhook_url: str | None
    metadata: dict[str, Any]
    scenario: str | None
    fields: dict[str, Any]


def read_start(
    raw: bytes, operation: wire.SimulatedOperation, scenarios: Mapping[str, Scenario], unit: wire.AmountUnit = "main"
) -> ReceivedStart:
    """Parse and check a request body. Amounts in the body are in `unit`.

    Raise Refused: 400 for a body that is not a JSON object, 422 for a field that the terminal API or the operation
    forbids. The message names the field.
    """
    body = read_object(raw)
    transaction = _uuid(body, "client_transaction_id")
    reference = _reference(body, operation)
    amount = _amount(body, operation, unit)
    url = body.get("events_webhook_url")
    if url is not None and not is_web_address(url):
        raise invalid("events_webhook_url", "must be an http or https URL")
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise invalid("metadata", "must be an object")
    scenario = _scenario(metadata or {}, scenarios)
    return ReceivedStart(operation, transaction, reference, amount, url, metadata or {}, scenario, body)


def read_search(raw: bytes) -> str:
    """Parse the body of a search, and return its id.

    Raise Refused: 400 for a body that is not a JSON object, 422 for an id that is not a UUID.
    """
    return _uuid(read_object(raw), "client_transaction_id")


def claims(raw: bytes, names: Mapping[str, str]) -> dict[str, str | None]:
    """Return some texts of a request, for the ledger. The body may be invalid.

    `names`: name in the ledger -> name in the body. A missing text is None.
    """
    try:
        body = read_object(raw)
    except Refused:
        body = {}
    values = {name: body.get(member) for name, member in names.items()}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}


def read_object(raw: bytes) -> dict[str, Any]:
    """Read a body that must be a JSON object. Raise Refused."""
    try:
        body = wire.decode(raw)
    except ValueError as error:
        raise Refused(400, "MALFORMED_JSON", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "MALFORMED_JSON", "the body is not a JSON object")
    return body


def _reference(body: dict[str, Any], operation: wire.SimulatedOperation) -> str | None:
    if operation.originals:
        return _uuid(body, "transaction_reference")
    if body.get("transaction_reference") is not None:
        raise invalid("transaction_reference", f"is not allowed: a {operation.name} has no original")
    return None


def _uuid(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not (isinstance(value, str) and _UUID.fullmatch(value)):
        raise invalid(name, "must be a UUID")
    return value


def _amount(body: dict[str, Any], operation: wire.SimulatedOperation, unit: wire.AmountUnit) -> dict[str, Any] | None:
    amount: Any = body.get("amount")
    if amount in (None, {}) and not operation.needs_amount:
        return None
    _check_numbers(amount, "amount", unit)
    return wire.converted(amount, lambda value: wire.to_main(value, unit))


def _scenario(metadata: dict[str, Any], scenarios: Mapping[str, Scenario]) -> str | None:
    if "scenario" not in metadata:
        return None
    name = metadata["scenario"]
    if not (isinstance(name, str) and name in scenarios):
        raise invalid("metadata.scenario", "must name a scenario; posd simulate --list shows them")
    if scenarios[name].out_of_reach:
        raise invalid("metadata.scenario", f"cannot be {name}: this scenario must be chosen before the payment starts")
    return name


def _check_numbers(amount: Any, path: str, unit: wire.AmountUnit) -> None:
    if not isinstance(amount, dict):
        raise invalid(path, "must be an object of numbers")
    for name, value in amount.items():
        check = _check_numbers if f"{path}.{name}" == "amount.extra_taxes" else _check_number
        check(value, f"{path}.{name}", unit)


def _check_number(value: Any, path: str, unit: wire.AmountUnit) -> None:
    fault = wire.number_fault(value)
    if fault is not None:
        raise invalid(path, fault)
    if unit != "main" and value != int(value):
        counted = "hundredths" if unit == "hundredths" else "the currency's main unit"
        message = f"{path} must be a whole number: this terminal counts in {counted}"
        raise Refused(422, "PAR-", message, kind="PARAMETER", param=path)


def is_web_address(url: Any) -> bool:
    """Return whether a webhook can be delivered to a URL."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        httpx2.URL(url)  # refuse an unusable URL before the payment, and not after it
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return False


def invalid(path: str, why: str) -> Refused:
    """Return the refusal (422) of the field at `path`. `why`: the fault, as the rest of a sentence."""
    return Refused(422, "INVALID_REQUEST", f"{path} {why}", param=path)


# Events of a payment, and the terminal's data in them.

#: Conditional fields of each state's event (terminal API, Lifecycle). All events except the first have
#: `previous_status`. A field without a value is omitted, for example if no card was presented.
CONDITIONAL_FIELDS: Mapping[str, tuple[str, ...]] = {
    PaymentStatus.TERMINAL_ACKNOWLEDGED: (),
    PaymentStatus.CARD_PRESENTED: ("reading_type",),
    PaymentStatus.APPROVAL_REQUESTED: ("reading_type",),
    PaymentStatus.APPROVAL: ("reading_type", "operation", "raw_response"),
    PaymentStatus.DECLINED: ("reading_type", "failure_reason"),
    PaymentStatus.TERMINAL_REJECTED: ("reading_type", "operation", "failure_reason"),
    PaymentStatus.TERMINAL_CANCELED: ("operation",),
}
#: Country in the final event.
COUNTRY = "ECU"
#: Conditional fields of the event of an unpublished state.
UNPUBLISHED_FIELDS = ("reading_type",)

#: Fields of the operation that the request may set, and their defaults.
OPERATION_DEFAULTS: Mapping[str, Any] = {
    "is_deferred": False,
    "is_cashback": False,
    "cashback_amount": 0,
    "omit_card": False,
    "query_deferred": False,
    "default_deferred": "",
    "show_decimal_places": True,
}


def new_uuid(rng: Random) -> str:
    """Draw a random UUID (version 4)."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def acknowledgement(settings: Settings, start: ReceivedStart, event_id: str) -> dict[str, Any]:
    """Build the immediate reply to an asynchronous operation (terminal API, Acknowledgement)."""
    return {
        "event_id": event_id,
        "status": PaymentStatus.TERMINAL_ACKNOWLEDGED.value,
        "previous_status": "",
        "operation": {**start.fields, "type": start.operation.name},
        "terminal": {
            "serialNumber": settings.serial,
            "model": settings.model,
            "wifiMac": settings.wifi_mac,
            "room": "",
            "terminal_id": settings.terminal_id,
        },
    }


def transaction_event(
    settings: Settings,
    start: ReceivedStart,
    amount: wire.Processed,
    rng: Random,
    *,
    event_id: str | None = None,
    occurred_at: str,
    status: str,
    previous_status: str | None,
    reading_type: str | None,
    failure: Failure | None,
) -> dict[str, Any]:
    """Build the JSON of a transaction event (terminal API, Events). Without `event_id` the event gets a new id."""
    approved = status == PaymentStatus.APPROVAL
    raw_response = approval(start, amount.authorized, reading_type, settings.edition, rng) if approved else None
    body: dict[str, Any] = {
        "event_id": event_id or new_uuid(rng),
        "occurred_at": occurred_at,
        "status": status,
        "merchant_id": settings.merchant_id,
        "client_transaction_id": start.client_transaction_id,
        "terminal": {"serial_number": settings.serial, "brand": settings.brand, "model": settings.model},
    }
    if previous_status is not None:
        body["previous_status"] = previous_status
    values: dict[str, Any] = {
        "reading_type": reading_type,
        "operation": operation(start, amount),
        "failure_reason": None if failure is None else msgspec.structs.asdict(failure),
        "raw_response": raw_response,
    }
    conditional = CONDITIONAL_FIELDS.get(status, UNPUBLISHED_FIELDS)
    return body | {name: values[name] for name in conditional if values[name] is not None}


def operation(start: ReceivedStart, amount: wire.Processed) -> dict[str, Any]:
    """Build the operation in the final event (terminal API, Events)."""
    fields: dict[str, Any] = {
        "type": start.operation.reported_as,
        "amount": amount.reported,
        "transaction_mode": "ONLINE",
        "client_transaction_id": start.client_transaction_id,
        "country": COUNTRY,
        **{name: start.fields.get(name, default) for name, default in OPERATION_DEFAULTS.items()},
        "metadata": start.metadata,
    }
    if start.events_webhook_url is not None:
        fields["events_webhook_url"] = start.events_webhook_url
    if start.operation.reports_reference:
        fields["transaction_reference"] = start.transaction_reference
    return fields


def approval(
    start: ReceivedStart, authorized: wire.Number, reading_type: str | None, edition: wire.Edition, rng: Random
) -> dict[str, Any]:
    """Build the acquirer's reply to an approved operation: `raw_response` (terminal API, Events).

    The reference in this reply is always new. The operation itself may keep the reference of the original.
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
        "cvm_type": "PIN" if reading_type == wire.CHIP else "NO_CVM",
        "franchise": "VISA",
        "gateway_response": {"code": "00", "message": "Approved"},
        "message_fields": {
            "F11": f"{rng.randrange(1, 1_000_000):06}",
            "F38": f"{rng.randrange(1, 1_000_000):06}",
            "F39": "00",
            "F55": f"9F2608{rng.getrandbits(64):016X}9F2701809F3602{rng.getrandbits(16):04X}",
        },
        "transaction_reference": new_uuid(rng),
        "transaction_status": "APPROVED" if edition == "classic" else "APPROVAL",
        "transaction_type": start.operation.reported_as,
        "ticket_number": f"{rng.randrange(1, 1_000_000):06}",
        "card_data": {"bank": "Simulated Bank", "brand": "VISA", "country": "EC", "type": "CREDIT"},
    }
