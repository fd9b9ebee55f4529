"""Judgement of a terminal's replies to a start, an abort and a search, by pure functions."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from typing import Any, assert_never

import msgspec

from posd.base.json_types import Object, as_text, decode, decoded, encode, named, readable
from posd.base.text import shown
from posd.payments.lifecycle import FINALS, Status
from posd.payments.model import SearchResult
from posd.payments.wire import NotAnEvent, TransactionEvent, read_acknowledgement, read_element
from posd.terminals.attempt import (
    UNAUTHENTICATED,
    UNDECIDED_CLIENT_ERRORS,
    Attempt,
    Doubtful,
    ErrorEnvelope,
    NotSent,
    Replied,
    ReplyLost,
    StartRefused,
    envelope_in,
    judge_start,
    read_envelope,
    refused,
    with_remark,
    word,
)

# Meaning of an error in the reply to a start (terminal API, Refusals).
#
# HTTP 200 is never an approval. If a 2xx reply contains an error, the profile may define it as a refusal
# (`errors_in_2xx`). One known error means that the cardholder canceled. Any other error puts the transaction in doubt.

#: Type and code of a cancellation by the cardholder.
CARDHOLDER_CANCELED = ("TERMINAL-SUNMI", "-1")

#: Types of an authentication error, and the prefix of its codes.
AUTHENTICATION = frozenset({"AUTHENTICATION", "AUTH"})
AUTHENTICATION_CODES = "AUTH-"

#: Names of the members of an error, and of an object around an error. If a reply has any other member, that member may
#: say more about the payment. So posd does not judge such a reply by its error alone.
_ERROR_MEMBERS = frozenset({"type", "code", "message", "param", "object", "failure"})
_ABOUT_MEMBERS = _ERROR_MEMBERS | {"client_transaction_id", "terminal_id", "serial_number", "serialNumber"}
#: Largest number of objects around an error in a reply.
_DEPTH = 3
_NO_VALUES: tuple[Any, ...] = (None, "", {}, [])
#: Codes that may mean an approval instead of an error.
_ZEROS = frozenset({"0", "00", "000"})


class Canceled(msgspec.Struct, frozen=True):
    """Judgement of a start to which the terminal replied that the cardholder canceled."""

    status: int
    body: str
    error: ErrorEnvelope

    @property
    def reason(self) -> str:
        """Type and code of the terminal's error, for display."""
        return self.error.name


def judge_error(
    reply: Replied, answer: Object, error: ErrorEnvelope, client_transaction_id: str, *, trusted: bool
) -> Canceled | StartRefused | Doubtful:
    """Judge a 2xx reply to a start that contains an error.

    `trusted`: whether the profile defines such a reply as "not started".
    """
    said = refused(reply, error)
    in_words = f"the terminal answered HTTP {reply.status} with {error.name}"
    if error.acquirer:
        return Doubtful(f"{in_words}: the acquirer may have been asked")
    if not error.whole:
        return Doubtful(in_words)
    if error.code in _ZEROS or _says_more(answer, error, client_transaction_id):
        return Doubtful(f"{in_words}, and the reply has other content")
    if (error.type, error.code) == CARDHOLDER_CANCELED:
        return Canceled(said.status, said.body, error)
    if trusted:
        return said
    return Doubtful(f"{in_words}, and the profile does not give its meaning (errors_in_2xx)")


def _says_more(
    place: Any, error: ErrorEnvelope, client_transaction_id: str, known: frozenset[str] = _ERROR_MEMBERS, depth: int = 0
) -> bool:
    """Whether a reply contains more than the error of this payment."""
    if not isinstance(place, Object) or place.repeated or depth > _DEPTH:
        return True

    def more(name: str, value: Any) -> bool:
        match name:
            case "approved":
                return value is not False
            case "type" | "code":
                return word(place, name) != (error.type if name == "type" else error.code)
            case "object" | "failure":
                inner = _ABOUT_MEMBERS if name == "object" else _ERROR_MEMBERS
                return _says_more(value, error, client_transaction_id, inner, depth + 1)
            case "client_transaction_id" if name in known:
                return not isinstance(value, str) or value.lower() != client_transaction_id
            case _:
                return name not in known or isinstance(value, dict | list)

    return any(more(name, value) for name, value in place.items() if value not in _NO_VALUES)


def refusal_words(judgement: StartRefused) -> str:
    """Return as text why a start was refused, followed by the remark of the judgement."""
    return with_remark(_words(judgement), judgement.remark)


