"""Calls of the local API as values, and plans of several calls, without I/O: repeat, wait, read pages.

A plan is a generator: it yields the next call, receives its reply or its error, and returns the result. The sync and
the async connection run the same plans. Plans read the monotonic clock and nothing else.
"""

import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

from posd.client import documents, states
from posd.client.documents import SAME_CALL, ForeignAnswer, OutcomeUnknown, PosdError, Problem, Unreachable, encode

if TYPE_CHECKING:
    import httpx2
    from _typeshed import DataclassInstance

# Calls as values.

#: Time-out of a response in seconds: longer than posd's call to a terminal takes by default (3 + 20).
REPLY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `path`: path below /v1. `seconds`: time-out of the response; None: without limit.

    `pause`: seconds to wait before the call. `also`: 4xx and 5xx statuses that are results of this call and no errors.
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
    """Response to a call: HTTP status, decoded JSON, and original bytes."""

    status: int
    body: Any
    raw: bytes


HEALTH = Call("GET", "/health", also={503})  # if its health is `failing`, posd replies 503 with the reasons


def transaction_path(identity: str, call: str = "") -> str:
    """Return the path of a transaction, or of a call on it."""
    return f"/transactions/{identity}{call}"


def print_job_path(identity: str, call: str = "") -> str:
    """Return the path of a print job, or of a call on it."""
    return f"/print-jobs/{identity}{call}"


def terminal_path(serial: str) -> str:
    """Return the path of a terminal."""
    return f"/terminals/{quote(serial, safe='')}"


def put(path: str, fields: Mapping[str, object]) -> Call:
    """Return the call that starts a payment or print job. Fields that are None or False are omitted.

    Raise TypeError for a float.
    """
    given = {name: value for name, value in fields.items() if value is not None and value is not False}
    return Call("PUT", path, body=encode(given))


def post(path: str, fields: Mapping[str, object] | None = None) -> Call:
    """Return a call on a started payment or print job."""
    given = None if fields is None else {name: value for name, value in fields.items() if value is not None}
    return Call("POST", path, body=None if given is None else encode(given))


def get(path: str, filters: Mapping[str, object] | None = None) -> Call:
    """Return a call that reads. Filters that are None are omitted."""
    return Call("GET", path, params={k: query(v) for k, v in (filters or {}).items() if v is not None})


def metadata_filters(metadata: Mapping[str, object] | None) -> dict[str, object]:
    """Return the filters on the till's metadata."""
    return {f"metadata.{name}": value for name, value in (metadata or {}).items()}


def query(value: object) -> str:
    """Return the text of a query parameter. Raise ValueError for a time without a zone."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return moment(value)
        case _:
            return str(value)


def moment(value: object) -> str:
    """Return a time in posd's format. Raise TypeError for other types, ValueError for a time without a zone."""
    if not isinstance(value, datetime):
        raise TypeError(
            f"{value!r} ({type(value).__name__}) is not a time: write datetime.now(UTC) + timedelta(minutes=2)"
        )
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone: say which moment is meant, such as datetime.now(UTC)")
    with suppress(OverflowError):  # a time near year 1 or 9999 has no UTC form; posd handles it
        value = value.astimezone(UTC)
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Plans.

T = TypeVar("T")
Plan: TypeAlias = Generator[Call, Reply, T]

#: Called with the reason before each repetition of a call, for the till's screen. An exception of this function ends
#: the wait.
OnAway: TypeAlias = Callable[[PosdError], None]
#: Called with the text for the cashier.
Show: TypeAlias = Callable[[str], None]

#: Called with a notice that changes of the feed may be missing.
OnNotice: TypeAlias = Callable[[states.Notice], None]

#: While posd is away, a call is repeated for this number of seconds: longer than posd takes to stop and start.
PATIENCE_SECONDS = 15.0
#: Seconds between two attempts to reach posd. The cashier does not notice them, and the load is small.
RETRY_SECONDS = 0.25
#: After an error that seldom passes, a call is repeated for this number of seconds. Such an error also occurs while
#: posd starts, because the socket exists before its group and mode are set.
LASTING_SECONDS = 2.0
#: Longest time-out that posd accepts for one call, in seconds (local API).
LONGEST_SECONDS = 3600.0
#: Each call gives posd a time-out. The till waits for the response this many seconds longer, and then stops waiting,
#: because posd may hang.
GRACE_SECONDS = 2.0

#: After a crash of the till, its start may arrive at posd up to this many seconds later.
ON_ITS_WAY_SECONDS = 30.0
#: Seconds between two checks whether such a start has arrived.
ASK_AGAIN_SECONDS = 1.0

#: Seconds between two queries for the cashier's text, if the till shows it.
SHOW_SECONDS = 1.0

