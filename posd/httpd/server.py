"""The listener: it accepts connections, admits them, and ends them at a stop. Hypercorn has no such limits.

The limits: the number of connections (of all, and on the LAN by `admission.Gate`), a short TLS handshake, and a stop
that no idle client can delay. The protocol of a connection is in `posd.httpd.connection`.
"""

import asyncio
import ctypes
import socket
import ssl
import struct
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hypercorn.typing import ASGIFramework

from posd.httpd.admission import AdmissionGate, ConnectionSlot, PeerQuotas, RejectedTraffic, SocketPeer
from posd.httpd.connection import BoundedWriter, HttpConnection, ListenerContext, untaken
from posd.httpd.messages import RefusedRequest

#: Longest TLS handshake, in seconds. A terminal's takes well under a second; a half one must not hold a place longer.
TLS_HANDSHAKE_SECONDS = 10.0
#: Longest shutdown of a TLS connection, in seconds: less than the stop may take.
TLS_SHUTDOWN_SECONDS = 0.3
#: Seconds until the next accept after file descriptors ran out.
ACCEPT_RETRY_SECONDS = 0.1
#: Work of one turn of accepting: 1 for a refused connection, more for a response or an admission. Other tasks run after
#: each turn, at any load from the LAN. On the LAN a pause follows, in seconds. Tills wait in one line for accept, so a
#: till with hundreds of connections must not make it long.
LAN_TURN_WORK = 32
LOCAL_TURN_WORK = 512
ADMISSION_WORK = 8
ANSWER_WORK = 4
LAN_PAUSE_SECONDS = 0.002
#: Bytes read before the app asks for them. asyncio stores up to twice as much, of terminals a TLS record too. With less
#: of a terminal, a refused body of megabytes is not read in time, and the terminal gets a reset instead of the
#: response.
TILL_AHEAD_BYTES = 1024 - 1
TERMINAL_AHEAD_BYTES = 4 * 1024
#: Bytes of one receive, from a till and from a terminal. asyncio's default is 256 KiB, for each of hundreds of
#: connections.
TILL_READ_BYTES = 2 * 1024
TERMINAL_READ_BYTES = 4 * 1024
#: Bytes of undeciphered TLS data before reading pauses: more than a record. asyncio's default is 256 KiB, deciphered at
#: once.
TLS_AHEAD_BYTES = 32 * 1024
#: Bytes written beyond one piece of a response and not yet read. Our responses to terminals have a few hundred. The
#: kernel buffers more before that (net.core.wmem_default, 208 KiB).
WRITE_AHEAD_BYTES = 4 * 1024
#: Buffer of each TLS connection, in bytes: a record. asyncio's default is 256 KiB, for each of hundreds.
TLS_BUFFER_BYTES = 16 * 1024
#: Seconds that the last accepted connections have to send a request before a stop closes idle ones. A client that just
#: connected is about to send.
LAST_WORDS_SECONDS = 0.05
#: Connections that wait for accept on the LAN: room for a burst of terminals after an outage.
LAN_BACKLOG = 1024
#: Connections that wait for accept on a Unix socket: a thousand tills at once. A non-blocking connect fails at once if
#: the queue is full. The kernel may reduce it (somaxconn).
LOCAL_BACKLOG = 4096
#: Ended connections after which memory is returned to the system, and the delay in seconds. That takes a few
#: milliseconds, too much for each payment. Fewer connections leave a few megabytes, which the next ones use.
TRIM_CONNECTIONS = 64
TRIM_SECONDS = 2.0

#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")
#: From glibc's malloc.h.
_M_ARENA_MAX = -8

sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def _no_refusal(_peer: str, _error: BaseException) -> bool:
    """Return False: without TLS no client refuses our certificate."""
    return False


async def _its_status(refused: RefusedRequest, _peer: str) -> int:
    """Return the status that the parser chose."""
    return refused.status


