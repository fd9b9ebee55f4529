"""Documents of posd (JSON with exact numbers), their members as typed fields, and the errors of a call.

The `never_started` and `next_step` of a `PosdError` tell the till what to do.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

Document = Mapping[str, Any]

# Typed fields: unknown members of a document are ignored. A missing member raises ValueError.


def read(kind: type[T], source: object, **known: Any) -> T:
    """Return an instance of the dataclass `kind`, read from the document `source`. Raise ValueError.

    Each field is read from the member with the field's name, as the field's type. A field's metadata may name another
    `member`, or a function that reads the field (`read`). The field `document` is the source itself. Fields with a
    default are not read. `known`: name -> value of other fields that are not read.
    """
    whole = document(source)
    values = {
        name: whole if name == "document" else take(whole)
        for name, take in _readers(kind)  # type: ignore[arg-type]  # a class is hashable
        if name not in known
    }
    return kind(**values, **known)


@functools.cache
def _readers(kind: type[Any]) -> tuple[tuple[str, Callable[[Document], Any]], ...]:
    """Return the fields of a dataclass that are read, each with the function that reads it from a document."""
    hints = get_type_hints(kind)

    def reader(name: str, member: str) -> Callable[[Document], Any]:
        return lambda source: _value(hints[name], source.get(member), member)

    return tuple(
        (each.name, each.metadata.get("read") or reader(each.name, each.metadata.get("member", each.name)))
        for each in fields(kind)
        if each.default is MISSING
    )


def _value(kind: Any, given: object, name: str) -> Any:
    """Return the value of a member as the type `kind`. Raise ValueError."""
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if given is None else _value(inner[0], given, name)
    if origin is Mapping:
        return document(given)
    if origin is dict:
        return {key: _value(inner[1], item, key) for key, item in document(given).items()}
    if origin is tuple:
        found = [] if given is None else _of(list, given, name)
        return tuple(str(item) if inner[0] is str else _value(inner[0], item, name) for item in found)
    if is_dataclass(kind):
        return read(kind, given)  # type: ignore[arg-type]  # it is a class
    if kind is datetime:
        return datetime.fromisoformat(_of(str, given, name))
    if kind is Decimal:
        return _amount(given, name)
    return _of(kind, given, name)


def document(value: object) -> Document:
    """Return a JSON object unchanged. Raise ValueError if `value` is not an object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, not {value!r:.80}")  # noqa: TRY004 - one kind of error
    return value


def member(source: Document, kind: Any, name: str) -> Any:
    """Return a member as the type `kind`, such as `str` or `str | None`. A missing list is empty. Raise ValueError."""
    return _value(kind, source.get(name), name)


def _amount(value: object, name: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"{name}: an amount was expected, not {value!r:.80}")  # noqa: TRY004
    return Decimal(value)


def _of(kind: type[T], value: object, name: str) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name}: {kind.__name__} was expected, not {value!r:.80}")
    return value


# JSON with exact numbers, by the standard library: a fraction is read as Decimal, a Decimal is written as a number.
#
# A binary float is neither read nor written, because no float is exactly 10.10.