#: HTTP status for a known id whose record was removed.
GONE = 410

#: Name of the item that ends the stream of a payment's events.
OUTCOME_ITEM = "outcome"

#: Name of the item that reports that changes may be missing.
NOTICE_ITEM = "notice"
#: Name of the item with the state of a payment.
STATE_ITEM = "state"
#: Names of items that are never changes.
OWN_NAMES = frozenset({OUTCOME_ITEM, "cut_off", "draining", "problem", NOTICE_ITEM, STATE_ITEM})
#: Value of `after` for the beginning of the feed. With this value, each change has a `place`, by which posd later
#: detects that an older copy has replaced the database.
START = "start"
#: Code of the notice that a place is from an earlier database, which a backup or an older copy has replaced. The stream
#: continues after the notice's `seq`.
PLACE_UNKNOWN = "place_unknown"


def is_away(error: PosdError) -> bool:
    """Return whether posd is stopped, starting, or stopping."""
    return error.away


def passes(error: PosdError) -> bool:
    """Return whether posd is away or could not check. Then the error proves nothing about the payment or print job."""
    return error.passes


def is_awaited(error: PosdError) -> bool:
    """Return whether a failed start is repeated: posd could not look up the id, or it sent `retry_after_seconds`."""
    return error.passes or (error.next_step == SAME_CALL and error.retry_after_seconds is not None)


#: Dataclass that is read from a document.
R = TypeVar("R", bound="DataclassInstance")


class Handle(Generic[T]):
    """Handle of a payment or print job that was, or may have been, started.

    The handle has the id and the newest known state.
    """

    def __init__(self, posd: Any, identity: str, newest: T | None = None, stored_at: datetime | None = None) -> None:
        #: The id that the till chose.
        self.id = identity
        self._posd = posd
        #: The newest known state, or None.
        self._newest = newest
        #: Time when the till first stored the payment, if known.
        self._stored_at = stored_at

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


@dataclass(slots=True)
class Away:
    """Limit of repetitions after temporary errors: `patience` seconds from the first error; None: without limit."""

    patience: float | None
    on_away: OnAway | None = None
    passing: Callable[[PosdError], bool] = is_away
    _since: float | None = field(default=None, init=False)

    def back(self) -> None:
        """Record that posd replied, so that the limit counts from the next error."""
        self._since = None

    def pause(self, error: PosdError) -> float | None:
        """Return the seconds before the next attempt, or None if there is no further attempt."""
        if not self.passing(error):
            return None
        now = time.monotonic()
        pause = max(RETRY_SECONDS, error.retry_after_seconds or 0.0)
        self._since = now if self._since is None else self._since
        limits = (self.patience, LASTING_SECONDS if error.lasting else None)
        if any(limit is not None and now - self._since + pause > limit for limit in limits):
            return None
        if self.on_away is not None:
            self.on_away(error)
        return pause


def _left(end: float | None) -> float | None:
    """Return the remaining seconds, or None without a limit."""
    return None if end is None else max(0.0, end - time.monotonic())


def steady(call: Call, away: Away, *, once: bool = False) -> Plan[Reply]:
    """Repeat a call until posd replies. With `once`, do not repeat the call if posd may have read it."""
    while True:
        try:
            return (yield call)
        except PosdError as error:
            if (once and error.sent) or (pause := away.pause(error)) is None:
                raise
            call = replace(call, pause=pause)


def one(call: Call, kind: type[R], away: Away, *, once: bool = False) -> Plan[R]:
    """Make a call, and return its document as the dataclass `kind`."""
    reply = yield from steady(call, away, once=once)
    return documents.read(kind, reply.body)


def changed(handle: Handle[states.Transaction], call: Call, *, once: bool = False) -> Plan[states.Transaction]:
    """Make a call that returns a transaction, and update the handle."""
    handle._newest = state = yield from one(call, states.Transaction, handle._posd._away(), once=once)
    return state


def look(handle: Handle[R], call: Call, kind: type[R], away: Away) -> Plan[R]:
    """Read the state of a payment or print job. Raise Problem if posd does not know it.

    Raise Unreachable if posd cannot check. A Problem would be wrong here: a till could read it as a refusal, but the
    error proves nothing about the payment.
    """
    try:
        handle._newest = state = yield from one(call, kind, away)
    except Problem as problem:
        raise _failed_look(handle, problem) from problem
    return state


