"""The calls of the local API as values: what is asked, and the checks that need no posd."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import quote
from uuid import UUID

from posd.client.documents import encode

#: An amount: its parts, or one number that means `subtotal_iva0`.
Number: TypeAlias = Decimal | int | str
Amount: TypeAlias = Number | Mapping[str, Number | Mapping[str, Number]]

#: seconds: longer than posd's own call to a terminal takes by default (3 + 20).
REPLY_SECONDS = 60.0

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_PRINT_JOB_ID = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its path below /v1, and how long its answer is waited for (None: for ever).

    `pause`: seconds to let pass before it. `also`: 4xx and 5xx that are answers here where they bear no problem.
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    seconds: float | None = REPLY_SECONDS
    also: Collection[int] = ()
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its HTTP status, its JSON decoded, and its bytes as they came."""

    status: int
    body: Any
    raw: bytes


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One server-sent event: its id (that of the last one that had one), its name, and its data as text."""

    id: str
    name: str
    data: str


HEALTH = Call("GET", "/health", also={503})  # posd that fails says so, and how


def transaction_id(given: UUID | str) -> str:
    """Return an id as posd writes it. Raise ValueError."""
    text = str(given).lower()
    if not _UUID.fullmatch(text):
        raise ValueError(
            f"{given!r} is no id of a transaction: it is a UUID that the till makes (uuid.uuid4()) and stores before "
            "the call, so that it can ask again"
        )
    return text


def print_job_id(given: str) -> str:
    """Return the id of a print job. Raise ValueError."""
    if not _PRINT_JOB_ID.fullmatch(given):
        raise ValueError(f"{given!r} is no id of a print job: 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return given


def transaction_path(identity: str, call: str = "") -> str:
    """Return the path of a transaction, or of a call on it."""
    return f"/transactions/{identity}{call}"


def print_job_path(identity: str, call: str = "") -> str:
    """Return the path of a print job, or of a call on it."""
    return f"/print-jobs/{identity}{call}"


def terminal_path(serial: str) -> str:
    """Return the path of a terminal."""
    return f"/terminals/{quote(serial, safe='')}"


def start(identity: str, kind: str, given: "Amount | None", fields: Mapping[str, object]) -> Call:
    """Return the call that starts a payment. Raise TypeError for a float, ValueError for a number that is none."""
    parts = None if given is None and kind == "void" else amount(given)
    return put(transaction_path(identity), {"type": kind, "amount": parts, **fields})


def put(path: str, fields: Mapping[str, object]) -> Call:
    """Return the call that starts something; what is None or False is left out. Raise TypeError for a float."""
    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    return Call("PUT", path, body=encode(given))


def post(path: str, fields: Mapping[str, object] | None = None) -> Call:
    """Return a call that does something to what was started."""
    given = None if fields is None else {name: value for name, value in fields.items() if value is not None}
    return Call("POST", path, body=None if given is None else encode(given))


def get(path: str, filters: Mapping[str, object] | None = None) -> Call:
    """Return a call that reads; filters that are None are left out."""
    return Call("GET", path, params={k: query(v) for k, v in (filters or {}).items() if v is not None})


def amount(given: Amount | None) -> Mapping[str, object]:
    """Return the parts of an amount. Raise TypeError for none, and for a float: that cannot hold 0.10."""
    parts = given if isinstance(given, Mapping) else {"subtotal_iva0": given}
    for name, part in parts.items():
        _check_number(name, part)
    return parts


def metadata_filters(metadata: Mapping[str, object] | None) -> dict[str, object]:
    """Return the filters that look into the till's metadata."""
    return {f"metadata.{name}": value for name, value in (metadata or {}).items()}


def query(value: object) -> str:
    """Return the text of a query parameter. Raise ValueError for a time without a zone."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone: say which moment is meant, such as datetime.now(UTC)")
            return value.astimezone(UTC).isoformat()
        case _:
            return str(value)


def _check_number(name: str, part: object) -> None:
    if isinstance(part, Mapping):
        for inner, value in part.items():
            _check_number(f"{name}.{inner}", value)
    elif isinstance(part, bool) or not isinstance(part, Decimal | int | str):
        hint = f': write Decimal("{part!r}") or "{part!r}"' if isinstance(part, float) else ""
        raise TypeError(f"{name} is {part!r} ({type(part).__name__}): an amount is a Decimal, an int or a str{hint}")
