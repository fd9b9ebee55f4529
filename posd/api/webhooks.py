"""The webhook app: nothing but callbacks is served on the LAN.

A table of two questions before the body is read: is it a callback address, does its token belong to it. The path alone
answers both, so a stranger costs no look-up and no disk. The channels share this door and nothing behind it: each has
its own path, token, reading of ids, limit and inbox.

Source: terminal API, Events, Printing, Delivery.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from posd.base.clocks import monotonic
from posd.base.crashpoints import crash_point
from posd.base.ids import Channel, canonical_uuid, is_print_job_id
from posd.base.locks import Histogram
from posd.httpd import bodies
from posd.httpd.admission import RejectedTraffic
from posd.payments.inbox import Inbox
from posd.printing.inbox import PrintInbox
from posd.records.callback_urls import CallbackUrls
from posd.terminals.auth.webhooks import Headers

#: A terminal sends an event in one piece; a body that trickles is cut. Seconds.
BODY_SECONDS = 10.0
#: When the disk or the queue refuses: the terminal's own backoff is longer (terminal API, Delivery). Seconds.
RETRY_AFTER = (b"retry-after", b"2")
#: Past a limit: it is not over in a moment. Terminals wait a minute at most between two tries. Seconds.
RETRY_LATER = (b"retry-after", b"60")
#: So long such an answer waits, in seconds: who sends without end does not take the turns of the loop that others wait
#: for. A terminal waits longer for an answer (terminal API, Delivery).
BRAKE_SECONDS = 0.25
PREFIX = "/webhooks/"
#: Large bodies that are held at one time, in bytes. At least two of the largest fit.
ROOM_BYTES = 4 * 1024 * 1024
#: Of each body this much needs no room, in bytes: events have a few thousand, and with the till's metadata 20,000.
SMALL_BYTES = 24 * 1024
#: Bodies of one subject at one time that have such a share: one, and those whose terminal has given up waiting and come
#: again. Each further one needs room for all of it.
FREE_BODIES_OF_SUBJECT = 8
#: A print webhook is five short fields (terminal API, Printing), in bytes.
MAX_PRINT_BYTES = 65_536
#: What a callback with a valid token is answered with.
REPLIES = (200, 400, 403, 408, 413, 429, 500, 503)
#: Buckets of how long such a callback takes, from its first byte to the answer. Seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

log = structlog.get_logger("posd.webhooks")


class Receipt(Protocol):
    """What became of a callback: the HTTP status to answer with, and whether it may update what is beside it."""

    @property
    def status(self) -> int: ...
    @property
    def updates_terminal(self) -> bool: ...


class Taker(Protocol):
    """The inbox of a channel. `broke_off` apart, each method returns what is to be answered."""

    async def receive(self, identity: str, body: bytes, peer: str, headers: Headers, /) -> Receipt:
        """Take a whole body, and the headers that came with it."""

    async def broke_off(self, identity: str, /) -> None:
        """Hear that a body did not become whole."""

    async def too_large(self, identity: str, limit: int, peer: str, /) -> int:
        """Hear that a body was over the limit."""


class ChannelRow(msgspec.Struct, frozen=True):
    """One channel: how its ids are read, its inbox, how large its bodies may be, and its crash point."""

    channel: Channel
    read_id: Callable[[str], str | None]
    inbox: Taker
    max_body_bytes: int
    answered: str


def transactions(inbox: Inbox, max_body_bytes: int) -> ChannelRow:
    """The channel of payments."""
    return ChannelRow(Channel.TRANSACTION, canonical_uuid, inbox, max_body_bytes, "event.answered")


def print_jobs(inbox: PrintInbox) -> ChannelRow:
    """The channel of print jobs."""
    return ChannelRow(Channel.PRINT, _print_job_id, inbox, MAX_PRINT_BYTES, "print_event.answered")


def _print_job_id(text: str) -> str | None:
    return text if is_print_job_id(text) else None


class _Callback(msgspec.Struct, frozen=True):
    """A request at an authentic callback address: of which channel and id, and how it is read and answered."""

    row: ChannelRow
    identity: str
    scope: HTTPScope
    peer: str
    receive: ASGIReceiveCallable
    send: ASGISendCallable


class Full(Exception):
    """There is no room for more bodies now."""


class Room:
    """Bytes of bodies that are held at one time: in total, and of one subject.

    A terminal sends one event of a transaction at a time: a sender with one callback address cannot take the room
    of the others. The beginning of a subject's first bodies always has room.
    """

    def __init__(self, size: int, of_subject: int) -> None:
        self._free = size
        self._of_subject = of_subject
        self._held: dict[str, list[int]] = {}  # of each subject: its bodies, and their bytes that need room

    def enter(self, subject: str) -> int:
        """Begin a body; return how many bytes of it need no room."""
        held = self._held.get(subject)
        if held is None:
            held = self._held[subject] = [0, 0]
        held[0] += 1
        return SMALL_BYTES if held[0] <= FREE_BODIES_OF_SUBJECT else 0

    def take(self, subject: str, count: int) -> None:
        """Take room for so many bytes. Raise Full."""
        held = self._held[subject]
        if count > self._free or held[1] + count > self._of_subject:
            raise Full
        held[1] += count
        self._free -= count

    def leave(self, subject: str, count: int) -> None:
        """End a body, and give its room back."""
        held = self._held[subject]
        held[0] -= 1
        held[1] -= count
        self._free += count
        if not held[0]:
            del self._held[subject]


class Held:
    """What one body holds of the room, as a context manager: it gives it back at the end."""

    def __init__(self, room: Room, subject: str) -> None:
        self._room = room
        self._subject = subject
        self._free = 0
        self._count = 0

    def take(self, count: int) -> None:
        """Take room for one more piece. Raise Full."""
        free = min(count, self._free)
        self._free -= free
        if count > free:
            self._room.take(self._subject, count - free)
            self._count += count - free

    def __enter__(self) -> Self:
        self._free = self._room.enter(self._subject)
        return self

    def __exit__(self, *_: object) -> None:
        self._room.leave(self._subject, self._count)


class WebhookApp:
    """ASGI app of the webhook listener."""

    def __init__(self, channels: Sequence[ChannelRow], callback_urls: CallbackUrls, noise: RejectedTraffic) -> None:
        self._channels: Mapping[str, ChannelRow] = {row.channel: row for row in channels}
        self._callback_urls = callback_urls
        self._noise = noise
        largest = max(row.max_body_bytes for row in channels)
        self._room = Room(max(ROOM_BYTES, 2 * largest), largest)
        #: Answers to callbacks with a valid token, by channel and status, and how long each took. What strangers are
        #: answered is noise.
        self.replies = Counter({(channel, status): 0 for channel in self._channels for status in REPLIES})
        self.seconds = {channel: Histogram(BOUNDS) for channel in self._channels}

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request; a fault of posd's own answers 500, which the terminal retries."""
        if scope["type"] != "http":
            return
        peer = scope["client"][0] if scope["client"] else "unknown"
        try:
            await self._handle(scope, peer, receive, send)
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8), peer=peer)
            await bodies.answer_early(receive, send, 500, headers=(RETRY_AFTER,))

    async def _handle(self, scope: HTTPScope, peer: str, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if not scope["path"].startswith(PREFIX):
            self._noise.note("unknown_path", peer)
            await bodies.refuse(receive, send, 404)
            return
        found = self._authentic(scope["path"])
        if found is None:
            self._noise.note("wrong_token", peer)
            await bodies.refuse(receive, send, 403)
            return
        row, identity = found
        if scope["method"] != "POST":  # no callback: so posd asks itself whether it answers
            await bodies.answer_early(receive, send, 405, headers=((b"allow", b"POST"),))
            return
        began, status = monotonic(), 500
        try:
            status = await self._answer(_Callback(row, identity, scope, peer, receive, send))
        except asyncio.CancelledError:
            status = 0
            raise
        finally:
            if status:
                self.replies[row.channel, status] += 1
                self.seconds[row.channel].observe(monotonic() - began)

    async def _answer(self, call: _Callback) -> int:
        """Answer a callback with a valid token; return the status, 0 where the client has gone."""
        try:
            with Held(self._room, call.identity) as held:
                if (place := call.scope["state"]["place"]) is not None:
                    place.keep()
                return await self._take(call, held)
        except Full:
            self._noise.note("no_room", call.peer)
            await call.row.inbox.broke_off(call.identity)
            await bodies.refuse(call.receive, call.send, 503, headers=(RETRY_AFTER,))
            return 503

    async def _take(self, call: _Callback, held: Held) -> int:
        """Read the body of an authentic callback, answer, and return the status; 0 where the client has gone.

        Raise Full before anything is answered.
        """
        row, identity, scope = call.row, call.identity, call.scope
        try:
            body = await bodies.read(call.receive, scope, row.max_body_bytes, BODY_SECONDS, held.take)
        except bodies.Gone:
            await row.inbox.broke_off(identity)
            return 0
        except bodies.TooSlow:
            self._noise.note("slow_body", call.peer)
            await row.inbox.broke_off(identity)
            await bodies.answer_early(call.receive, call.send, 408)
            return 408
        except bodies.TooLarge:
            status = await row.inbox.too_large(identity, row.max_body_bytes, call.peer)
            await bodies.answer_early(call.receive, call.send, status, headers=_retry(status))
            return status
        receipt = await row.inbox.receive(identity, body, call.peer, scope["headers"])
        status = receipt.status
        if receipt.updates_terminal and (place := scope["state"]["place"]) is not None:
            place.prove()
        if status == 429:
            await asyncio.sleep(BRAKE_SECONDS)
        await bodies.answer(call.send, status, headers=_retry(status))
        crash_point(row.answered)
        return status

    def _authentic(self, path: str) -> tuple[ChannelRow, str] | None:
        """Return channel and id of an authentic callback address: /webhooks/CHANNEL/ID/TOKEN."""
        parts = path.removeprefix(PREFIX).split("/")
        row = self._channels.get(parts[0])
        if len(parts) != 3 or row is None:
            return None
        identity = row.read_id(parts[1])
        if identity is None or not self._callback_urls.authentic(row.channel, identity, parts[2]):
            return None
        return row, identity


_RETRIES = {503: (RETRY_AFTER,), 429: (RETRY_LATER,)}


def _retry(status: int) -> tuple[tuple[bytes, bytes], ...]:
    return _RETRIES.get(status, ())
