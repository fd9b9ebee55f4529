"""The webhook app: nothing but callbacks is served on the LAN.

A table of two questions before the body is read: is it a callback address, does its token belong to it. The path alone
answers both, so a stranger costs no look-up and no disk. The channels share this door and nothing behind it: each has
its own path, token, reading of ids, limit and inbox.

Source: terminal API, Events, Printing, Delivery.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel, canonical_uuid, is_print_job_id
from posd.base.locks import Histogram
from posd.httpd import bodies
from posd.httpd.rejected_traffic import RejectedTraffic
from posd.httpd.request_cycle import WHOLE
from posd.payments.inbox import Inbox
from posd.printing.inbox import PrintInbox
from posd.records.callback_urls import CallbackUrls

#: A terminal sends an event in one piece; a body that trickles is cut. Seconds.
BODY_SECONDS = 10.0
#: When the disk or the queue refuses: the terminal's own backoff is longer (terminal API, Delivery). Seconds.
RETRY_AFTER = (b"retry-after", b"2")
PREFIX = "/webhooks/"
#: Large bodies that are held at one time, in bytes. At least two of the largest fit.
ROOM_BYTES = 4 * 1024 * 1024
#: A print webhook is five short fields (terminal API, Printing), in bytes.
MAX_PRINT_BYTES = 65_536
#: What a callback with a valid token is answered with.
REPLIES = (200, 400, 403, 408, 413, 500, 503)
#: Buckets of how long such a callback takes, from its first byte to the answer. Seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

log = structlog.get_logger("posd.webhooks")


class Taker(Protocol):
    """The inbox of a channel. Each method returns the HTTP status to answer with, if there is one to be answered."""

    async def receive(self, identity: str, body: bytes, peer: str, /) -> int:
        """Take a whole body."""

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


@dataclass(frozen=True, slots=True)
class _Callback:
    """A request at an authentic callback address: of which channel and id, and how it is read and answered."""

    row: ChannelRow
    identity: str
    scope: HTTPScope
    peer: str
    receive: ASGIReceiveCallable
    send: ASGISendCallable


class WebhookApp:
    """ASGI app of the webhook listener."""

    def __init__(self, channels: Sequence[ChannelRow], callback_urls: CallbackUrls, noise: RejectedTraffic) -> None:
        self._channels: Mapping[str, ChannelRow] = {row.channel: row for row in channels}
        self._callback_urls = callback_urls
        self._noise = noise
        largest = max(row.max_body_bytes for row in channels)
        self._room = bodies.Room(max(ROOM_BYTES, 2 * largest), largest)
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
        began, status = time.perf_counter(), 500
        try:
            status = await self._answer(_Callback(row, identity, scope, peer, receive, send))
        except asyncio.CancelledError:
            status = 0
            raise
        finally:
            if status:
                self.replies[row.channel, status] += 1
                self.seconds[row.channel].observe(time.perf_counter() - began)

    async def _answer(self, call: _Callback) -> int:
        """Answer a callback with a valid token; return the status, 0 where the client has gone."""
        try:
            with bodies.Held(self._room, call.identity) as held:
                if (place := call.scope["state"]["place"]) is not None:
                    place.keep()
                return await self._take(call, held)
        except bodies.Full:
            self._noise.note("no_room", call.peer)
            await call.row.inbox.broke_off(call.identity)
            await bodies.refuse(call.receive, call.send, 503, headers=(RETRY_AFTER,))
            return 503

    async def _take(self, call: _Callback, held: bodies.Held) -> int:
        """Read the body of an authentic callback, answer, and return the status; 0 where the client has gone.

        Raise Full before anything is answered.
        """
        row, identity, scope = call.row, call.identity, call.scope
        seconds = None if WHOLE in scope["extensions"] else BODY_SECONDS
        try:
            body = await bodies.read(call.receive, dict(scope["headers"]), row.max_body_bytes, seconds, held.take)
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
        if (place := scope["state"]["place"]) is not None:
            place.prove()
        status = await row.inbox.receive(identity, body, call.peer)
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


def _retry(status: int) -> tuple[tuple[bytes, bytes], ...]:
    return (RETRY_AFTER,) if status == 503 else ()
