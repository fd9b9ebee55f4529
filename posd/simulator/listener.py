"""The HTTP(S) listener: hypercorn's protocol under an accept loop of our own, which can stop at once.

hypercorn's own `serve` has no way to learn the port that it was given, and holds its stop for as long as a client
keeps an idle TLS connection open.
"""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from starlette.applications import Starlette

from posd.simulator.settings import SettingsError

#: Seconds that connections have to end after their transports were aborted; they need milliseconds.
STOP_SECONDS = 0.5
#: Seconds after which an idle kept connection is closed; hypercorn keeps a connection that the client closed as long.
IDLE_SECONDS = 5
#: Seconds in which a TLS handshake must be done; a slow device needs two.
HANDSHAKE_SECONDS = 15
#: What the state of a request names the function by that closes its connection without an answer.
HANG_UP = "hang_up"
#: Connections waiting to be accepted.
BACKLOG = 128


class Listener:
    """Serves one app on one address."""

    def __init__(self, app: Starlette, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]
        self._host = host
        self._port = port
        self._tls = tls
        self._config = Config()
        self._config.accesslog = None
        self._config.errorlog = logging.getLogger("posd.simulator.http")
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_SECONDS
        self._config.keep_alive_max_requests = 2**31
        self._context = WorkerContext(None)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> int:
        """Listen; return the port. Raises SettingsError where the address cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._connected,
                self._host,
                self._port,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"cannot listen on {self._host}:{self._port}: {error}; "
                "choose an address of this machine and a free port with --listen (port 0 takes a free one)"
            ) from error
        listening: socket.socket = self._server.sockets[0]
        port: int = listening.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the listener and every connection, idle or not."""
        if self._server is None:
            return
        self._server.close()
        await self._context.terminated.set()
        for writer in self._connections.values():
            _hang_up(writer)
        if self._connections:
            _, late = await asyncio.wait(list(self._connections), timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._connections[task] = writer
        try:
            loop = asyncio.get_running_loop()
            state: LifespanState = {HANG_UP: partial(_hang_up, writer)}
            await TCPServer(self._app, loop, self._config, self._context, state, reader, writer)
        except asyncio.CancelledError:
            pass  # by `stop`; Python 3.11 would print a traceback for a connection that ends as cancelled
        finally:
            del self._connections[task]


def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, whatever was still to be sent."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where its connection is gone
        writer.transport.abort()


def server_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """Make the TLS context of the listener: TLS 1.2 or newer, HTTP/1.1. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot use certificate {certificate} with key {private_key}: {error}") from error
    return context


def client_context(trust: Path | None) -> ssl.SSLContext:
    """Make the TLS context of the deliveries: the given CA alone, else those of the system. Raises SettingsError."""
    try:
        return ssl.create_default_context(cafile=None if trust is None else str(trust))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cannot read CA certificates from {trust}: {error}") from error
