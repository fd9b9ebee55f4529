"""App of the webhook listener. It serves only callbacks.

Two checks precede the body: the path is a callback address, and its token belongs to it. Both checks use only the path,
so a request of an unknown sender causes no look-up and no disk access. The channels share only this app. Each has its
own path, token, parser of ids, limit and inbox.

Source: terminal API, Events, Printing, Delivery.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from posd.base.crashpoints import crash_point
from posd.base.exposition import Histogram
from posd.base.ids import Channel, canonical_uuid, is_print_job_id
from posd.base.replies import UNPARSABLE, CallbackResult, RefusedBody
from posd.httpd import bodies
from posd.httpd.admission import RejectedTraffic
from posd.httpd.allowance import Allowance
from posd.httpd.messages import RefusedRequest
from posd.payments.inbox import Inbox
from posd.printing.inbox import PrintInbox
from posd.records.callback_urls import CallbackUrls
from posd.records.inbox import UnreadableCallback

#: Time-out for receiving a body, in seconds. A terminal sends an event in one piece.
BODY_SECONDS = 10.0
#: Delay of a 429 response, in seconds, so that a sender that never stops does not occupy the loop. A terminal waits
#: longer than this for a response (terminal API, Delivery).
BRAKE_SECONDS = 0.25
PREFIX = "/webhooks/"
#: Maximum number of bytes of large bodies in memory. There is room for at least two of the largest.
ROOM_BYTES = 4 * 1024 * 1024
#: The first bytes of each body, up to this number, do not count against ROOM_BYTES. Events have a few thousand bytes,
#: or 20,000 with the till's metadata.
SMALL_BYTES = 24 * 1024
#: Number of concurrent bodies of one payment or print job whose first SMALL_BYTES do not count. There can be several,
#: because a terminal sends a body again after its time-out. All bytes of further bodies count.
FREE_BODIES_OF_SUBJECT = 8
#: Longest print webhook, in bytes. Such a webhook has five short fields (terminal API, Printing).
MAX_PRINT_BYTES = 65_536
#: Bounds of the histogram of callback durations, from the first byte to the response, in seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

log = structlog.get_logger("posd.webhooks")


class ChannelRow(msgspec.Struct, frozen=True):
    """One channel, with its parser of ids, inbox, limit of bodies, and crash point."""

    channel: Channel
    read_id: Callable[[str], str | None]
    inbox: Inbox | PrintInbox
    max_body_bytes: int
    answered: str


def transactions(inbox: Inbox, max_body_bytes: int) -> ChannelRow:
    """Return the channel of payments."""
    return ChannelRow(Channel.TRANSACTION, canonical_uuid, inbox, max_body_bytes, "event.answered")


def print_jobs(inbox: PrintInbox) -> ChannelRow:
    """Return the channel of print jobs."""
    return ChannelRow(Channel.PRINT, _print_job_id, inbox, MAX_PRINT_BYTES, "print_event.answered")


def _print_job_id(text: str) -> str | None:
    return text if is_print_job_id(text) else None


class _Callback(msgspec.Struct, frozen=True):
    """Request at an authentic callback address: channel, id, and its ASGI connection."""

    row: ChannelRow
    identity: str
    scope: HTTPScope
    peer: str
    receive: ASGIReceiveCallable
    send: ASGISendCallable


class BodyBudget:
    """Limits of the bytes of bodies in memory, in total and for one subject.

    A terminal sends one event of a transaction at a time. So a sender with one callback address cannot use up the
    memory of others. SMALL_BYTES and FREE_BODIES_OF_SUBJECT say which bytes always have room.
    """

    def __init__(self, size: int, of_subject: int) -> None:
        self.size = Allowance(size)
        self.of_subject = Allowance(of_subject)
        self.bodies = Allowance(FREE_BODIES_OF_SUBJECT)

    @contextmanager
    def reserve(self, subject: str) -> Iterator[Callable[[int], None]]:
        """Reserve the share of one body for the block.

        Yield a function that reserves room for a number of further bytes, or raises RefusedBody.
        """
        free, taken = SMALL_BYTES, 0
        if not self.bodies.try_take(subject):  # the subject has used up its FREE_BODIES_OF_SUBJECT
            self.bodies.take(subject)
            free = 0

        def take(count: int) -> None:
            nonlocal free, taken
            rest = count - min(count, free)
            free -= count - rest
            if not rest:
                return
            size, own = self.size, self.of_subject
            if size.used() + rest > size.room or own.used(subject) + rest > own.room:
                raise RefusedBody(CallbackResult.NO_ROOM, "the memory for bodies is full")
            size.take(amount=rest)
            own.take(subject, rest)
            taken += rest

        try:
            yield take
        finally:
            self.bodies.give_back(subject)
            if taken:
                self.size.give_back(amount=taken)
                self.of_subject.give_back(subject, taken)


class WebhookApp:
    """ASGI app of the webhook listener."""

    def __init__(self, channels: Sequence[ChannelRow], callback_urls: CallbackUrls, noise: RejectedTraffic) -> None:
        self._channels: Mapping[str, ChannelRow] = {row.channel: row for row in channels}
        self._callback_urls = callback_urls
        self._noise = noise
        largest = max(row.max_body_bytes for row in channels)
        self._room = BodyBudget(max(ROOM_BYTES, 2 * largest), largest)
        #: Responses to callbacks with a valid token, by channel and status, and their durations. Responses to unknown
        #: senders are counted as noise.
        statuses = sorted({result.status for result in CallbackResult})
        self.replies = Counter({(channel, status): 0 for channel in self._channels for status in statuses})
        self.seconds = {channel: Histogram(BOUNDS) for channel in self._channels}

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Handle one request. A fault of posd returns 500, so that the terminal retries."""
        if scope["type"] != "http":
            return
        peer = scope["client"][0] if scope["client"] else "unknown"
        try:
            await self._handle(scope, peer, receive, send)
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8), peer=peer)
            await _answer_early(receive, send, CallbackResult.FAILED)

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
        if scope["method"] != "POST":  # not a callback, but posd's own check of the listener
            await bodies.answer_early(receive, send, 405, headers=((b"allow", b"POST"),))
            return
        clock, status = asyncio.get_running_loop().time, 500
        began = clock()
        try:
            status = await self._answer(_Callback(row, identity, scope, peer, receive, send))
        except asyncio.CancelledError:
            status = 0
            raise
        finally:
            if status:
                self.replies[row.channel, status] += 1
                self.seconds[row.channel].observe(clock() - began)

    async def answer_unreadable(self, refused: RefusedRequest, peer: str) -> int:
        """Return the status for unparsable input.

        If the request was a callback, query the terminal about its payment or job.
        """
        found = self._authentic(refused.path) if refused.path.startswith(PREFIX) else None
        if found is None or refused.status == 503:  # after a 503 the terminal sends the callback again
            return refused.status
        row, identity = found
        lost = UnreadableCallback(
            UNPARSABLE[refused.status],
            f"its HTTP request could not be read ({refused.kind})",
            peer,
            detail=refused.detail,
        )
        status = (await row.inbox.lose(identity, lost)).status
        self.replies[row.channel, status] += 1
        return status

    async def _answer(self, call: _Callback) -> int:
        """Handle a callback with a valid token. Return the status, or 0 if the client has disconnected."""
        try:
            with self._room.reserve(call.identity) as take:
                if (place := call.scope["state"]["place"]) is not None:
                    place.keep()
                return await self._take(call, take)
        except RefusedBody as refused:
            self._noise.note("no_room", call.peer)
            await call.row.inbox.broke_off(call.identity)
            reply = refused.result
            await bodies.refuse(call.receive, call.send, reply.status, _retry(reply))
            return reply.status

    async def _take(self, call: _Callback, take: Callable[[int], None]) -> int:
        """Read the body of an authentic callback, and respond. Return the status, or 0 if the client has disconnected.

        Raise RefusedBody before any response.
        """
        row, identity, scope = call.row, call.identity, call.scope
        try:
            body = await bodies.read(call.receive, scope, row.max_body_bytes, BODY_SECONDS, take)
        except ConnectionAbortedError:
            await row.inbox.broke_off(identity)
            return 0
        except TimeoutError:
            self._noise.note("slow_body", call.peer)
            await row.inbox.broke_off(identity)
            return await _answer_early(call.receive, call.send, CallbackResult.TOO_SLOW)
        except bodies.BodyTooLarge:
            limit, large = row.max_body_bytes, CallbackResult.TOO_LARGE
            lost = UnreadableCallback(large, f"it was larger than {limit} bytes", call.peer, limit_bytes=limit)
            return await _answer_early(call.receive, call.send, await row.inbox.lose(identity, lost))
        if (place := scope["state"]["place"]) is not None:
            place.prove()  # other connections can be admitted while this one waits for the disk
        receipt = await row.inbox.receive(identity, body, call.peer, scope["headers"])
        reply = receipt.result
        if receipt.updates_terminal and place is not None:
            place.know()
        if reply.status == 429:
            await asyncio.sleep(BRAKE_SECONDS)
        await bodies.answer(call.send, reply.status, headers=_retry(reply))
        crash_point(row.answered)
        return reply.status

    def _authentic(self, path: str) -> tuple[ChannelRow, str] | None:
        """Return channel and id in an authentic callback path (/webhooks/CHANNEL/ID/TOKEN), or None."""
        parts = path.removeprefix(PREFIX).split("/")
        row = self._channels.get(parts[0])
        if len(parts) != 3 or row is None:
            return None
        identity = row.read_id(parts[1])
        if identity is None or not self._callback_urls.authentic(row.channel, identity, parts[2]):
            return None
        return row, identity


async def _answer_early(receive: ASGIReceiveCallable, send: ASGISendCallable, reply: CallbackResult) -> int:
    """Respond before the body has been read. Return the status."""
    await bodies.answer_early(receive, send, reply.status, headers=_retry(reply))
    return reply.status


def _retry(reply: CallbackResult) -> tuple[tuple[bytes, bytes], ...]:
    return () if reply.retry_after is None else ((b"retry-after", str(reply.retry_after).encode()),)
