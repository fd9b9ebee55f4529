"""Common code of the processes of relay and collector: run until a signal, retry after failures, serve metrics.

The metrics are served on a configured address, for Prometheus.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import structlog

from posd import __version__
from posd.base.exposition import CONTENT_TYPE, Samples, process_values, refusal
from posd.config import ListenAddress
from posd.logs import output

#: Exit codes of both processes.
EXIT_DONE = 0
EXIT_CONFIGURATION = 2
#: Seconds before the work is cancelled again, because a cancellation can be lost. The clients of NATS and PostgreSQL
#: use `asyncio.wait_for`, which in Python 3.11 ignores a cancellation if a result arrives in the same turn of the event
#: loop.
AGAIN_SECONDS = 2.0


def run(work: Coroutine[Any, Any, int], level: str) -> int:
    """Run the work, with its log on stdout. Return its exit code. SIGTERM and SIGINT cancel the work."""
    output.configure(level)
    try:
        return asyncio.run(_until_signal(work))
    finally:
        output.floods.tell()
        output.flush()


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

    def end() -> None:
        if task.cancel():  # the work has not ended
            loop.call_later(AGAIN_SECONDS, end)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:  # a second cancellation, while the work is closing
        return 0


class Pauses:
    """Pauses after failed attempts, in seconds. The pause doubles with each failure, and is reset after a long attempt.

    The result of `draw` is a random part of the pause, at least half, so that ten thousand lanes do not reconnect at
    once.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first = self._next = first
        self._most = most
        self._said = ""
        self._began = time.monotonic()

    def begin(self) -> None:
        """Record the start of an attempt."""
        self._began = time.monotonic()

    def draw(self) -> float:
        """Return the pause after a failed attempt."""
        if time.monotonic() - self._began > self._most:
            self._next = self._first
        wait = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - for spreading, not for security
        self._next = min(2 * self._next, self._most)
        return wait

    def is_news(self, words: str) -> bool:
        """Return whether this failure differs from the last one."""
        news, self._said = words != self._said, words
        return news


#: Function that returns the text of all metrics.
Text = Callable[[], Coroutine[Any, Any, str]]

log = structlog.get_logger("posd.relay")

#: Maximum number of open connections: Prometheus has one.
MOST_CONNECTIONS = 8
#: Maximum duration of a connection, in seconds, and maximum size of a request, in bytes. A request has no body.
SECONDS = 10.0
MOST_BYTES = 8 * 1024

_PLAIN = "text/plain; charset=utf-8"


def samples(prefix: str, counters: Any) -> Iterator[Samples]:
    """Yield the metrics of a process: its version, each field of the dataclass `counters`, its memory and so on."""
    yield f"{prefix}_build_info", {__version__: 1}
    for each in fields(counters):
        if each.name != "started":
            yield f"{prefix}_{each.name}", getattr(counters, each.name)
    yield from process_values(prefix, counters.started, output.writer.dropped)


@asynccontextmanager
async def served(listen: ListenAddress | None, text: Text) -> AsyncIterator[None]:
    """Serve the metrics at `listen` during the block. None: do not serve them.

    If the address cannot be used, log that and continue.
    """
    server = None
    if listen is not None:
        serve = partial(_serve, text, asyncio.Semaphore(MOST_CONNECTIONS))
        try:
            server = await asyncio.start_server(serve, listen.host, listen.port, limit=MOST_BYTES)
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else str(error)
            log.warning("metrics.not_served", listen=str(listen), error=words)
    try:
        yield
    finally:
        if server is not None:
            server.close()


async def _serve(
    text: Text, places: asyncio.Semaphore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the one request of a connection."""
    try:
        if not places.locked():
            async with places, asyncio.timeout(SECONDS):
                writer.write(await _answer(text, await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def _answer(text: Text, head: bytes) -> bytes:
    """Return the response to a request. `head`: request line and headers."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, _, rest = first.partition(" ")
    refused = refusal(method, rest.partition(" ")[0].partition("?")[0], headers.get("host"))
    if refused is not None:
        status, words, more = refused
        return _response(status, _PLAIN, f"{words}\n", more)
    return _response(200, CONTENT_TYPE, await text(), ())


def _response(status: int, content_type: str, text: str, more: tuple[tuple[bytes, bytes], ...]) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} \r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    lines = b"".join(b"%s: %s\r\n" % line for line in more)
    return head.encode() + lines + b"connection: close\r\n\r\n" + body