def _words(judgement: StartRefused) -> str:
    status, error = judgement.status, judgement.error
    http = f"the terminal refused the request (HTTP {status}"
    if error is None:
        unknown = "; the reason is not known" if status == 409 else ""
        return f"{http}){unknown}"
    named = f"{http}, {error.name})"
    if status == 409 and error.busy:
        return f"{named}: it is busy. posd never tries again by itself: the till decides"
    if status in UNAUTHENTICATED or _of_authentication(error):
        return f"{named}: it did not accept the authentication. Check auth, business_code, headers and the clock"
    if error.param is not None:
        return f"{named}: the field {shown(error.param)}"
    return f"{named}; the reason is not known" if status == 409 else named


def _of_authentication(error: ErrorEnvelope) -> bool:
    return (error.type or "").upper() in AUTHENTICATION or (error.code or "").upper().startswith(AUTHENTICATION_CODES)


# What the attempt to send a start proves.
#
# The terminal client reports an `Attempt`, and `judge` draws the conclusion. If nothing of the request was written,
# nothing was charged. Otherwise anything is possible.
#
# Source: terminal API, Acknowledgement, Calls to a terminal.


class StartAccepted(msgspec.Struct, frozen=True):
    """The terminal accepted the request. `serial_number`: the serial in the reply, if any."""

    serial_number: str | None


Judgement = StartAccepted | Canceled | StartRefused | NotSent | Doubtful


def judge(attempt: Attempt, client_transaction_id: str, *, errors_in_2xx: bool | None = False) -> Judgement:
    """Judge the attempt to start the transaction with that id.

    `errors_in_2xx`: whether the profile defines an error in a 2xx reply as "not started". None: the attempt was
    recorded by a version of posd that ignored errors in replies (see `judge_start`).
    """
    return judge_start(
        attempt,
        lambda reply: _judge_success(reply, client_transaction_id, errors_in_2xx),
        reads_errors=errors_in_2xx is not None,
    )


def _judge_success(reply: Replied, client_transaction_id: str, errors_in_2xx: bool | None) -> Judgement:
    members = None
    with suppress(ValueError):
        members = decoded(reply.body)[0] if reply.complete else None
    reads_errors = errors_in_2xx is not None
    if (
        not isinstance(members, Object)
        or (acknowledgement := read_acknowledgement(members, inner=reads_errors)) is None
    ):
        words = f"the terminal answered HTTP {reply.status} with something that is not an acknowledgement"
        return Doubtful(with_remark(words, reply.remark))
    acknowledged = acknowledgement.status == Status.TERMINAL_ACKNOWLEDGED
    if any(echoed != client_transaction_id for echoed in acknowledgement.client_transaction_ids):
        return Doubtful(f"the terminal {'acknowledged' if acknowledged else 'answered about'} another transaction")
    error = envelope_in(members) if reads_errors else None
    if error is not None and (error.certain or not acknowledged):
        return judge_error(reply, members, error, client_transaction_id, trusted=bool(errors_in_2xx))
    if not acknowledged:
        return Doubtful(f"the terminal answered HTTP {reply.status} with status {acknowledgement.status}")
    return StartAccepted(acknowledgement.serial_number)


#: Words for log, history and feed, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    StartAccepted: "acknowledged",
    Canceled: "canceled",
    StartRefused: "refused",
    NotSent: "unsent",
    Doubtful: "in_doubt",
}


# Replies to an abort, which the terminal API does not document.
#
# After every reply to an abort, posd still awaits the outcome. The reply "nothing is running" is also a part of the
# proof in `payments.missing_proof`.
#
# Source: terminal API, Calls to a terminal.


class AbortAnswer(StrEnum):
    """Result of an abort."""

    TAKEN = "taken"  # the terminal replies that it aborts
    NOTHING_RUNNING = "nothing_running"  # the terminal replies that it runs nothing
    NOT_TAKEN = "not_taken"  # the terminal does not know this call: wrong path, no access
    UNREACHABLE = "unreachable"  # the abort was not sent
    UNKNOWN = "unknown"  # the abort was sent, and may have been accepted


#: HTTP status of the reply "nothing is running". An operator confirms this meaning in the profile.
NOTHING_RUNNING_STATUS = 409


