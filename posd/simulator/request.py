"""The requests: of an asynchronous operation and of a search. Bytes in, a request or a refusal out.

Source: terminal API, Start request.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from posd.simulator import wire
from posd.simulator.operations import Operation
from posd.simulator.scenario import CHOICE, Scenario, prints
from posd.simulator.wire import number_fault

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


# The request that creates a print job (terminal API, Printing), and its document as a person reads it on paper.
#
# The body of the creation is not published beyond its ids and `webhookUrl`; that the document stands under
# `document` is an assumption. Where nothing stands there, the members beside the published ones are the document.

#: Characters of an id; those of the caller are its own business, but a device does not take a novel.
MAX_ID_CHARACTERS = 128
#: The members that are published.
PUBLISHED = ("printJobId", "externalReference", "webhookUrl")
DOCUMENT = "document"
#: The member of a document that is a plain text.
TEXT = "text"


@dataclass(frozen=True, slots=True)
class PrintRequest:
    """A request that can be read. `document` is what is printed; without `webhook_url` the end is told to nobody."""

    print_job_id: str
    external_reference: str
    webhook_url: str | None
    scenario: str
    document: Any


def read_print(raw: bytes, default_scenario: str) -> PrintRequest:
    """Read and check a request body.

    Raises Refused: 400 where the body is not a JSON object, 422 where a field cannot be, the message naming it.
    """
    body = read_object(raw)
    print_job_id = body.get("printJobId")
    if not (isinstance(print_job_id, str) and 0 < len(print_job_id) <= MAX_ID_CHARACTERS):
        raise invalid("printJobId", f"must be a text of 1 to {MAX_ID_CHARACTERS} characters")
    reference = body.get("externalReference", "")
    if not isinstance(reference, str):
        raise invalid("externalReference", "must be a text")
    url = body.get("webhookUrl")
    if url is not None and not is_web_address(url):
        raise invalid("webhookUrl", "must be an http or https URL")
    beside = {name: value for name, value in body.items() if name not in PUBLISHED}
    document = body.get(DOCUMENT, beside)
    if not document:
        raise invalid(DOCUMENT, "must be there: there is nothing to print")
    scenario = reference.removeprefix(CHOICE) if reference.startswith(CHOICE) else default_scenario
    if scenario not in prints():
        raise invalid("externalReference", f"must name a scenario after {CHOICE} (posd simulate --list shows them)")
    return PrintRequest(print_job_id, reference, url, scenario, document)


def print_claims(raw: bytes) -> dict[str, str | None]:
    """Find the id and the reference that a request bears, for the ledger, in a body that may be anything."""
    try:
        body = read_object(raw)
    except Refused:
        body = {}
    values = {"print_job_id": body.get("printJobId"), "external_reference": body.get("externalReference")}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}


def on_paper(document: Any) -> str:
    """Lay a document out as text: its text where it has one, else each of its values on a line.

    What would steer a screen, a printer's own codes for example, is left out.
    """
    text = document.get(TEXT) if isinstance(document, dict) else document
    lines = text.splitlines() if isinstance(text, str) else _lines(document, "")
    return "\n".join("".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in lines)


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Give the lines of a value that `wire.decode` has read: its depth is limited there."""
    named = value.items() if isinstance(value, dict) else (("", item) for item in value)
    for name, item in named:
        label = f"{name}: " if name else ""
        if isinstance(item, dict | list):
            if name:
                yield f"{indent}{name}:"
            yield from _lines(item, indent + "  " * bool(name))
        else:
            yield from (indent + line for line in f"{label}{_word(item)}".splitlines() or [""])


def _word(value: Any) -> str:
    """Write one value: a text as it is, null as nothing."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
