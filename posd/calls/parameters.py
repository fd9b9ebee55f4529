"""Types of the table of calls (local API): path, query and header parameters with their parsers, calls, and responses.

A parameter that is not in the table is refused by name (problem `invalid_request`).
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.base.ids import ID_PATTERN, ID_RULE, NIL_AND_MAX, NIL_OR_MAX, canonical_uuid, chosen_uuid, is_print_job_id
from posd.base.problems import Problem
from posd.base.text import composed, did_you_mean
from posd.base.times import iso, read_moment
from posd.records import pages
from posd.records.model import Phase
from posd.records.pages import FeedPosition
from posd.records.request import MAX_FAULTS

#: Prefix of query parameters that name a key of the metadata.
METADATA = "metadata."
#: Maximum number of metadata keys in one call. SQLite accepts at most a thousand conditions.
MAX_METADATA = 16
#: Longest wait in a call, in seconds.
MAX_TIMEOUT_SECONDS = 3600.0
#: Maximum number of rows in a page, and the default number.
MAX_LIMIT = 500
DEFAULT_LIMIT = 50
#: SQLite's largest integer. No row has a higher seq.
MAX_SEQ = 2**63 - 1


class ParameterKind(msgspec.Struct, frozen=True):
    """Type of a parameter. `read` parses its text, or raises ValueError with the reason. `schema`: its JSON schema."""

    read: Callable[[str], Any]
    schema: Mapping[str, Any]


class Parameter(msgspec.Struct, frozen=True):
    """One parameter: name, type, purpose, and default.

    The name `metadata.` covers every parameter with that prefix.
    """

    name: str
    kind: ParameterKind
    words: str
    default: Any = None
    example: Any = None


def invalid(path: str, message: str) -> Problem:
    """Return the problem for one invalid parameter."""
    return Problem("invalid_request", f"{path} {message}", errors=[{"path": path, "message": message}])


def path(request: Request, parameter: Parameter) -> Any:
    """Return a parsed parameter of the path. Raise Problem.

    An operator can read and close a payment whose id is the nil or the max UUID. Only earlier versions allowed tills
    such an id.
    """
    text = request.path_params[parameter.name]
    if parameter is TRANSACTION_ID and request.state.admin and request.method != "PUT":
        text = canonical_uuid(text) or text
        if text in NIL_AND_MAX:
            return text
    try:
        return parameter.kind.read(text)
    except ValueError as error:
        raise invalid(parameter.name, str(error)) from error


def read(request: Request, known: tuple[Parameter, ...]) -> dict[str, Any]:
    """Return the parsed query parameters by name, or their defaults.

    The value of `metadata.` is a mapping from key to text. Raise Problem with all unknown, repeated or invalid
    parameters at once.
    """
    values = {parameter.name: parameter.default for parameter in known}
    if not request.scope["query_string"]:
        return values
    given = request.query_params.multi_items()
    errors = _unknown([name for name, _ in given], values)
    names = f"; parameters of this call: {', '.join(_named(values)) or 'none'}" if errors else ""
    for parameter in known:
        if parameter.name == METADATA:
            values[METADATA] = _metadata(dict(given))
        elif (text := request.query_params.get(parameter.name)) is not None:
            try:
                values[parameter.name] = parameter.kind.read(text)
            except ValueError as error:
                errors.append({"path": parameter.name, "message": str(error)})
    if errors:
        what = "; ".join(f"{error['path']} {error['message']}" for error in errors)
        raise Problem("invalid_request", f"{what}{names}", errors=errors)
    return values


def _named(known: Iterable[str]) -> list[str]:
    return sorted(f"{METADATA}KEY" if name == METADATA else name for name in known)


def _unknown(given: list[str], known: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the errors for unknown and repeated parameters, at most `MAX_FAULTS`."""
    counts = Counter(given)
    unknown = (name for name in counts.keys() - known if not (METADATA in known and name.startswith(METADATA)))
    errors = [
        {"path": name, "message": f"is not a parameter of this call{did_you_mean(name, _named(known))}"}
        for name in sorted(unknown)[:MAX_FAULTS]
    ]
    repeated = sorted(name for name, count in counts.items() if count > 1)
    return [*errors, *({"path": name, "message": "is given more than once"} for name in repeated)][:MAX_FAULTS]


def check_alone(page: pages.Filters, *, summed: bool = False) -> None:
    """Raise Problem if a search for the beginning of an id has filters other than `limit`.

    Such a search has one page, in the order of the ids.
    """
    if page.id is not None and (summed or not page.by_id):
        raise invalid("id", "goes with `limit` alone: omit the other filters, `cursor` and `totals`")


def check_no_body(request: Request) -> None:
    """Raise Problem if a call without a body has one. An empty object is accepted."""
    body: bytes = request.state.body
    if body.strip() not in (b"", b"{}"):
        errors = [{"path": "", "message": "this call takes no body"}]
        raise Problem("invalid_request", "this call has no body; omit it", errors=errors)


