"""The requests: of an asynchronous operation and of a search. Bytes in, a request or a refusal out.

Source: terminal API, Start request.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from posd.simulator import wire
from posd.simulator.amounts import number_fault
from posd.simulator.operations import Operation
from posd.simulator.scenario import Scenario

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request that can be read. `fields` is the whole body, echoed in the acknowledgement.

    `transaction_reference` is the original's, as sent; `amount` is None where the original's counts. `scenario` is the
    one that its metadata names, None where they name none.
    """

    operation: Operation
    client_transaction_id: str
    transaction_reference: str | None
    amount: dict[str, Any] | None
    events_webhook_url: str | None
    metadata: dict[str, Any]
    scenario: str | None
    fields: dict[str, Any]


class Refused(Exception):
    """The terminal does not take the request; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def answer(self) -> tuple[int, Any]:
        """HTTP status and JSON body."""
        return self.status, {"code": self.code, "message": self.message}


def read_start(raw: bytes, operation: Operation, scenarios: Mapping[str, Scenario]) -> StartRequest:
    """Read and check a request body.

    Raises Refused: 400 where the body is not a JSON object, 422 where a field is not as the terminal API has it or the
    operation needs it, the message naming the field.
    """
    body = read_object(raw)
    transaction = _transaction(body)
    reference = _reference(body, operation)
    amount = _amount(body, operation)
    url = body.get("events_webhook_url")
    if url is not None and not is_web_address(url):
        raise invalid("events_webhook_url", "must be an http or https URL")
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise invalid("metadata", "must be an object")
    scenario = _scenario(metadata or {}, scenarios)
    return StartRequest(operation, transaction, reference, amount, url, metadata or {}, scenario, body)


def read_search(raw: bytes) -> str:
    """Read the body of a search, return the id that is asked for.

    Raises Refused: 400 where the body is not a JSON object, 422 where the id is not a UUID.
    """
    return _transaction(read_object(raw))


def claims(raw: bytes) -> dict[str, str | None]:
    """Find the ids that a request bears, for the ledger, in a body that may be anything; None where it bears none."""
    try:
        body = read_object(raw)
    except Refused:
        body = {}
    values = {name: body.get(name) for name in ("client_transaction_id", "transaction_reference")}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}


def read_object(raw: bytes) -> dict[str, Any]:
    """Read a body that must be a JSON object. Raises Refused."""
    try:
        body = wire.decode(raw)
    except wire.NotJson as error:
        raise Refused(400, "MALFORMED_JSON", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "MALFORMED_JSON", "the body is not a JSON object")
    return body


def _transaction(body: dict[str, Any]) -> str:
    return _uuid(body, "client_transaction_id")


def _reference(body: dict[str, Any], operation: Operation) -> str | None:
    if operation.originals:
        return _uuid(body, "transaction_reference")
    if body.get("transaction_reference") is not None:
        raise invalid("transaction_reference", f"must not be there: a {operation.name} refers to nothing")
    return None


def _uuid(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not (isinstance(value, str) and _UUID.fullmatch(value)):
        raise invalid(name, "must be a UUID")
    return value


def _amount(body: dict[str, Any], operation: Operation) -> dict[str, Any] | None:
    amount = body.get("amount")
    if amount in (None, {}) and not operation.needs_amount:
        return None
    if not isinstance(amount, dict):
        raise invalid("amount", "must be an object of numbers")
    for name, value in amount.items():
        if name == "extra_taxes":
            if not isinstance(value, dict):
                raise invalid("amount.extra_taxes", "must be an object of numbers")
            for tax, tax_value in value.items():
                _check_number(tax_value, f"amount.extra_taxes.{tax}")
        else:
            _check_number(value, f"amount.{name}")
    return amount


def _scenario(metadata: dict[str, Any], scenarios: Mapping[str, Scenario]) -> str | None:
    if "scenario" not in metadata:
        return None
    name = metadata["scenario"]
    if not (isinstance(name, str) and name in scenarios):
        raise invalid("metadata.scenario", "must name a scenario; posd simulate --list shows them")
    if scenarios[name].out_of_reach:
        raise invalid("metadata.scenario", f"cannot be {name}, which begins before the start: choose it beforehand")
    return name


def _check_number(value: Any, path: str) -> None:
    fault = number_fault(value)
    if fault is not None:
        raise invalid(path, fault)


def is_web_address(url: Any) -> bool:
    """Tell whether a webhook can be delivered there."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        httpx2.URL(url)  # what the sender cannot call is refused now, not found out after the payment
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return False


def invalid(path: str, why: str) -> Refused:
    """Return the refusal of a field; `path` names it."""
    return Refused(422, "INVALID_REQUEST", f"{path} {why}")
