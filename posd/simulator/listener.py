"""The HTTP(S) listener: hypercorn's protocol under an accept loop that can stop at once.

hypercorn's own `serve` does not report its port, and an idle TLS connection delays its stop.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from starlette.types import ASGIApp

from posd.simulator.journal import SettingsError

#: Seconds that aborted connections have to end; they need milliseconds.
STOP_SECONDS = 0.5
#: Seconds after which an idle connection is closed. hypercorn keeps a connection that the client closed as long.
IDLE_SECONDS = 5
#: Most seconds of a TLS handshake; a slow device needs two.
HANDSHAKE_SECONDS = 15
#: Key in the state of a request: the function that closes its connection without a response.
HANG_UP = "hang_up"
#: Connections waiting to be accepted.
BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """Bind an address (port 0: a free port) without listening: calls are refused, and no other program gets it.

    Raise SettingsError if the address is not available.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Its connections inherit it. asyncio leaves it out here, and each response would wait 40 ms for a delayed ACK.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise _not_had(f"{host}:{port}", error) from error
    return bound


class _Config(Config):
    """Configuration with a date header from a clock that may be wrong."""

    def __init__(self, clock_offset: float) -> None:
        super().__init__()
        self._clock_offset = clock_offset
        self.include_date_header = False

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        date = formatdate(time.time() + self._clock_offset, usegmt=True)
        return [(b"date", date.encode()), *super().response_headers(protocol)]


class Listener:
    """Server of one app on a bound socket, which it closes at its stop."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None, *, clock_offset: float = 0.0) -> None:
        """`clock_offset`: seconds that the clock of the date header is ahead."""
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]
        self._tls = tls
        self._config = _Config(clock_offset)
        self._config.accesslog = None
        self._config.errorlog = logging.getLogger("posd.simulator.http")
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_SECONDS
        self._config.keep_alive_max_requests = 2**31
        self._context = WorkerContext(None)
        self._bound: socket.socket | None = None
        #: Open connections, each with the function that closes it.
        self._connections: dict[asyncio.Task[None], Callable[[], None]] = {}

    def start(self, bound: socket.socket) -> None:
        """Listen. Raise SettingsError if another program listens there; the socket stays bound."""
        try:
            bound.listen(BACKLOG)
        except OSError as error:
            raise _not_had("{}:{}".format(*bound.getsockname()[:2]), error) from error
        self._bound = bound
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def close(self) -> None:
        """Close the socket: no further connection is accepted."""
        if self._bound is not None:
            asyncio.get_running_loop().remove_reader(self._bound)
            self._bound.close()
            self._bound = None

    async def stop(self) -> None:
        """Close the socket and every connection, idle or not."""
        self.close()
        await self._context.terminated.set()
        for hang_up in self._connections.values():
            hang_up()
        if self._connections:
            _, late = await asyncio.wait(list(self._connections), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _accept(self, bound: socket.socket) -> None:
        # Not asyncio's server: Python 3.11 loses a connection that it accepted right before its `close`.
        with suppress(OSError):  # the client is gone, or no file descriptor is free
            connection, _ = bound.accept()
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._connections[task] = partial(_shut, connection)
            task.add_done_callback(self._connections.pop)

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout = HANDSHAKE_SECONDS if self._tls else None
        try:
            connection.setblocking(False)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except (OSError, EOFError):  # ssl.SSLError and time-outs are OSErrors
            connection.close()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._connections[task] = partial(_hang_up, transport)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        state: LifespanState = {HANG_UP: partial(_hang_up, transport)}
        try:
            await TCPServer(self._app, loop, self._config, self._context, state, reader, writer)
        finally:
            _hang_up(transport)


def _shut(connection: socket.socket) -> None:
    """End a connection during its TLS handshake: its transport, known only to asyncio, reads the end."""
    with suppress(OSError):  # the peer is gone
        connection.shutdown(socket.SHUT_RDWR)


def _hang_up(transport: asyncio.Transport) -> None:
    """Abort a connection; unsent data is lost."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport without a connection raises it
        transport.abort()


def _not_had(address: str, error: Exception) -> SettingsError:
    return SettingsError(
        f"cannot listen on {address}: {error}; "
        "choose an address of this machine and a free port, by --listen or --control (port 0 takes a free one)"
    )


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Return the TLS context of the listener: TLS 1.2 or newer, HTTP/1.1. Raise SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot use certificate {certificate} with key {private_key}: {error}") from error
    return context


def client_context(trust: Path | None) -> ssl.SSLContext:
    """Return the TLS context of the deliveries: the given CA alone, else those of the system. Raise SettingsError."""
    try:
        return ssl.create_default_context(cafile=None if trust is None else str(trust))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot read CA certificates from {trust}: {error}") from error