def _metadata(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metadata filters as a mapping from key to text. Raise Problem if there are too many."""
    found = {name.removeprefix(METADATA): text for name, text in given.items() if name.startswith(METADATA)}
    if len(found) > MAX_METADATA:
        raise invalid(METADATA, f"can be searched for by at most {MAX_METADATA} keys at once")
    return found


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"must be a number of seconds from 0 to {MAX_TIMEOUT_SECONDS:g}")
    return seconds


def whole(least: int, most: int) -> ParameterKind:
    """Return the type of whole numbers from `least` to `most`."""

    def read_whole(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return ParameterKind(read_whole, {"type": "integer", "minimum": least, "maximum": most})


def one_of(words: type[StrEnum]) -> ParameterKind:
    """Return the type of a parameter whose value is one of `words`."""

    def read_word(text: str) -> StrEnum:
        try:
            return words(text)
        except ValueError as error:
            raise ValueError(f"must be one of {', '.join(words)}") from error

    return ParameterKind(read_word, {"type": "string", "enum": list(words)})


def _flag(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):  # generated PHP clients write booleans as numbers
        raise ValueError("must be true or false")
    return text in ("true", "1")


def _amounts(text: str) -> bool:
    if text != "text":
        raise ValueError("must be `text`: decimal strings in place of JSON numbers")
    return True


def _moment(text: str) -> str:
    """Return a time in its stored format."""
    return iso(read_moment(text))


def _uuid_prefix(text: str) -> str:
    if not _UUID_PREFIX.fullmatch(text):
        raise ValueError("must be the beginning of a UUID: 1 to 36 of 0-9, a-f and '-'")
    return text.lower()


def _print_job_id(text: str) -> str:
    if not is_print_job_id(text):
        raise ValueError(ID_RULE)
    return text


class FeedWith(StrEnum):
    """Optional members of the feed's changes."""

    OUTCOME = "outcome"
    METADATA = "outcome,metadata"


_UUID_PREFIX = re.compile("[0-9A-Fa-f-]{1,36}", re.ASCII)
TEXT = ParameterKind(str, {"type": "string"})
FLAG = ParameterKind(_flag, {"type": "boolean"})
SECONDS = ParameterKind(_seconds, {"type": "number", "minimum": 0, "maximum": MAX_TIMEOUT_SECONDS})
MOMENT = ParameterKind(_moment, {"type": "string", "format": "date-time"})
UUID = ParameterKind(
    chosen_uuid, {"type": "string", "format": "uuid", "not": {"type": "string", "pattern": NIL_OR_MAX}}
)
JOB_ID = ParameterKind(_print_job_id, {"type": "string", "pattern": f"^{ID_PATTERN}$"})
CURSOR = ParameterKind(pages.decode_cursor, {"type": "string"})
SEQ = whole(0, MAX_SEQ)
PLACE = ParameterKind(FeedPosition.parse, {"type": "string", "pattern": r"^([0-9]{1,19}(-[0-9a-f]{8})?|start)$"})

#: Parameter of every call.
AMOUNTS = Parameter(
    "amounts",
    ParameterKind(_amounts, {"type": "string", "enum": ["text"]}),
    "`text`: posd writes amounts as decimal strings, not as the numbers described here",
)

#: Parameters of paths.
TRANSACTION_ID = Parameter(
    "client_transaction_id",
    UUID,
    "a UUID that the till chose and stored before the call; upper and lower case are the same",
    example="7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11",
)
PRINT_JOB_ID = Parameter(
    "print_job_id", JOB_ID, "an id that the till chose; upper and lower case are the same", example="receipt-1042"
)
SERIAL = Parameter("serial", TEXT, "serial number of a terminal", example="SN-0001")
QUARANTINE_ID = Parameter("id", whole(1, MAX_SEQ), "id of the body in the quarantine", example=1)
PATH: Mapping[str, Parameter] = {item.name: item for item in (TRANSACTION_ID, PRINT_JOB_ID, SERIAL, QUARANTINE_ID)}

#: Parameters of queries.
TIMEOUT = Parameter(
    "timeout", SECONDS, "answer 202 after this many seconds; it means only that the end is not known yet", example=30
)
PHASE = Parameter("phase", one_of(Phase), "only those in this phase", example="active")
OPEN = Parameter("open", FLAG, "`true`: only those that are not final", default=False)
TERMINAL = Parameter("terminal", TEXT, "only those of this terminal", example="SN-0001")
SALE = Parameter(
    "sale", ParameterKind(composed, TEXT.schema), "only those of this sale", example="2026-11-20/till-3/1042"
)
EXTERNAL_REFERENCE = Parameter("external_reference", TEXT, "only print jobs with this reference", example="ticket 1042")
ATTENTION = Parameter("attention", FLAG, "`true`: only those that an operator should check", default=False)
SINCE = Parameter("since", MOMENT, "only those created at this time or later", example="2026-11-20T00:00:00Z")
UNTIL = Parameter("until", MOMENT, "only those created before this time", example="2026-11-21T00:00:00Z")
LIMIT = Parameter("limit", whole(1, MAX_LIMIT), "largest number of results", default=DEFAULT_LIMIT)
TOTALS = Parameter(
    "totals",
    FLAG,
    "`true`: adds `totals` over all payments that match the filters, on each page",
    default=False,
)
_BEGINNING = (
    "only those whose id begins with this text, on one page, in the order of their ids; an exact match "
    "comes first. Only `limit` may be given with it"
)
BEGINNING = Parameter(
    "id",
    ParameterKind(_uuid_prefix, {"type": "string", "pattern": f"^{_UUID_PREFIX.pattern}$"}),
    _BEGINNING,
    example="7f3c1f0e",
)
JOB_BEGINNING = Parameter("id", JOB_ID, _BEGINNING, example="receipt-10")
NEXT = Parameter("cursor", CURSOR, "`next_cursor` of the previous page")
AFTER = Parameter("after", SEQ, "only what follows this place", default=0)
ANY_METADATA = Parameter(
    METADATA,
    TEXT,
    "`metadata.KEY=VALUE`: only those whose metadata has that value under KEY. Keys and texts are compared after "
    "decoding, numbers by value (7 finds 7.00 and the text 7), `true`, `false`, `null`, lists and objects as "
    f"JSON. At most {MAX_METADATA} keys at once",
    default={},
    example={"metadata.reference": "ticket 1042"},
)
FEED_AFTER = Parameter(
    "after",
    PLACE,
    "only changes after this place: `next_after` or `place` of a page, the id of a message, or 0 for the "
    "beginning. `start` also means the beginning, and asks for places with a check value",
    default=FeedPosition(),
    example="17",
)
FEED_WITH = Parameter(
    "with",
    one_of(FeedWith),
    "adds `outcome` to each change of an ended payment: the outcome at that change; `outcome,metadata` also adds the "
    "till's metadata",
    example="outcome",
)

#: Header parameters: the language of the cashier's texts, and the position in a stream.
ACCEPT_LANGUAGE = Parameter(
    "Accept-Language",
    TEXT,
    "the language of `display.text`: `en` or `es`, with weights; otherwise the configured one. The response "
    "gives it in `Content-Language`",
    example="es-EC, en;q=0.5",
)
LAST_EVENT_ID = Parameter("Last-Event-ID", SEQ, "for a stream: continue after the message with this id", example=17)
LAST_FEED_ID = Parameter("Last-Event-ID", PLACE, "for a stream: continue after the message with this id", example="17")


# Types of the table's rows: calls, responses, and problems.

Handler = Callable[[Request], Awaitable[Response]]

JSON = "application/json"

#: Codes of problems that every call can return.
ALWAYS = (
    "invalid_request",
    "request_timeout",
    "payload_too_large",
    "unsupported_media_type",
    "limit_reached",
    "internal_error",
)


class StreamMessage(msgspec.Struct, frozen=True):
    """Kind of message in a stream of server-sent events: `event`, type of the data, and meaning."""

    event: str
    data: Any
    words: str


class AnswerSpec(msgspec.Struct, frozen=True):
    """A response of a call: meaning, type of the document, and media type.

    `also`: media type of the bytes that the call can return instead. `stream`: messages of the stream, if the call can
    also return a stream (`text/event-stream`).
    """

    words: str
    type: Any = None
    media: str = JSON
    also: str | None = None
    stream: tuple[StreamMessage, ...] = ()


class Route(msgspec.Struct, frozen=True, dict=True):
    """One call: method and path, name of the handler's method, purpose, and responses.

    `codes`: codes of its problems, in addition to `ALWAYS`. An admin call is served only on the admin socket. A call
    marked `feed` is also served on the feed socket. If a call `starts` something, its handler checks the request,
    because a known id gets its reply before any other check. Such a call starts nothing for a client that has
    disconnected.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, AnswerSpec]
    codes: tuple[str, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = True
    admin: bool = False
    feed: bool = False
    starts: bool = False

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Query parameters of the call, including those that every call has."""
        return (*self.query, AMOUNTS)

    @cached_property
    def pages(self) -> bool:
        """Whether the response can be long: pages of lists, and reports."""
        return LIMIT in self.query or self.path.endswith("/report")

    @property
    def problems(self) -> tuple[str, ...]:
        """Codes of all problems that the call can return."""
        return (*ALWAYS, *(("forbidden",) if self.admin else ()), *self.codes)


#: Row of the table, and its handler.
BoundRoute = tuple[Route, Handler]


def served(routes: Iterable[Route], *handlers: object) -> tuple[BoundRoute, ...]:
    """Return each row with its handler. `Route.name` names the method of one of `handlers`."""
    calls = []
    for route in routes:
        (handler,) = (getattr(item, route.name) for item in handlers if hasattr(item, route.name))
        calls.append((route, handler))
    return tuple(calls)
