"""A callback as it came, and what the log is told of the first one of each terminal."""

from datetime import datetime

import msgspec
import structlog

from posd.base.ids import Channel
from posd.terminals.auth import webhooks
from posd.terminals.auth.webhooks import Headers

log = structlog.get_logger("posd.webhooks")


class Came(msgspec.Struct, frozen=True):
    """A body at a callback address whose token is right: from where, when, and its headers (names in lower case)."""

    body: bytes
    peer: str
    at: datetime
    headers: Headers = ()


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
