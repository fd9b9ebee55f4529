"""What the reply to a transaction search says (terminal API, Not known).

A reply is one object, or a list of them, in the shape of the transaction event, at a configurable place. Only
elements that bear our `client_transaction_id` count. An empty list is the explicit "none". Everything else is no
answer: a 404, a 5xx, HTML, half JSON, and transactions of other people say nothing about ours.

Source: terminal API, Calls to a terminal.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, assert_never

import msgspec

from posd.base.damaged_json import named, readable
from posd.base.json_types import Object, as_text, decode, encode
from posd.payments.lifecycle import FINALS
from posd.payments.model import SearchResult
from posd.payments.wire import NotAnEvent, TransactionEvent, read_element
from posd.terminals.attempt import Attempt, NotSent, Replied, ReplyLost, envelope_in, with_remark

#: Elements of a reply that are looked at; a search for one id has one, or its few events.
MAX_ELEMENTS = 256
#: Of the elements that bear our id so much is kept, in bytes, or one: a payment has four, with the till's metadata.
MAX_KEPT_BYTES = 128 * 1024
FINAL_WORDS = frozenset(map(str, FINALS))

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class SearchHit(msgspec.Struct, frozen=True, tag="found", dict=True, omit_defaults=True):
    """Our transaction is there; `elements` are what stands of it, in the order of the reply.

    They are verbatim, but for what is damaged in them.
    """

    elements: tuple[str, ...]
    damaged: tuple[str, ...] = ()  # what could not be read of the reply, in words
    paged: bool = False  # they stood in a page of a list
    cut_bytes: int = 0  # of elements that were left out, because there was too much

    @cached_property
    def events(self) -> "tuple[TransactionEvent | NotAnEvent, ...]":
        """Each element as the event that it is, or why it is none. They are read once."""
        return tuple(_event(element, self.paged) for element in self.elements)

    @property
    def usable(self) -> bool:
        """Whether any of them says how the transaction stands."""
        return any(isinstance(event, TransactionEvent) for event in self.events)

    def kept(self, keep: Callable[[TransactionEvent | NotAnEvent], bool]) -> "SearchHit":
        """Return it with those elements alone whose events are to be kept."""
        kept = tuple(element for element, event in zip(self.elements, self.events, strict=True) if keep(event))
        return self if len(kept) == len(self.elements) else msgspec.structs.replace(self, elements=kept)

    @property
    def size(self) -> int:
        """Return how many bytes are kept of it."""
        return sum(map(len, self.elements))

    def cut(self) -> "SearchHit":
        """Return it with so much as is of use: what ended it comes first, then what stands first."""
        if self.size <= MAX_KEPT_BYTES:
            return self
        finals = [isinstance(event, TransactionEvent) and event.status in FINAL_WORDS for event in self.events]
        kept: set[int] = set()
        room = MAX_KEPT_BYTES
        for place in sorted(range(len(finals)), key=lambda item: not finals[item]):
            if not kept or len(self.elements[place]) <= room:
                kept.add(place)
                room -= len(self.elements[place])
        elements = tuple(self.elements[place] for place in sorted(kept))
        left_out = self.size - sum(map(len, elements))
        return msgspec.structs.replace(self, elements=elements, cut_bytes=left_out)


class SearchMiss(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search ran, and no transaction has this id."""


class SearchFailed(msgspec.Struct, frozen=True, tag="no_answer"):
    """It is not known; `status` is the HTTP status where there was a reply.

    `bears_id`: something in it bears our id, and is not of ours: it proves nothing, nor is it a "none".
    `serial_number`: of the terminal outside the fleet that it is of.
    `unreadable`: it may be ours, and what it says of it cannot be read.
    """

    reason: str
    status: int | None = None
    bears_id: bool = False
    serial_number: str | None = None
    unreadable: bool = False


Answer = SearchHit | SearchMiss | SearchFailed

RESULTS: dict[type[Answer], SearchResult] = {
    SearchHit: SearchResult.FOUND,
    SearchMiss: SearchResult.NONE,
    SearchFailed: SearchResult.NO_ANSWER,
}


def request_body(client_transaction_id: str) -> bytes:
    """Return the body of a search."""
    return encode({"client_transaction_id": client_transaction_id})