#: Maximum number of digits before or after the point of a Decimal that is written without an exponent.
MAX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON text that is written unchanged."""

    text: str


def decode(raw: bytes | str) -> Any:
    """Decode JSON. Raise ValueError if it is invalid."""
    text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            encode(value)  # raises for a lone surrogate, which cannot be shown or sent
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def encode(value: object) -> bytes:
    """Encode to JSON. Raise TypeError for a float or a type without JSON, ValueError for NaN."""
    return _text(value).encode("utf-8")


def _number(literal: str) -> Decimal | str:
    """Return the exact number of a literal. A literal that Decimal cannot hold stays text."""
    try:
        return Decimal(literal)
    except InvalidOperation:
        return literal


def _whole(literal: str) -> int | Decimal | str:
    return int(literal) if len(literal) <= MAX_DIGITS else _number(literal)


def _constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_whole, parse_constant=_constant)


def _text(value: object) -> str:
    match value:
        case str() | bool() | None:
            return json.dumps(value, ensure_ascii=False)
        case int():
            return int.__repr__(value)
        case Verbatim():
            return value.text
        case Decimal():
            return _decimal(value)
        case float():
            raise TypeError(
                f'{value!r} is a float, which is not exact: write Decimal("{value!r}"), or read JSON with '
                "json.loads(text, parse_float=Decimal)"
            )
        case Mapping():
            return "{" + ",".join(f"{_name(name)}:{_text(item)}" for name, item in value.items()) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return "[" + ",".join(map(_text, value)) + "]"
        case _:
            raise TypeError(f"{value!r} ({type(value).__name__}) cannot be written as JSON")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} cannot be a name in JSON: it is not text")
    return json.dumps(name, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that JSON has")
    return format(value, "f") if abs(value.adjusted()) <= MAX_DIGITS else str(value)


#: Members that every problem has. Other members depend on the code.
_COMMON = frozenset({"type", "title", "status", "detail", "code", "next_step", "never_started"})
#: Next step if posd sends none, or one that this client does not know.
ASK_PERSON = "ask_person"
SAME_CALL = "same_call"
#: Code of the response while posd is stopping.
_STOPPING = "draining"
_NEXT_STEPS = frozenset({"fix_call", SAME_CALL, "new_id_ok", ASK_PERSON})


class PosdError(Exception):
    """Failed call. A till decides by `never_started` and `next_step` only.

    `never_started`: True means that nothing was ever sent under this id. The payment is not paid, and the till can
    forget the id. False proves nothing: the till keeps the id, and follows `next_step`.

    `next_step`: `same_call` (repeat the call with the same id, after `retry_after_seconds`), `fix_call`, `new_id_ok`,
    or `ask_person`.

    `sent`: False if this call certainly started nothing. Even then an earlier call with the same id may have started
    the payment. `passes`: posd could not check now, but can later. `away`: posd is stopped, starting or stopping.
    `lasting`: waiting seldom helps.
    """

    never_started: bool = False
    next_step: str = ASK_PERSON
    retry_after_seconds: float | None = None
    sent: bool = False
    passes: bool = False
    away: bool = False
    lasting: bool = False


class Unreachable(PosdError):
    """Error for a call without a response. Also for a response which says that posd is stopping or could not check.

    The till repeats the call with the same id.
    """

    next_step = SAME_CALL
    passes = away = True

    def __init__(self, socket: str, reason: str, *, sent: bool, lasting: bool = False, advice: str = "") -> None:
        super().__init__(f"cannot reach posd on {socket}: {reason}" + (f"; {advice}" if advice else ""))
        self.socket = socket
        self.reason = reason
        self.sent = sent
        self.lasting = lasting


class ForeignAnswer(Unreachable):
    """Error for a response that comes from another program on the socket, or from an incompatible posd."""

    passes = away = False

    def __init__(self, socket: str, reason: str, *, status: int, raw: bytes) -> None:
        super().__init__(socket, reason, sent=True, lasting=True)
        self.status = status
        self.raw = raw


class Problem(PosdError):
    """Problem in posd's response.

    `code` is stable. `status`: HTTP status. `detail`: what to do, as text. `extra`: members that only this code has.
    `next_step` is `ask_person` if posd sends none, or one that this client does not know.
    """

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        extra: Mapping[str, Any],
        raw: bytes = b"",
        *,
        next_step: object = None,
        never_started: object = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.extra = extra
        #: Bytes of the response.
        self.raw = raw
        self.next_step = next_step if isinstance(next_step, str) and next_step in _NEXT_STEPS else ASK_PERSON
        self.never_started = never_started is True
        seconds = extra.get("retry_after_seconds")
        self.retry_after_seconds = float(seconds) if isinstance(seconds, int) else None
        self.away = code == _STOPPING
        self.sent = self.lasting = status >= 500 and status not in (501, 503)
        # If posd sends `never_started`, it has looked up the id, and waiting changes nothing.
        self.passes = never_started is None and (status == 429 or status >= 500)

    def compare(self, stored_at: datetime | None) -> Self:
        """Set `never_started` if the till first stored the payment after the period from which posd lost records.

        A time before that period proves nothing, because a payment can be requested long after it was stored. A time in
        the future proves nothing either, because the clock was ahead.
        """
        until = self.extra.get("records_missing_until")
        if stored_at is not None and isinstance(until, str):
            with suppress(ValueError, TypeError):  # the text is not a time with a zone
                self.never_started |= datetime.fromisoformat(until) < stored_at <= datetime.now(UTC)
        return self


def problem_of(status: int, document: Any, raw: bytes) -> Problem | None:
    """Return the problem in a response, or None if the response is not from posd."""
    if not isinstance(document, Mapping) or not isinstance(code := document.get("code"), str):
        return None
    detail = document.get("detail") or document.get("title") or code
    extra = {name: value for name, value in document.items() if name not in _COMMON}
    said = {name: document.get(name) for name in ("next_step", "never_started")}
    return Problem(code, status, str(detail), extra, raw, **said)


class OutcomeUnknown(PosdError):
    """Error for a response without the outcome.

    An operator has to check before the sale is paid again, unless `never_started` is True.

    `problem`: posd's response. `extra`: members that only this problem has. If posd removed the record,
    `extra["result"]` is the result.
    """

    def __init__(self, id: str, problem: Problem) -> None:  # noqa: A002 - the field's name
        self.id = id
        self.problem = problem
        self.extra = problem.extra
        self.never_started = problem.never_started
        if self.never_started:
            words = f"transaction {id} was never started: nothing was sent, and the customer has not paid"
        elif "result" in self.extra:
            words = problem.detail
        else:
            words = (
                f"how transaction {id} ended is not known: {problem.detail}; "
                "look at the terminal and ask the acquirer before it is paid again"
            )
        super().__init__(words)