def is_known(handle: Handle[states.Transaction], within: float, away: Away) -> Plan[bool]:
    """Return whether posd knows a transaction, after retries for `within` seconds.

    Raise OutcomeUnknown, or as `look` does.

    The result is False only if posd reports `never_started`, or the till stored the payment after the lost period (see
    `Problem.compare`). A missing record alone proves nothing, because a restore can lose records.
    """
    call, end = get(transaction_path(handle.id)), time.monotonic() + within
    while True:
        try:
            yield from look(handle, call, states.Transaction, away)
        except Problem as problem:
            if problem.status == GONE:
                return True
            away.back()
            if _left(end) == 0:
                if problem.compare(handle._stored_at).never_started:
                    return False
                raise OutcomeUnknown(handle.id, problem) from problem
            call = replace(call, pause=min(ASK_AGAIN_SECONDS, _left(end) or 0.0))
        else:
            return True


def page(call: Call, member: str, kind: type[R], away: Away) -> Plan[tuple[list[R], str | None]]:
    """Read a page of a list. Return its rows, and the cursor of the next page."""
    reply = yield from steady(call, away)
    body = documents.document(reply.body)
    rows = [documents.read(kind, row) for row in documents.member(body, tuple[documents.Document, ...], member)]
    return rows, documents.member(body, str | None, "next_cursor")


def whole(call: Call, member: str, kind: type[R], away: Away) -> Plan[list[R]]:
    """Read a list that has only one page."""
    rows, _ = yield from page(call, member, kind, away)
    return rows


def begin(handle: Handle[R], call: Call, kind: type[R]) -> Plan[Handle[R]]:
    """Start the payment or print job of a handle, and return the handle with the state (see `start`)."""
    posd = handle._posd
    try:
        reply = yield from start(posd.socket, call, posd.patience, posd.on_away, unsent_patience=posd.patience)
    except Problem as problem:
        problem.compare(handle._stored_at)
        raise
    handle._newest = documents.read(kind, reply.body)
    return handle


def start(
    socket: str, call: Call, patience: float | None, on_away: OnAway | None, *, unsent_patience: float | None
) -> Plan[Reply]:
    """Start a payment or print job: repeat the same call with the same id until posd replies.

    Raise Problem for a refusal. Then this call sent nothing to a terminal. Raise Unreachable after `patience` seconds
    without a reply, or after `unsent_patience` seconds if no call can have reached posd.
    """
    away, may_run = Away(unsent_patience, on_away, is_awaited), False
    while True:
        try:
            return (yield call)
        except PosdError as error:
            if error.sent:
                away.patience, may_run = patience, True
            if (pause := away.pause(error)) is None:
                if error.passes and (may_run or error.away):
                    advice = "nothing is known of this id: repeat the same call with the same id"
                    raise _not_known(socket, error, advice, sent=may_run) from error
                raise
            call = replace(call, pause=pause)


def outcome(handle: Handle[states.Transaction], timeout: float | None, show: Show | None = None) -> Plan[Any]:
    """Wait for the outcome of a transaction, and return it as an Outcome.

    Start nothing. Raise StillOpen, OutcomeUnknown, or UnknownResult.
    """

    def take(reply: Reply) -> states.Outcome | None:
        document = documents.document(reply.body)
        if reply.status == 200 and "client_transaction_id" not in document and handle._newest is not None:
            document = {**handle._newest.document, **document}  # an older posd sends only the outcome's own members
        found = states.read_outcome(document)
        if found is None:
            handle._newest = documents.read(states.Transaction, document)
        return found

    def unknown(problem: Problem) -> PosdError:
        return OutcomeUnknown(handle.id, problem.compare(handle._stored_at))

    path = transaction_path(handle.id, "/outcome")
    return (yield from _wait(handle, path, take, unknown, states.StillOpen, timeout, show))


def print_outcome(handle: Handle[states.PrintJob], timeout: float | None) -> Plan[states.PrintJob]:
    """Wait for the end of a print job. Start nothing. Raise StillPrinting, or as `look` does."""

    def take(reply: Reply) -> states.PrintJob | None:
        handle._newest = state = documents.read(states.PrintJob, reply.body)
        return state if state.final else None

    path = print_job_path(handle.id, "/outcome")
    return (yield from _wait(handle, path, take, partial(_failed_look, handle), states.StillPrinting, timeout))


def _wait(
    handle: Handle[Any],
    path: str,
    take: Callable[[Reply], T | None],
    unknown: Callable[[Problem], PosdError],
    still_open: Callable[[str, Any], PosdError],
    timeout: float | None,
    show: Show | None = None,
) -> Plan[T]:
    """Call `path` until `take` returns a result from a reply. Raise the error from `unknown` or `still_open`."""
    end = None if timeout is None else time.monotonic() + timeout
    away, pause = Away(None, handle._posd.on_away, passes), 0.0
    shown, longest = None, None if show is None else 0.0
    while True:
        try:
            found = take((yield _holding(path, end, pause, longest)))
            away.back()
            pause = 0.0
        except PosdError as error:
            try:
                pause = _next_try(away, error, end)
            except Problem as problem:
                raise unknown(problem) from problem
        else:  # outside the `try`, because an exception of `show` is the till's own
            if show is not None:
                newest: Any = found or handle._newest
                longest, before = SHOW_SECONDS, shown
                shown = newest.display.text if newest and newest.display else None  # None from an older posd
                if shown not in (None, before):
                    show(shown)
            if found is not None:
                return found
        if _left(end) == 0:
            raise still_open(handle.id, handle._newest)


