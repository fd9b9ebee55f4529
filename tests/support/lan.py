"""A webhook listener in the test's process, with inbox and database, for tests of slow limits and of leaked tasks."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from posd.api.webhooks import WebhookApp, transactions
from posd.base import ids
from posd.base.clocks import monotonic, wall
from posd.base.ids import Channel
from posd.config import load
from posd.daemon import sockets
from posd.httpd.admission import AdmissionGate, ListenerPolicy, RejectedTraffic
from posd.httpd.server import HttpListener
from posd.payments.attentions import ApprovalChecks
from posd.payments.inbox import Inbox
from posd.records.callback_urls import CallbackUrls
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.tls import issue
from posd.tls.files import files_in, load_pair
from tests.support.daemon import toml
from tests.support.streams import Reply
from tests.support.webhooks import parse

#: Every time-out of the listener under test, in seconds.
SHORT = 0.25
#: Limit of a wait in seconds, shorter than the daemon's real time-outs.
PATIENCE = 30.0
KEY = bytes(32)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Lan:
    """A listener in this process, with inbox and database."""

    listener: HttpListener
    noise: RejectedTraffic
    ca: Path

    @property
    def port(self) -> int:
        return self.listener.port

    async def connect(self, source: str = "127.0.0.1") -> Streams:
        """Open a TLS connection from an address of loopback."""
        context = ssl.create_default_context(cafile=str(self.ca))
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="127.0.0.1", local_addr=(source, 0)
        )

    async def plain(self) -> Streams:
        """Open a TCP connection without TLS."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def talk(self, data: bytes) -> bytes:
        """Send bytes. Return all bytes until the listener closes."""
        reader, writer = await self.connect()
        writer.write(data)
        answer = await until_closed(reader)
        writer.close()
        return answer

    async def empty(self, tasks: set[asyncio.Task[Any]] | None = None) -> None:
        """Wait until no connection is left, and no task except these tasks."""
        async with asyncio.timeout(PATIENCE):
            while self.listener.connections or (tasks is not None and asyncio.all_tasks() - tasks):  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # the listener has no event for the end of a connection


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes until the peer closes or resets. Raise TimeoutError if the peer does neither in time."""
    received = bytearray()
    with suppress(ConnectionError, ssl.SSLError):
        async with asyncio.timeout(PATIENCE):
            while data := await reader.read(65536):
                received += data
    return bytes(received)


@asynccontextmanager
async def listening(home: Path, gate: AdmissionGate | None = None, **limits: Any) -> AsyncIterator[Lan]:
    """Run a listener for the block. Check at the end that the log has no internal errors."""
    issue.init(home / "tls", names=["localhost"], addresses=["127.0.0.1"])
    files = files_in(home / "tls")
    async with AsyncExitStack() as stack:
        store = await Store.open(home / "posd.db", home / "posd.lock")
        stack.push_async_callback(store.close)
        (home / "config.toml").write_text(toml(home, '[[terminals]]\nserial = "SN-TEST"\n'))
        fleet = Fleet(load(home / "config.toml").terminals)
        stack.push_async_callback(fleet.close)
        sock = sockets.tcp_socket("127.0.0.1", 0, "webhooks.listen")
        urls = CallbackUrls((KEY,), "127.0.0.1", sock.getsockname()[1])
        inbox = Inbox(ServiceParts(store, fleet, lambda: datetime.now(UTC)), "", ApprovalChecks("", lambda: True))
        noise = RejectedTraffic()
        listener = HttpListener(
            WebhookApp((transactions(inbox, 100_000),), urls, noise),
            sock,
            ListenerPolicy(
                name="test", **{"keep_alive_seconds": SHORT, "max_connections": 50, "in_turn": True} | limits
            ),
            noise,
            wall,
            gate or AdmissionGate(lambda: ["127.0.0.1"], clock=monotonic),
        )
        listener.use_tls(load_pair(files.certificate, files.private_key, None).context)
        listener.start()
        stack.push_async_callback(listener.close, SHORT)
        with capture_logs() as lines:
            yield Lan(listener, noise, home / "tls" / "ca.crt")
        assert not [line for line in lines if line["event"] == "posd.internal_error"], lines


def path_of(identity: str) -> str:
    """Return the callback path of an id."""
    return ids.path(Channel.TRANSACTION, identity, ids.token(KEY, Channel.TRANSACTION, identity))


def head(path: str, *fields: str, method: str = "POST") -> bytes:
    """Return a request line and headers."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: posd", *fields, "", ""]).encode()


def request(identity: str, content: bytes, *fields: str) -> bytes:
    """Return a complete callback request."""
    return head(path_of(identity), f"content-length: {len(content)}", *fields) + content


async def answers(reader: asyncio.StreamReader, count: int) -> list[Reply]:
    """Read this many responses without bodies."""
    async with asyncio.timeout(PATIENCE):
        return parse(b"".join([await reader.readuntil(b"\r\n\r\n") for _ in range(count)]))
