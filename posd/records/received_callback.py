"""A callback as received."""

from datetime import datetime

import msgspec
import structlog

from posd.base.ids import Channel
from posd.records.replies import CallbackResult
from posd.terminals.auth.webhooks import Headers, names

log = structlog.get_logger("posd.webhooks")


class ReceivedCallback(msgspec.Struct, frozen=True):
    """A body at a callback address with a valid token: its sender, time and headers (names in lower case)."""

    body: bytes
    peer: str
    at: datetime
    headers: Headers = ()

    def log_headers(self, terminal: str, channel: Channel) -> None:
        """Log the names of the headers: a person looks for a signature."""
        log.info("webhook.headers", terminal=terminal, kind=channel, detail=names(self.headers))


class UnreadableCallback(msgspec.Struct, frozen=True):
    """A callback with a valid token that could not be read: the reply, the reason, and the sender.

    `limit_bytes`: of its body, if that was too large. `detail`: the words of the HTTP parser.
    """

    result: CallbackResult
    reason: str
    peer: str
    limit_bytes: int | None = None
    detail: str = ""

    def log(self, **subject: str) -> None:
        """Log it."""
        if self.limit_bytes is not None:
            log.warning("webhook.too_large", **subject, limit_bytes=self.limit_bytes, peer=self.peer)
        else:
            log.warning("webhook.unreadable", **subject, reason=self.reason, detail=self.detail, peer=self.peer)