def judge_abort(attempt: Attempt, *, reads_errors: bool = True) -> AbortAnswer:
    """Judge the attempt to send an abort. `reads_errors` as in `judge_start`."""
    error = read_envelope(attempt.body) if reads_errors and isinstance(attempt, Replied) else None
    match attempt:
        case NotSent():
            return AbortAnswer.UNREACHABLE
        case Replied(status=status, sealed=True) if status not in UNAUTHENTICATED:
            return AbortAnswer.UNKNOWN
        case Replied() if error is not None and error.busy:
            return AbortAnswer.UNKNOWN
        case Replied(status=status, complete=complete) if status == NOTHING_RUNNING_STATUS:
            # A truncated or contradictory reply, or an error from the acquirer, proves nothing.
            unclear = not complete if error is None else error.acquirer or not error.clear
            return AbortAnswer.UNKNOWN if reads_errors and unclear else AbortAnswer.NOTHING_RUNNING
        case Replied(status=status) if 200 <= status < 300:
            return AbortAnswer.UNKNOWN if error and error.certain else AbortAnswer.TAKEN
        case Replied(status=status) if 300 <= status < 500 and status not in UNDECIDED_CLIENT_ERRORS:
            return AbortAnswer.NOT_TAKEN
        case Replied() | ReplyLost():
            return AbortAnswer.UNKNOWN
        case _:
            assert_never(attempt)


def finds_running(attempt: Attempt) -> bool:
    """Whether the reply to an abort reports a busy terminal, independent of its HTTP status."""
    error = read_envelope(attempt.body) if isinstance(attempt, Replied) else None
    return error is not None and error.busy


# Replies to a transaction search (terminal API, Not known).
#
# A reply has one object, or a list of objects, at a configurable place. Each object has the form of a transaction event
# and is called an element. Only elements with the searched `client_transaction_id` count. An empty list is the explicit
# "none". A 404, a 5xx, HTML, truncated JSON and other transactions prove nothing about the searched transaction.
#
# Source: terminal API, Calls to a terminal.

#: Largest number of elements in a usable reply. A search for one id finds one transaction, or its few events.
MAX_ELEMENTS = 256
#: Largest size of the elements that are kept from one search, in bytes. At least one element is kept. A payment has
#: four events, each with the till's metadata.
MAX_KEPT_BYTES = 128 * 1024
FINAL_WORDS = frozenset(map(str, FINALS))

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class SearchHit(msgspec.Struct, frozen=True, tag="found", dict=True, omit_defaults=True):
    """The search found the transaction. `elements`: the elements with its id, in the order of the reply.

    The elements are verbatim, except for damaged parts.
    """

    elements: tuple[str, ...]
    damaged: tuple[str, ...] = ()  # the unreadable parts of the reply, as text
    paged: bool = False  # the reply is a page of a list
    cut_bytes: int = 0  # size of the elements that `cut` omitted

    @cached_property
    def events(self) -> "tuple[TransactionEvent | NotAnEvent, ...]":
        """Each element parsed as an event, or the error that explains why it is not one."""
        return tuple(_event(element, self.paged) for element in self.elements)

    @property
    def usable(self) -> bool:
        """Whether the transaction's state can be read from any element."""
        return any(isinstance(event, TransactionEvent) for event in self.events)

    def kept(self, keep: Callable[[TransactionEvent | NotAnEvent], bool]) -> "SearchHit":
        """Return this hit with only the elements for which `keep` returns true."""
        kept = tuple(element for element, event in zip(self.elements, self.events, strict=True) if keep(event))
        return self if len(kept) == len(self.elements) else msgspec.structs.replace(self, elements=kept)

    @property
    def size(self) -> int:
        """Size of all elements, in bytes."""
        return sum(len(element.encode()) for element in self.elements)

    def cut(self) -> "SearchHit":
        """Return this hit with at most `MAX_KEPT_BYTES` of its elements, and at least one element.

        Elements with a final state are kept first, then the others in the order of the reply.
        """
        finals = [isinstance(event, TransactionEvent) and event.status in FINAL_WORDS for event in self.events]
        kept: list[int] = []
        room = MAX_KEPT_BYTES
        for place in sorted(range(len(finals)), key=lambda item: not finals[item]):
            size = len(self.elements[place].encode())
            if not kept or size <= room:
                kept.append(place)
                room -= size
        hit = msgspec.structs.replace(self, elements=tuple(self.elements[place] for place in sorted(kept)))
        return msgspec.structs.replace(hit, cut_bytes=self.size - hit.size)


class SearchMiss(msgspec.Struct, frozen=True, tag="none"):
    """The explicit "none": the search worked, and no transaction has this id."""