def read_reply(attempt: Attempt, pointer: str, client_transaction_id: str, *, paged: bool = False) -> Answer:
    """Read what a search brought; `pointer` (RFC 6901) says where the transactions stand in the reply.

    `paged`: they are a page of a list, in `data` where the pointer is empty.
    """
    pointer = pointer or (PAGE if paged else "")
    match attempt:
        case NotSent(reason=reason) | ReplyLost(reason=reason):
            return SearchFailed(reason)
        case Replied(status=status) if not 200 <= status < 300:
            return SearchFailed(with_remark(f"the terminal answered HTTP {status}", attempt.remark), status)
        case Replied(status=status, complete=False):
            return SearchFailed("the reply is too long to be read", status)
        case Replied(status=status, body=body):
            try:
                mended = readable(body)
                elements = list((_page if paged else _elements)(mended.body, pointer))
            except ValueError as error:
                return SearchFailed(with_remark(f"the reply cannot be used: {error}", attempt.remark), status)
        case _:
            assert_never(attempt)
    if not elements:  # the explicit "none" is a proof, and has to be whole and alone
        if mended.damaged:
            return SearchFailed("the reply says that there is none, but it is damaged", status)
        if _tells_beside(decode(mended.body), pointer):
            return SearchFailed("the list is empty, and the reply says more than that", status)
        return SearchMiss()
    if len(elements) > MAX_ELEMENTS:
        return SearchFailed(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    if not ours:
        return SearchFailed("the reply is about other transactions", status)
    found = SearchHit(ours, named(mended.damaged), paged).cut()
    if not found.usable:
        reason = f"what the reply has of this payment does not say how it stands: {found.events[0]}"
        return SearchFailed(reason, status, bears_id=True, unreadable=True)
    return found


def final_element(answers: Iterable[Answer], event_id: str) -> str | None:
    """Return the element of that event_id, verbatim, from answers that were kept."""
    for answer in answers:
        if isinstance(answer, SearchHit):
            for element, event in zip(answer.elements, answer.events, strict=True):
                if isinstance(event, TransactionEvent) and event.event_id == event_id:
                    return element
    return None


def _event(element: str, paged: bool) -> TransactionEvent | NotAnEvent:
    try:
        return read_element(element.encode(), paged=paged)
    except NotAnEvent as error:
        return NotAnEvent(str(error))  # without what it was raised through, which has the whole reply


def _elements(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements at the pointer, verbatim. Raise ValueError if there is no list and no object."""
    raw = _at(body, pointer)
    try:
        if raw.lstrip().startswith(b"["):
            return [bytes(item) for item in _LIST.decode(raw)]
        _OBJECT.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError("there is neither a list nor an object of transactions") from error
    return [raw.strip()]


#: Where a page has its transactions, unless the profile says otherwise.
PAGE = "/data"
#: Members that may stand beside an empty list, with what they say: how large a page may be, and that all went well.
_SIZES = frozenset({"size", "page_size", "pageSize", "per_page", "perPage", "limit"})
_WELL = frozenset({"ok", "success"})
#: What the names of members have in common that say whether there are further ones.
_FURTHER = ("next", "more")


def _page(body: bytes, pointer: str) -> Iterable[bytes]:
    """Return the elements of a page, verbatim. Raise ValueError if there is none."""
    raw = _at(body, pointer)
    if not raw.lstrip().startswith(b"["):
        raise ValueError(f"no list of transactions stands at {pointer}")
    return [bytes(item) for item in _LIST.decode(raw)]


def _tells_beside(around: Any, pointer: str) -> bool:
    """Whether anything around the empty list at the pointer says that there are transactions, or an error."""
    if isinstance(around, Object) and envelope_in(around):
        return True
    for step in _steps(pointer):
        place = int(step) if isinstance(around, list) else step
        members = enumerate(around) if isinstance(around, list) else around.items()
        others = Object((str(name), value) for name, value in members if name != place)
        others.repeated = getattr(around, "repeated", frozenset())
        if _tells("", others):
            return True
        around = around[place]
    return False


def _tells(name: str, value: Any) -> bool:
    """Whether a member beside an empty list says anything of what is not in it."""
    if isinstance(value, Object):
        return bool(value.repeated) or any(_tells(*member) for member in value.items())
    if isinstance(value, bool):
        return name not in _WELL if value else not any(word in name.lower() for word in _FURTHER)
    text = as_text(value or "0")
    if name in _SIZES:
        return text is None or not text.isdecimal()
    return text != "0" and (name, text) != ("page", "1")


def _at(body: bytes, pointer: str) -> bytes:
    """Return what stands at the pointer. Raise ValueError if nothing does."""
    for step in _steps(pointer):
        body = _member(body, step, pointer)
    return body


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _member(raw: bytes, name: str, pointer: str) -> bytes:
    """Return what stands one step of the pointer further. Raise ValueError if nothing does."""
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
