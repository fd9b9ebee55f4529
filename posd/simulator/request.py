"""The requests: of an asynchronous operation (spec 2.4) and of a search. Bytes in, a request or a refusal out."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx2

from posd.simulator import wire
from posd.simulator.scenarios import SCENARIOS

#: A JSON number.
Number = int | Decimal
#: Digits before the point that an amount may have: the acquirer's field has twelve.
MAX_WHOLE_DIGITS = 12
#: Digits after the point that an amount may have: some currencies and tax sums use four.
MAX_FRACTION_DIGITS = 4

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request that the terminal accepts. `fields` is the whole body, echoed in the acknowledgement."""

    client_transaction_id: str
    amount: dict[str, Any]
    events_webhook_url: str | None
    metadata: dict[str, Any]
    scenario: str
    fields: dict[str, Any]


class Refused(Exception):
    """The terminal does not take the request; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def read_start(raw: bytes, default_scenario: str) -> StartRequest:
    """Read and check a request body.

    Raises Refused: 400 where the body is not a JSON object, 422 where a field is not as the spec has it (2.4), the
    message naming the field.
    """
    body = _object(raw)
    transaction = _transaction(body)
    amount = body.get("amount")
    if not isinstance(amount, dict):
        raise _invalid("amount", "must be an object of numbers")
    _check_amount(amount)
    url = body.get("events_webhook_url")
    if url is not None and not _is_web_address(url):
        raise _invalid("events_webhook_url", "must be an http or https URL")
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _invalid("metadata", "must be an object")
    scenario = (metadata or {}).get("scenario", default_scenario)
    if not (isinstance(scenario, str) and scenario in SCENARIOS):
        raise _invalid("metadata.scenario", f"must be one of {', '.join(SCENARIOS)}")
    return StartRequest(transaction, amount, url, metadata or {}, scenario, body)


def read_search(raw: bytes) -> str:
    """Read the body of a search, return the id that is asked for.

    Raises Refused: 400 where the body is not a JSON object, 422 where the id is not a UUID.
    """
    return _transaction(_object(raw))


def claimed_id(raw: bytes) -> str | None:
    """Find the id that a refused request bears, for the ledger; None where it bears none."""
    try:
        value = _object(raw).get("client_transaction_id")
    except Refused:
        return None
    return value if isinstance(value, str) else None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = wire.decode(raw)
    except wire.NotJson as error:
        raise Refused(400, "MALFORMED_JSON", f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "MALFORMED_JSON", "the body is not a JSON object")
    return body


def _transaction(body: dict[str, Any]) -> str:
    value = body.get("client_transaction_id")
    if not (isinstance(value, str) and _UUID.fullmatch(value)):
        raise _invalid("client_transaction_id", "must be a UUID")
    return value


def _check_amount(amount: dict[str, Any]) -> None:
    for name, value in amount.items():
        if name == "extra_taxes":
            if not isinstance(value, dict):
                raise _invalid("amount.extra_taxes", "must be an object of numbers")
            for tax, tax_value in value.items():
                _check_number(tax_value, f"amount.extra_taxes.{tax}")
        else:
            _check_number(value, f"amount.{name}")


def _check_number(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _invalid(path, "must be a number")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if number < 0:
        raise _invalid(path, "must not be negative")
    if number.adjusted() >= MAX_WHOLE_DIGITS or not isinstance(exponent, int) or exponent < -MAX_FRACTION_DIGITS:
        whole, fraction = MAX_WHOLE_DIGITS, MAX_FRACTION_DIGITS
        raise _invalid(path, f"must have at most {whole} digits before and {fraction} after the point")


def _is_web_address(url: Any) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        httpx2.URL(url)  # what the sender cannot call is refused now, not found out after the payment
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return False


def _invalid(path: str, why: str) -> Refused:
    return Refused(422, "INVALID_REQUEST", f"{path} {why}")
