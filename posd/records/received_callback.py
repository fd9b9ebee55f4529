"""A callback as it came, and what the log is told of the first one of each terminal."""

from datetime import datetime

import msgspec
import structlog

from posd.base.ids import Channel
from posd.records.replies import CallbackResult
from posd.terminals.auth import webhooks
from posd.terminals.auth.webhooks import Headers

log = structlog.get_logger("posd.webhooks")


class ReceivedCallback(msgspec.Struct, frozen=True):
    """A body at a callback address whose token is right: from where, when, and its headers (names in lower case)."""

    body: bytes
    peer: str
    at: datetime
    headers: Headers = ()


class UnreadableCallback(msgspec.Struct, frozen=True):
    """A callback whose token is right and that could not be read: the answer, why, and from where.

    `limit_bytes`: of its body, where that was too large. `detail`: the words of the HTTP parser.
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


class FirstHeaders:
    """Logs the names of the headers that the first callback of each terminal has: a person looks for a signature."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._told: set[str] = set()

    def tell(self, terminal: str | None, headers: Headers) -> None:
        """Log it, where it is the first of that terminal since the start of the process."""
        if terminal and terminal not in self._told:
            self._told.add(terminal)
            log.info("webhook.headers", terminal=terminal, kind=self._channel, detail=webhooks.names(headers))
