"""Metrics of the relay, or of the collector, for Prometheus: on this machine's loopback address."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from posd.base.exposition import CONTENT_TYPE, refusal
from posd.config import ListenAddress

#: Returns the text of all metrics.
Text = Callable[[], Coroutine[Any, Any, str]]

log = structlog.get_logger("posd.relay")

#: Most connections at a time: Prometheus has one.
MOST_CONNECTIONS = 8
#: Most seconds of a connection, and most bytes of a request: it has no body.
SECONDS = 10.0
MOST_BYTES = 8 * 1024

_PLAIN = "text/plain; charset=utf-8"


@asynccontextmanager
async def served(listen: ListenAddress | None, text: Text) -> AsyncIterator[None]:
    """Serve the metrics during the block, if configured.

    A failure is logged, and the work continues.
    """
    server = None
    if listen is not None:
        try:
            server = await asyncio.start_server(_Door(text).serve, listen.host, listen.port, limit=MOST_BYTES)
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else str(error)
            log.warning("metrics.not_served", listen=str(listen), error=words)
    try:
        yield
    finally:
        if server is not None:
            server.close()


class _Door:
    """Server of one request for each connection."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST_CONNECTIONS:
                async with asyncio.timeout(SECONDS):
                    writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        """Return the response to a request, from all of it before its body."""
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, _, rest = first.partition(" ")
        refused = refusal(method, rest.partition(" ")[0].partition("?")[0], headers.get("host"))
        if refused is not None:
            status, words, more = refused
            return _response(status, _PLAIN, f"{words}\n", more)
        return _response(200, CONTENT_TYPE, await self._text(), ())


def _response(status: int, content_type: str, text: str, more: tuple[tuple[bytes, bytes], ...]) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} \r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    lines = b"".join(b"%s: %s\r\n" % line for line in more)
    return head.encode() + lines + b"connection: close\r\n\r\n" + body