@dataclass(eq=False)
class HttpListener:
    """One listening socket and its connections.

    `gate` admits connections on the LAN; the request's state `place` is the place, None without a gate. `senders`
    admits them on a Unix socket; the state `sender` is the peer, None on the LAN. `in_turn`: the app does not need to
    learn of a disconnect before its response. `refused` is called with the error that broke a connection, and returns
    whether the client refused our certificate. `unreadable` is called with unparsable input and the peer, and returns
    the status of the response.
    """

    app: ASGIFramework
    sock: socket.socket
    _: KW_ONLY
    #: Name in logs and metrics.
    name: str
    noise: RejectedTraffic
    #: Wall clock, for the Date of responses.
    now: Callable[[], datetime]
    keep_alive_seconds: float
    max_connections: int
    in_turn: bool = False
    gate: AdmissionGate | None = None
    senders: PeerQuotas | None = None
    tls: ssl.SSLContext | None = None
    refused: Callable[[str, BaseException], bool] = _no_refusal
    unreadable: Callable[[RefusedRequest, str], Awaitable[int]] = _its_status
    state: dict[str, Any] = field(default_factory=dict)
    #: Error of the newest accept, None if it succeeded.
    accept_error: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._context = ListenerContext(self.app, self.keep_alive_seconds, self.now, in_turn=self.in_turn)
        self._connections: dict[asyncio.Task[None], asyncio.Transport | None] = {}
        self._ended = 0  # connections since memory was returned
        self._trimming: asyncio.TimerHandle | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._file: tuple[int, int] | None = None

    @property
    def port(self) -> int:
        """TCP port of the socket."""
        port: int = self.sock.getsockname()[1]
        return port

    @property
    def listening(self) -> bool:
        """Whether the listener accepts connections."""
        return self._accepting is not None and not self._accepting.done()

    @property
    def accepting(self) -> bool:
        """Whether a new client is served: the listener accepts, and the newest accept did not fail."""
        return self.listening and self.accept_error is None

    @property
    def lost_path(self) -> str | None:
        """Path of its Unix socket if that path does not lead to this socket; else None."""
        path = self.sock.getsockname()
        lost = isinstance(path, str) and (self._file is None or _file_at(path) != self._file)
        return path if lost else None

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Set the TLS context of new connections; open ones keep theirs."""
        self.tls = context

    def start(self) -> None:
        """Listen and accept."""
        self.sock.setblocking(False)
        self.sock.listen(LOCAL_BACKLOG if self.gate is None else LAN_BACKLOG)
        self._file = _file_at(self.sock.getsockname())
        self._accepting = asyncio.create_task(self._accept(), name=f"accept-{self.name}")

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, close idle connections, let open requests end, then abort the rest."""
        if self._accepting is not None and not self._accepting.done():
            # Remove the reader first, then yield: a connection accepted at this moment would be lost with the cancelled
            # future. Remove it again with the cancellation: the task may have begun to wait again.
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.sock)
            await asyncio.sleep(0)
            loop.remove_reader(self.sock)
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        self.sock.close()
        if self.gate is None and self._connections:
            await asyncio.sleep(LAST_WORDS_SECONDS)
        await self._context.terminate_idle()
        if self._connections:
            await asyncio.wait(self._connections, timeout=grace_seconds)
        for task, transport in list(self._connections.items()):
            if transport is not None:
                _cut(transport)
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        if self.senders is not None:
            self.senders.turned_away.close()
        if self._trimming is not None:
            self._trimming.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        pause, most = (0, LOCAL_TURN_WORK) if self.gate is None else (LAN_PAUSE_SECONDS, LAN_TURN_WORK)
        while True:
            try:
                work = self._take(*await loop.sock_accept(self.sock))
                with suppress(BlockingIOError):  # no more connections wait
                    while work < most:
                        work += self._take(*self.sock.accept())
                    await asyncio.sleep(pause)
            except OSError as error:
                self.noise.note("accept_failed", self.name, error.strerror)
                self.accept_error = error.strerror or type(error).__name__
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                self.accept_error = None  # the next accept follows in the same step

    def _take(self, connection: socket.socket, address: Any) -> int:
        """Serve or refuse a connection; return the amount of work."""
        peer = address[0] if isinstance(address, tuple) else "local"
        full = len(self._connections) >= self.max_connections
        sender, place = _sender_of(connection), None
        if self.senders is not None and sender is not None:
            if not self.senders.enter(connection, sender, full=full):
                return ANSWER_WORK
        elif full or (self.gate is not None and (place := self.gate.admit(peer)) is None):
            connection.close()
            self.noise.note("too_many_connections", peer)
            return 1
        task = asyncio.get_running_loop().create_task(self._serve(connection, peer, place, sender))
        self._connections[task] = None
        task.add_done_callback(partial(self._forget, place, sender))
        if place is not None:
            place.on_cut = partial(self._crowd_out, task, peer)
        return ADMISSION_WORK

    def _forget(self, place: ConnectionSlot | None, sender: SocketPeer | None, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if self.senders is not None and sender is not None:
            self.senders.leave(sender)
        if place is not None:
            place.leave()
        if place is not None or len(self._connections) >= TRIM_CONNECTIONS:  # a few tills leave little memory behind
            self._ended += 1
            if self._ended >= TRIM_CONNECTIONS and self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        """Return freed memory to the system: hundreds of TLS connections leave megabytes."""
        self._trimming, self._ended = None, 0
        give_memory_back()

    def _crowd_out(self, task: asyncio.Task[None], peer: str) -> None:
        """Abort an unproven connection at once."""
        self.noise.note("unproven_cut", peer)
        transport = self._connections.get(task)
        if transport is not None:
            _cut(transport)
        task.cancel()

    async def _serve(
        self, connection: socket.socket, peer: str, place: ConnectionSlot | None, sender: SocketPeer | None
    ) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(TERMINAL_AHEAD_BYTES if self.tls else TILL_AHEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS if self.tls else None,
                ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS if self.tls else None,
            )
        except (OSError, EOFError) as error:  # ssl.SSLError and time-outs are OSErrors
            if not self.refused(peer, error):
                self.noise.note("tls_handshake_failed", peer, getattr(error, "reason", None) or type(error).__name__)
            connection.close()
            # asyncio keeps the error, which would keep the connection until the next garbage collection
            error.__traceback__ = None
            return
        transport.max_size = TERMINAL_READ_BYTES if self.tls else TILL_READ_BYTES  # type: ignore[attr-defined]
        transport.set_write_buffer_limits(WRITE_AHEAD_BYTES)
        if self.tls is not None:
            transport.set_read_buffer_limits(TLS_AHEAD_BYTES)  # type: ignore[attr-defined]
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs as a task
        self._connections[task] = transport
        writer = BoundedWriter(transport, protocol, reader, loop)
        state = self.state | {
            "uid": sender.uid if sender is not None else None,
            "sender": sender,
            "place": place,
            "untaken": partial(untaken, transport),
        }
        served = HttpConnection(self._context, state, reader, writer, partial(self._answer_unreadable, peer))
        try:
            await served.serve()
        except asyncio.CancelledError as error:
            error.__traceback__ = None  # breaks the reference cycle of error and task group, which keeps the connection
        except (OSError, asyncio.IncompleteReadError, ExceptionGroup) as error:
            self.noise.note("connection_broke", peer, type(error).__name__)
        finally:
            if served.untaken:
                self.noise.note("untaken_answer", peer)
            if (broken_by := reader.exception()) is not None:  # under TLS 1.3 after our side's handshake too
                self.refused(peer, broken_by)
            _cut(transport)

    async def _answer_unreadable(self, peer: str, refused: RefusedRequest) -> int:
        self.noise.note(refused.kind, peer, refused.detail or None)
        return await self.unreadable(refused, peer)


def _sender_of(connection: socket.socket) -> SocketPeer | None:
    """Return the process and user at the other end, or None on the LAN."""
    if connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
    return SocketPeer(pid, uid)


def _file_at(address: object) -> tuple[int, int] | None:
    """Return device and inode of a Unix socket's path, or None."""
    with suppress(OSError):
        if isinstance(address, str):
            found = Path(address).stat()
            return found.st_dev, found.st_ino
    return None


def _cut(transport: asyncio.Transport) -> None:
    """Abort a connection, open or not."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport without a connection raises it
        transport.abort()


def give_memory_back() -> None:
    """Return memory that the C library keeps after frees to the system. Takes a few ms.

    glibc does so on request (malloc_trim(3)). Other C libraries do so themselves, or have no such call.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def use_one_heap() -> None:
    """Set the C library to one heap for all threads; called before there is a second thread.

    glibc makes a heap for each thread, and each retains its free memory (M_ARENA_MAX in mallopt(3)). posd's threads
    mostly wait for the disk, not for each other.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