class Place(Generic[R]):
    """Position in a stream of numbered items. It prevents repeated items, and gaps after a broken connection.

    `after`: a number, or a place from the feed. `on_notice`: called if items may be missing. `unnumbered`: names and
    types of items without a number. Such an item is dropped if it equals the last one.
    """

    def __init__(
        self,
        socket: str,
        path: str,
        kind: type[R],
        after: int | str,
        on_away: OnAway | None,
        on_notice: OnNotice | None = None,
        unnumbered: Mapping[str, type[R]] = MappingProxyType({}),
    ) -> None:
        self.path = path
        #: The id after which the stream is opened, or empty for the beginning.
        self.resume = str(after or "")
        self._first = START if after == START or "-" in self.resume else ""
        self._seq = 0 if self.resume in ("", START) else int(self.resume.partition("-")[0])
        self._socket = socket
        self._kind = kind
        self._away = Away(None, on_away, passes)
        self._on_notice = on_notice
        self._unnumbered = unnumbered
        self._last: R | None = None

    def take(self, item: "httpx2.ServerSentEvent") -> R | None:
        """Return the content of a new item, or None for a repeated or irrelevant item.

        Raise ForeignAnswer if the item does not follow the API.
        """
        self._away.back()
        notice = found = None
        try:
            source = documents.decode(item.data) if item.data else None
            if (kind := self._unnumbered.get(item.event)) is not None:
                last, self._last = self._last, documents.read(kind, source)
                return None if self._last == last else self._last
            if not isinstance(source, Mapping) or not isinstance(seq := source.get("seq"), int):
                return None
            if item.event in OWN_NAMES:
                notice = documents.read(states.Notice, source) if item.event == NOTICE_ITEM else None
            elif seq > self._seq:
                found = documents.read(self._kind, source)
        except ValueError as error:
            reason = f"an item of its stream is not as this client knows it: {error}; check the version of posd"
            raise ForeignAnswer(self._socket, reason, status=200, raw=item.data.encode()) from error
        if found is not None:
            self._seq, self.resume = seq, item.id or str(seq)
        elif notice is not None:
            self._told(notice, seq)
        return found

    def _told(self, notice: states.Notice, seq: int) -> None:
        if notice.code == PLACE_UNKNOWN:
            self._seq, self.resume = seq, str(seq) if seq else self._first
        if self._on_notice is not None:
            self._on_notice(notice)

    def broken(self, error: PosdError) -> float:
        """Return the seconds before the stream is opened again. Raise the error if waiting does not help."""
        return _next_try(self._away, error, None)


def watched(handle: Handle[states.Transaction]) -> Place[states.Change | states.State]:
    """Return the position before the first event of a transaction, for its stream."""
    posd, path = handle._posd, transaction_path(handle.id, "/events")
    return Place[states.Change | states.State](
        posd.socket, path, states.Change, 0, posd.on_away, unnumbered={STATE_ITEM: states.State}
    )


def _holding(path: str, end: float | None, pause: float, longest: float | None = None) -> Call:
    """Return the long-polling call for the remaining time, at most `longest` seconds."""
    left = _left(end)
    if left is None and longest is None:
        return Call("GET", path, seconds=None, pause=pause)
    wait = LONGEST_SECONDS if longest is None else longest
    if left is not None:
        wait = min(max(0.0, left - pause), wait)
    return Call("GET", path, {"timeout": f"{wait:.3f}"}, seconds=wait + GRACE_SECONDS, pause=pause)


def _next_try(away: Away, error: PosdError, end: float | None) -> float:
    """Return the seconds before the next attempt, at most until `end`.

    Raise the error if there is no next attempt.
    """
    pause, left = away.pause(error), _left(end)
    if pause is None:
        raise error
    return pause if left is None else min(pause, left)


def _failed_look(handle: Handle[Any], problem: Problem) -> PosdError:
    """Return the error for a failed read of a state: the problem itself, or Unreachable if posd could not check."""
    advice = "its state is not known: ask again, and start nothing in its place"
    return _not_known(handle._posd.socket, problem, advice) if problem.status >= 500 else problem


def _not_known(socket: str, error: PosdError, advice: str, *, sent: bool = True) -> Unreachable:
    reason = error.reason if isinstance(error, Unreachable) else str(error)
    return Unreachable(socket, reason, sent=sent, advice=advice)
