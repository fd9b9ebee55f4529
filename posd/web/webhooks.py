"""The webhook app: nothing but callbacks is served on the LAN (design 5; spec 4.2 and 6.2).

A table of two questions before the body is read: is it a callback address, does its token belong to it. The path alone
answers both, so a stranger costs no look-up and no disk.
"""

import secrets
from collections.abc import Mapping

import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

from posd.core.callbacks import Channel
from posd.core.uuids import canonical_uuid
from posd.crashpoints import crash_point
from posd.services.callback_urls import CallbackUrls
from posd.services.inbox import Inbox
from posd.web import bodies
from posd.web.noise import Noise

#: A terminal sends an event in one piece; a body that trickles is cut. Seconds.
BODY_SECONDS = 10.0
#: When the disk or the queue refuses: the terminal's own backoff is longer (spec 6.2). Seconds.
RETRY_AFTER = (b"retry-after", b"2")
PREFIX = "/webhooks/"

log = structlog.get_logger("posd.webhooks")


class WebhookApp:
    """ASGI app of the webhook listener."""

    def __init__(self, inbox: Inbox, callback_urls: CallbackUrls, noise: Noise, max_body_bytes: int) -> None:
        self._inbox = inbox
        self._callback_urls = callback_urls
        self._noise = noise
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request; a fault of posd's own answers 500, which the terminal retries."""
        if scope["type"] != "http":
            return
        peer = scope["client"][0] if scope["client"] else "unknown"
        try:
            await self._handle(scope["method"], scope["path"], dict(scope["headers"]), peer, receive, send)
        except Exception:
            log.exception("posd.internal_error", error_id=secrets.token_hex(8), peer=peer)
            await bodies.answer_early(receive, send, 500, headers=(RETRY_AFTER,))

    async def _handle(
        self,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        peer: str,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        if not path.startswith(PREFIX):
            self._noise.note("unknown_path", peer)
            await bodies.answer_early(receive, send, 404)
            return
        identity = self._authentic(path)
        if identity is None:
            self._noise.note("wrong_token", peer)
            await bodies.answer_early(receive, send, 403)
            return
        if method != "POST":
            await bodies.answer_early(receive, send, 405, headers=((b"allow", b"POST"),))
            return
        try:
            body = await bodies.read(receive, headers, self._max_body_bytes, BODY_SECONDS)
        except bodies.Gone:
            await self._inbox.broke_off(identity)
            return
        except bodies.TooSlow:
            self._noise.note("slow_body", peer)
            await self._inbox.broke_off(identity)
            await bodies.answer_early(receive, send, 408)
            return
        except bodies.TooLarge:
            status = await self._inbox.too_large(identity, self._max_body_bytes, peer)
            await bodies.answer_early(receive, send, status, headers=_retry(status))
            return
        status = await self._inbox.receive(identity, body, peer)
        await bodies.answer(send, status, headers=_retry(status))
        crash_point("event.answered")

    def _authentic(self, path: str) -> str | None:
        """Return the id of an authentic callback address: /webhooks/CHANNEL/ID/TOKEN."""
        parts = path.removeprefix(PREFIX).split("/")
        if len(parts) != 3 or parts[0] != Channel.TRANSACTION:
            return None
        identity = canonical_uuid(parts[1])
        if identity is None or not self._callback_urls.authentic(Channel.TRANSACTION, identity, parts[2]):
            return None
        return identity


def _retry(status: int) -> tuple[tuple[bytes, bytes], ...]:
    return (RETRY_AFTER,) if status == 503 else ()