class SearchFailed(msgspec.Struct, frozen=True, tag="no_answer"):
    """The search has no usable result. `status`: the HTTP status of the reply, if any.

    `bears_id`: an element has the searched id, but cannot be used. So the reply is not the explicit "none".
    `serial_number`: the serial in that element, if it belongs to a terminal outside the fleet. `unreadable`: the state
    in that element cannot be read.
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
    """Return the request body of a search."""
    return encode({"client_transaction_id": client_transaction_id})


def read_reply(attempt: Attempt, pointer: str, client_transaction_id: str, *, paged: bool = False) -> Answer:
    """Return the result of a search. `pointer`: JSON Pointer (RFC 6901) to the elements in the reply.

    `paged`: the reply is a page of a list, and an empty pointer means its member `data`.
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
                elements = _elements(mended.body, pointer, paged=paged)
            except ValueError as error:
                return SearchFailed(with_remark(f"the reply cannot be used: {error}", attempt.remark), status)
        case _:
            assert_never(attempt)
    if not elements:  # the explicit "none" is part of a proof, so the reply must be complete and unambiguous
        if mended.damaged:
            return SearchFailed("the reply says that there is no payment, but the reply is damaged", status)
        if _tells_beside(decode(mended.body), pointer):
            return SearchFailed("the list is empty, but the reply contains other data", status)
        return SearchMiss()
    if len(elements) > MAX_ELEMENTS:
        return SearchFailed(f"the reply has more than {MAX_ELEMENTS} elements", status)
    ours = tuple(raw.decode() for raw in elements if _bears(raw, client_transaction_id))
    if not ours:
        return SearchFailed("the reply is about other transactions", status)
    found = SearchHit(ours, named(mended.damaged), paged).cut()
    if not found.usable:
        reason = f"the reply does not give the state of this payment: {found.events[0]}"
        return SearchFailed(reason, status, bears_id=True, unreadable=True)
    return found


def final_element(answers: Iterable[Answer], event_id: str) -> str | None:
    """Return the element with that event_id, verbatim, from stored results of searches. Return None if none has it."""
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
        return error.alone()  # omit the exception's cause: it would keep the whole reply in memory


def _elements(body: bytes, pointer: str, *, paged: bool) -> list[bytes]:
    """Return the elements at the pointer, verbatim.

    Raise ValueError if the value there is neither a list nor an object.
    """
    raw = _at(body, pointer)
    if paged and not raw.lstrip().startswith(b"["):
        raise ValueError(f"there is no list of transactions at {pointer}")
    try:
        if raw.lstrip().startswith(b"["):
            return [bytes(item) for item in _LIST.decode(raw)]
        _OBJECT.decode(raw)
    except msgspec.ValidationError as error:
        raise ValueError("there is neither a list nor an object of transactions") from error
    return [raw.strip()]


#: JSON Pointer to the elements of a page, unless the profile has another one.
PAGE = "/data"
#: Names of members that may accompany an empty list: page sizes and success flags.
_SIZES = frozenset({"size", "page_size", "pageSize", "per_page", "perPage", "limit"})
_WELL = frozenset({"ok", "success"})
#: Parts of the names of members that report whether there are further transactions.
_FURTHER = ("next", "more")


def _tells_beside(around: Any, pointer: str) -> bool:
    """Whether a reply with an empty list has transactions, or an error, outside of that list."""
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
    """Whether a member next to an empty list suggests that there are transactions."""
    if isinstance(value, Object):
        return bool(value.repeated) or any(_tells(*member) for member in value.items())
    if isinstance(value, bool):
        return name not in _WELL if value else not any(word in name.lower() for word in _FURTHER)
    text = as_text(value or "0")
    if name in _SIZES:
        return text is None or not text.isdecimal()
    return text != "0" and (name, text) != ("page", "1")


def _at(body: bytes, pointer: str) -> bytes:
    """Return the value at the pointer. Raise ValueError if it is missing."""
    for step in _steps(pointer):
        body = _member(body, step, pointer)
    return body


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _member(raw: bytes, name: str, pointer: str) -> bytes:
    """Return the member `name` of an object, or the item at that index of a list. Raise ValueError if it is missing.

    `pointer`: the whole JSON Pointer, for the message.
    """
    try:
        if name.isascii() and name.isdigit() and raw.lstrip().startswith(b"["):
            return bytes(_LIST.decode(raw)[int(name)])
        document = decode(raw)
        if isinstance(document, Object) and name in document.repeated:
            raise ValueError(f"{name} appears more than once, with different values")
        return bytes(_OBJECT.decode(raw)[name])
    except (msgspec.ValidationError, LookupError):
        raise ValueError(f"there is nothing at {pointer}") from None


def _bears(raw: bytes, client_transaction_id: str) -> bool:
    element: Any = decode(raw)
    identity = element.get("client_transaction_id") if isinstance(element, dict) else None
    return isinstance(identity, str) and identity.lower() == client_transaction_id
