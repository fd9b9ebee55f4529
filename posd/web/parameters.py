"""Reading path and query parameters; what is not described is refused by name (problem `invalid_request`)."""

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, TypeVar

from starlette.requests import Request

from posd.core.problems import Problem
from posd.core.times import iso, parse_iso
from posd.core.uuids import canonical_uuid

T = TypeVar("T")

#: Query parameters with this prefix name a key of the metadata.
METADATA = "metadata."
#: Characters of a key that a path into JSON cannot have in SQLite.
UNSEARCHABLE = frozenset('"\\\x00')
#: Keys of the metadata that one call may name; SQLite takes a thousand conditions at most.
MAX_METADATA = 16
#: Longest wait that a call may ask for, in seconds.
MAX_TIMEOUT_SECONDS = 3600.0
#: Rows a page: at most, and where nothing is said.
MAX_LIMIT = 500
DEFAULT_LIMIT = 50
#: SQLite's largest integer: no row has a higher seq.
MAX_SEQ = 2**63 - 1


def invalid(path: str, message: str) -> Problem:
    """Return the problem of one bad parameter."""
    return Problem("invalid_request", f"{path} {message}", errors=[{"path": path, "message": message}])


def transaction_id(request: Request) -> str:
    """Return the id of the path in canonical form. Raise Problem."""
    canonical = canonical_uuid(request.path_params["id"])
    if canonical is None:
        raise invalid("client_transaction_id", "must be a UUID, such as 7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")
    return canonical


def check_query(request: Request, known: frozenset[str], *, metadata: bool = False) -> None:
    """Raise Problem for query parameters that the call does not have, or that are given twice."""
    if not request.scope["query_string"]:
        return
    given = [name for name, _ in request.query_params.multi_items()]
    errors = [
        {"path": name, "message": "is not a parameter of this call"}
        for name in sorted(set(given) - known)
        if not (metadata and name.startswith(METADATA) and len(name) > len(METADATA))
    ]
    errors += [
        {"path": name, "message": "is given more than once"} for name in sorted(set(given)) if given.count(name) > 1
    ]
    if errors:
        allowed = ", ".join(sorted(known)) or "none"
        what = "; ".join(f"{error['path']} {error['message']}" for error in errors)
        raise Problem("invalid_request", f"{what}; parameters of this call: {allowed}", errors=errors)


def check_no_body(request: Request) -> None:
    """Raise Problem for a call that takes no body and has one; an empty object says nothing."""
    body: bytes = request.state.body
    if body.strip() not in (b"", b"{}"):
        errors = [{"path": "", "message": "this call takes no body"}]
        raise Problem("invalid_request", "this call takes no body; leave it out", errors=errors)


class Query:
    """Reads query parameters and collects what is wrong with them, to be refused all at once."""

    def __init__(self, request: Request) -> None:
        self._parameters = request.query_params
        self._errors: list[dict[str, str]] = []

    def read(self, name: str, reader: Callable[[str], T]) -> T | None:
        """Return a parameter as `reader` gives it, None where it is absent or wrong."""
        text = self._parameters.get(name)
        if text is None:
            return None
        try:
            return reader(text)
        except ValueError as error:
            self._errors.append({"path": name, "message": str(error)})
            return None

    def check(self) -> None:
        """Raise Problem where anything was wrong."""
        if self._errors:
            what = "; ".join(f"{error['path']} {error['message']}" for error in self._errors)
            raise Problem("invalid_request", what, errors=self._errors)


def query(request: Request, name: str, reader: Callable[[str], T]) -> T | None:
    """Return one query parameter as `reader` gives it, None where it is absent. Raise Problem."""
    parameters = Query(request)
    found = parameters.read(name, reader)
    parameters.check()
    return found


def timeout(text: str) -> float:
    """Read a number of seconds. Raise ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"must be a number of seconds from 0 to {MAX_TIMEOUT_SECONDS:g}")
    return seconds


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def flag(text: str) -> bool:
    """Read true or false. Raise ValueError."""
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def moment(text: str) -> str:
    """Read a moment and return it as stored. Raise ValueError."""
    try:
        return iso(parse_iso(text).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise ValueError("must be an ISO 8601 time, such as 2026-11-20T10:42:00Z") from error


def metadata(request: Request) -> Mapping[str, str]:
    """Return the metadata filters, key -> text."""
    items: Mapping[str, Any] = request.query_params
    for name in items:
        if name.startswith(METADATA) and not UNSEARCHABLE.isdisjoint(name):
            raise invalid(name, "cannot be searched: quotes, backslashes and NUL in a key are not possible here")
    found = {name.removeprefix(METADATA): text for name, text in items.items() if name.startswith(METADATA)}
    if len(found) > MAX_METADATA:
        raise invalid(METADATA, f"can be searched for by at most {MAX_METADATA} keys at once")
    return found
