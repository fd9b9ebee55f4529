"""Shared parts of handlers, especially streams of server-sent events: first stored events, then live events.

A client can resume a stream after the id of an event. The memory for a stream is limited. A stream reads a batch from
the database, writes it, and reads the next batch when the client has read it. So there is only one batch in memory for
each client, in addition to the transport's buffer. A client that reads nothing for `TAKE_SECONDS` is disconnected (see
`posd.httpd.connection`). If posd ends a stream, it sends a last event.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import structlog
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from posd.base.fair_queue import end_turn
from posd.base.json_types import OPEN
from posd.base.limits import STREAMS_OF_PROCESS
from posd.base.problems import Problem
from posd.base.text import Language, accepted_weights
from posd.calls import parameters
from posd.calls.app import ClientGone, encode, redacted
from posd.calls.parameters import Parameter, StreamMessage
from posd.httpd.admission import SocketPeer
from posd.httpd.allowance import Allowance
from posd.httpd.connection import TAKE_SECONDS, BodyChannel
from posd.records.quotas import LimitCounters, Quotas, limit_reached
from posd.records.service import Missing
from posd.records.start import not_here
from posd.storage import StorageUnavailable
from posd.storage.changes import Hub, Waiter
from posd.storage.store import Store

T = TypeVar("T")

#: Detail of the problem of a call that waits while posd stops.
DRAINING = "posd is stopping; ask again in a moment: nothing is lost, and the payment continues"

#: Media types that a client can choose.
STREAM = "text/event-stream"
DOCUMENT = "application/json"

# Documents of posd's own messages in event streams (docs/guides/streams.md).


class Notice(msgspec.Struct, frozen=True):
    """Notice that a client may have missed changes."""

    code: Annotated[
        Literal["changes_removed", "place_unknown"],
        OPEN,
        Meta(description="`changes_removed`: up to `seq`, by retention; `place_unknown`: not a place of this database"),
    ]
    detail: Annotated[str, Meta(description="its meaning, and what to do; for people")]
    seq: Annotated[int, Meta(description="changes up to this number are missing, or reading continues after it")]


class CutOff(msgspec.Struct, frozen=True):
    """Notice that posd is disconnecting a client that reads nothing."""

    code: Annotated[Literal["cut_off"], Meta(description="always `cut_off`")]
    detail: Annotated[str, Meta(description="for how long the client read nothing, and how to resume; for people")]


class Ended(msgspec.Struct, frozen=True):
    """Problem that ended the stream, with the members of RFC 9457."""

    type: Annotated[str, Meta(description="`urn:posd:problem:CODE`")]
    title: Annotated[str, Meta(description="the same for every problem of the code")]
    status: Annotated[int, Meta(description="the HTTP status")]
    detail: Annotated[str, Meta(description="the failed action, the reason, and what to do; for people")]
    code: Annotated[str, Meta(description="the code, a word for programs")]


#: Messages that can end any stream. These messages have no id (docs/guides/streams.md).
ENDS = (
    StreamMessage("cut_off", CutOff, "the client read nothing for too long: connect again with the last id"),
    StreamMessage("draining", Ended, "posd stops: connect again with the last id"),
    StreamMessage("problem", Ended, "the stream cannot continue: connect again; the response then has the reason"),
)

#: Seconds between two comments on a stream. They show that the connection is alive. Proxies and clients close a
#: connection that is silent for 30 or 60 seconds.
HEARTBEAT_SECONDS = 15.0
#: Milliseconds before a client should reconnect. A daemon restarts in about a second.
RETRY_MILLISECONDS = 1000
#: Size after which a batch ends, in bytes: large enough to read a week of changes fast, and small enough for a thousand
#: slow clients.
BATCH_BYTES = 32 * 1024
#: Maximum number of rows that are read from the database for a batch.
BATCH_ROWS = 100

#: Names of posd's own events. None of them is the name of a status. The first four can end a stream.
OUTCOME = "outcome"
CUT_OFF = "cut_off"
STOPPING = "draining"
PROBLEM = "problem"
NOTICE = "notice"
STATE = "state"
OWN_NAMES = frozenset({OUTCOME, CUT_OFF, STOPPING, PROBLEM, NOTICE, STATE})

#: Kinds of streams. Then the reasons why a stream ends: the client left, posd disconnected the client, posd stops, the
#: payment has its outcome, or the database was unreadable.
KINDS = ("events", "feed")
REASONS = ("client", CUT_OFF, STOPPING, OUTCOME, PROBLEM)

_RETRY = b"retry: %d\n\n" % RETRY_MILLISECONDS
_HEARTBEAT = b":\n\n"
_HEADERS = {"content-type": f"{STREAM}; charset=utf-8", "cache-control": "no-store"}
_RESUME = "connect again with the last id that you have as Last-Event-ID: nothing is lost or repeated"

log = structlog.get_logger("posd.streams")


def message(event: str, data: object, identity: str = "") -> bytes:
    """Return an event in wire format: its id, its name, and its data as JSON.

    `identity`: id after which a client can resume, or "" for an event without an id.
    """
    content = encode(data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = [b"id: " + identity.encode()] if identity else []
    lines.append(b"event: " + redacted(event.encode()))
    lines += [b"data: " + line for line in content.split(b"\n")]
    return b"\n".join(lines) + b"\n\n"


_STOPPING = message(STOPPING, Problem("draining", f"posd is stopping; {_RESUME}").document())


class MessageBatch(msgspec.Struct, frozen=True):
    """Messages as bytes, whether more can be read at once, and whether they end the stream.

    `again`: seconds until the next read, even if nothing has changed; None: wait for a change. `approvals`: ids of the
    payments whose approval is in the batch.
    """

    data: bytes = b""
    more: bool = False
    last: bool = False
    again: float | None = None
    approvals: Sequence[str] = ()


def resume_after(request: Request, parameter: Parameter) -> Any:
    """Return the id of the last event that the client has received, parsed, or None. Raise Problem."""
    given = request.state.headers[parameter.name]
    if not given:
        return None
    try:
        return parameter.kind.read(given[0])
    except ValueError as error:
        raise parameters.invalid(parameter.name, str(error)) from error


def wants_stream(request: Request) -> bool:
    """Return whether a client requests a stream.

    A client does so if its Accept header names the type of streams, with at least the weight of the document's type.
    For a wildcard alone, posd sends the document.
    """
    asked = accepted_weights(request.headers.getlist("accept"))
    return asked.get(STREAM, 0.0) > 0 and asked[STREAM] >= asked.get(DOCUMENT, 0.0)


class SlowReaderDetector(msgspec.Struct, eq=False):
    """Detector of a client that reads nothing.

    The detector measures the seconds without progress, also while the socket is not full. `untaken` returns the number
    of unread bytes, and `clock` the time in seconds.
    """

    untaken: Callable[[], int]
    clock: Callable[[], float]
    _lying: int = 0
    _since: float = 0.0

    def wrote(self) -> None:
        """Record the number of unread bytes after a write. A write hides progress, so call `look` before a write."""
        lying = self.untaken()
        if not self._lying:
            self._since = self.clock()
        self._lying = lying

    def look(self) -> float:
        """Return the seconds since the client last read, or 0 if no bytes are unread. Call this before a write."""
        lying = self.untaken()
        if lying < self._lying:
            self._since = self.clock()
        self._lying = lying
        return self.clock() - self._since if lying else 0.0


@dataclass(eq=False)
class Streams:
    """Open event streams, and counters of ended streams by kind."""

    hub: Hub
    reached: LimitCounters
    on_read: Callable[[Sequence[str]], None]
    #: Number of open streams by client process.
    held: Allowance = field(default_factory=lambda: Allowance(STREAMS_OF_PROCESS.value))
    open: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    ended: Counter[tuple[str, str]] = field(default_factory=lambda: Counter(dict.fromkeys(product(KINDS, REASONS), 0)))

    def answer(
        self,
        request: Request,
        kind: str,
        subject: str,
        read: Callable[[], Awaitable[MessageBatch]],
        transaction: str | None = None,
        language: Language | None = None,
    ) -> EventStream:
        """Return a stream of the batches of `read`, which is called again after each change of `subject`.

        `kind`: one of `KINDS`. `subject`: subject of the hub. `transaction`: id of the transaction, for the log.
        `language`: language of the texts for cashiers. Raise Problem draining if posd stops.
        """
        if self.hub.draining:
            raise Problem("draining", DRAINING)
        sender = request.scope["state"].get("sender")
        if sender is not None and sender.pid and self.held.seconds_until(sender.pid):
            self.reached.note(STREAMS_OF_PROCESS, pid=sender.pid, uid=sender.uid)
            what = f"cannot open a stream: process {sender.pid} has {STREAMS_OF_PROCESS.value} of them"
            raise limit_reached(STREAMS_OF_PROCESS, what, 1)
        stream = EventStream(self, kind, subject, read, sender, transaction)
        if language is not None:
            stream.headers["content-language"] = language
        return stream


@dataclass(eq=False)
class EventStream(Response):
    """One stream, as a response (ASGI)."""

    _streams: Streams
    _kind: str
    _subject: str
    _read: Callable[[], Awaitable[MessageBatch]]
    _sender: SocketPeer | None
    _transaction: str | None

    def __post_init__(self) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        """Send the stream, until it ends or the client has disconnected."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await _write(send, b"", more=False)
            return
        streams, pieces = self._streams, scope["state"]["pieces"]
        streams.open[self._kind] += 1
        pid = self._sender.pid if self._sender is not None else 0
        streams.held.take(pid)
        reason = "client"
        try:
            with streams.hub.subscribe(self._subject) as woken:
                pieces.on_gone = woken.set
                pieces.last_words = self._cut_off
                reason = await self._run(pieces, woken, scope["state"]["untaken"], send)
        finally:
            pieces.on_gone = pieces.last_words = None
            streams.open[self._kind] -= 1
            streams.held.give_back(pid)
            if not pieces.cut_off:
                streams.ended[self._kind, reason] += 1

    async def _run(self, pieces: Any, woken: Any, untaken: Callable[[], int], send: Any) -> str:
        """Write batches until the stream ends. Return the reason of the end."""
        await _write(send, _RETRY)
        taking = SlowReaderDetector(untaken, asyncio.get_running_loop().time)
        while not pieces.gone:
            woken.clear()
            try:
                batch = await self._read()
            except Problem as problem:
                await _end(send, message(PROBLEM, problem.document()))
                return PROBLEM
            taking.look()
            if batch.data:
                await _write(send, batch.data)
                if batch.approvals and pieces.delivered:
                    self._streams.on_read(batch.approvals)
            if batch.last:
                await _write(send, b"", more=False)
                return OUTCOME
            if self._streams.hub.draining:
                await _end(send, _STOPPING)
                return STOPPING
            taking.wrote()
            if not batch.more and not await self._idle(batch.again, pieces, woken, taking, send):
                return CUT_OFF
        return "client"

    async def _idle(self, again: float | None, pieces: Any, woken: Any, taking: SlowReaderDetector, send: Any) -> bool:
        """Send heartbeats until the next read, which follows after a change or after `again` seconds.

        Return False if the client was disconnected.
        """
        seconds = HEARTBEAT_SECONDS if again is None else min(again, HEARTBEAT_SECONDS)
        while not await _changed(woken, seconds):
            if taking.look() >= TAKE_SECONDS:
                pieces.cut_off = True
                await _write(send, self._cut_off(), more=False)
                return False
            await _write(send, _HEARTBEAT)
            taking.wrote()
            if again is not None:
                break
        return True

    def _cut_off(self) -> bytes:
        """Count and log that the client was disconnected. Return the last event for the client."""
        self._streams.ended[self._kind, CUT_OFF] += 1
        log.warning(
            "stream.cut_off",
            kind=self._kind,
            seconds=TAKE_SECONDS,
            uid=self._sender.uid if self._sender is not None else None,
            transaction=self._transaction,
        )
        detail = f"the client read nothing of this stream for {TAKE_SECONDS:g} s, so it was cut off here; {_RESUME}"
        return message(CUT_OFF, CutOff("cut_off", detail))


