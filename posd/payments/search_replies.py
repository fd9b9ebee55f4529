"""What the reply to a transaction search says (terminal API, Not known).

A reply is one object, or a list of them, in the shape of the transaction event, at a configurable place. Only elements
that bear our `client_transaction_id` count. An empty list is the explicit "none". Everything else is no answer: a 404,
a 5xx, HTML, half JSON, and transactions of other people say nothing about ours.

Source: terminal API, Calls to a terminal.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from posd.base.json_text import Object, decode, encode
from posd.payments.events import NotAnEvent, TransactionEvent, read_event
from posd.payments.model import SearchResult
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied

#: Elements of a reply that are looked at; a search for one id has one, or its few events.
MAX_ELEMENTS = 256

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Found(msgspec.Struct, frozen=True, tag="found"):
    """Our transaction is there; `elements` are what stands of it, verbatim, in the order of the reply."""

    elements: tuple[str, ...]


class Nothing(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search ran, and no transaction has this id."""


class NoAnswer(msgspec.Struct, frozen=True, tag="no_answer"):
    """It is not known; `status` is the HTTP status where there was a reply.

    `bears_id`: something in it bears our id, and is not of ours: nothing to believe, and no "none" either.
    """

    reason: str
    status: int | None = None
    bears_id: bool = False


Answer = Found | Nothing | NoAnswer

RESULTS: dict[type[Answer], SearchResult] = {
    Found: SearchResult.FOUND,
    Nothing: SearchResult.NONE,
    NoAnswer: SearchResult.NO_ANSWER,
}


def request_body(client_transaction_id: str) -> bytes:
    """Return the body of a search."""
    return encode({"client_transaction_id": client_transaction_id})


def read_reply(attempt: Attempt, pointer: str, client_transaction_id: str) -> Answer:
    """Read what a search brought; `pointer` (RFC 6901) says where the transactions stand in the reply."""
    match attempt:
        case NotSent(reason=reason) | Lost(reason=reason):
            return NoAnswer(reason)
        case Replied(status=status) if not 200 <= status < 300:
            return NoAnswer(f"the terminal answered HTTP {status}", status)
        case Replied(status=status, complete=False):
            return NoAnswer("the reply is too long to be read", status)
        case Replied(status=status, body=body):
            try:
                elements = list(_elements(body, pointer))
            except ValueError as error:
                return NoAnswer(f"the reply cannot be used: {error}", status)
        case _:
            assert_never(attempt)
    if not elements:
        return Nothing()
    if len(elements) > MAX_ELEMENTS:
        return NoAnswer(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    return Found(ours) if ours else NoAnswer("the reply is about other transactions", status)


def final_element(answers: Iterable[Answer], event_id: str) -> str | None:
    """Return the element of that event_id, verbatim, from answers that were kept."""
    for answer in answers:
        for element in answer.elements if isinstance(answer, Found) else ():
            try:
                event: TransactionEvent | None = read_event(element.encode())
            except NotAnEvent:
                event = None
            if event is not None and event.event_id == event_id:
                return element
    return None


def _elements(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements at the pointer, verbatim. Raise ValueError where there is no list and no object."""
    decode(body)  # strict, and never deeper than can be read
    raw = body
    for step in pointer.split("/")[1:]:
        raw = _member(raw, step.replace("~1", "/").replace("~0", "~"), pointer)
    try:
        if raw.lstrip().startswith(b"["):
            return [bytes(item) for item in _LIST.decode(raw)]
        _OBJECT.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError("there is neither a list nor an object of transactions") from error
    return [raw.strip()]


def _member(raw: bytes, name: str, pointer: str) -> bytes:
    """Return what stands one step of the pointer further. Raise ValueError where nothing does."""
    try:
        if name.isascii() and name.isdigit() and raw.lstrip().startswith(b"["):
            return bytes(_LIST.decode(raw)[int(name)])
        document = decode(raw)
        if isinstance(document, Object) and name in document.repeated:
            raise ValueError(f"{name} stands more than once, with different values")
        return bytes(_OBJECT.decode(raw)[name])
    except (msgspec.ValidationError, LookupError):
        raise ValueError(f"nothing stands at {pointer}") from None


def _bears(raw: bytes, client_transaction_id: str) -> bool:
    element: Any = decode(raw)
    identity = element.get("client_transaction_id") if isinstance(element, dict) else None
    return isinstance(identity, str) and identity.lower() == client_transaction_id