async def _changed(woken: Any, seconds: float) -> bool:
    """Wait for a change. Return False if none arrived within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        return False
    return True


async def _write(send: Any, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def _end(send: Any, data: bytes) -> None:
    """Write the last event, and then the end of the response.

    These are two writes. With one, a slow client would not receive the notice that it was disconnected.
    """
    await _write(send, data)
    await _write(send, b"", more=False)


# Calls that wait for a change. The wait ends with a change, a disconnect, a time-out, or the stop of the daemon.


async def wait_until(
    pieces: BodyChannel, woken: Waiter, hub: Hub, look: Callable[[], Awaitable[T | None]], timeout: float | None
) -> T | None:
    """Return the first result of `look` that is not None, or None after the time-out (seconds).

    `look` is called at once, and each time that `woken` is set. `woken` is a waiter of the hub for the relevant
    changes. `pieces`: channel of the request, which reports that the client has disconnected. Raise ClientGone, or
    Problem draining.
    """
    with woken:
        over = False

        def expire() -> None:
            nonlocal over
            over = True
            woken.set()

        pieces.on_gone = woken.set
        timer = asyncio.get_running_loop().call_later(timeout, expire) if timeout is not None else None
        try:
            while True:
                woken.clear()
                found = await look()
                if found is not None or over:
                    return found
                if hub.draining:
                    raise Problem("draining", DRAINING)
                if pieces.gone:
                    raise ClientGone
                end_turn()
                await woken.wait()
        finally:
            pieces.on_gone = None
            if timer is not None:
                timer.cancel()


# Parts that all handlers share: reads of the store, streams, and the clock.


@dataclass(eq=False)
class CallContext:
    """Reads of the database, streams, and the clock, for all handlers.

    `_on_read`: called with the ids of the payments whose approval a client has received.
    """

    _store: Store
    now: Callable[[], datetime]
    _quotas: Quotas
    _missing: Missing
    _on_read: Callable[[Sequence[str]], None]

    def __post_init__(self) -> None:
        self.hub = self._store.hub
        self.streams = Streams(self.hub, self._quotas.reached, self._on_read)

    @property
    def is_blind(self) -> bool:
        """Whether the newest write failed, so that posd may be unable to record the end of a payment."""
        return self._store.write_error is not None

    def shows(self, request: Request, approvals: Sequence[str]) -> None:
        """Mark these approvals as read when the client has received the response. `approvals`: ids of the payments."""
        if approvals:
            request.state.handed_over = partial(self._on_read, approvals)

    def not_here(self, problem: Problem) -> Problem:
        """Add to Problem `not_found` the member that tells whether the id was never sent (see `unknown_id`).

        Return any other problem unchanged.
        """
        return not_here(problem, self._missing())

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read from the database (see Store.read). Raise Problem storage_unavailable."""
        with _storage_problems():
            return await self._store.read(function)

    async def read_in_steps(
        self, function: Callable[[sqlite3.Connection], Generator[None, None, T]], pieces: BodyChannel
    ) -> T:
        """Read many rows for a client (see Store.read_in_steps).

        Raise Problem storage_unavailable. Raise ClientGone if the client disconnects.
        """
        with _storage_problems():
            found = await self._store.read_in_steps(function, lambda: not pieces.gone)
        if found is None:
            raise ClientGone
        return found

    async def look_up(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows of the database (see Store.look_up). Raise Problem storage_unavailable."""
        with _storage_problems():
            return await self._store.look_up(function)


@contextmanager
def _storage_problems() -> Iterator[None]:
    """Replace StorageUnavailable by Problem storage_unavailable."""
    try:
        yield
    except StorageUnavailable as error:
        raise Problem("storage_unavailable", f"{error}; try again, and check the disk") from error
