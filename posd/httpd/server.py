"""Listener that accepts connections, admits them within limits, and ends them at a stop.

Hypercorn lacks these limits: the number of connections (in total, and on the LAN by `AdmissionGate`), a short TLS
handshake, and a stop that no idle client can delay. The protocol of a connection is in `posd.httpd.connection`.
"""

import asyncio
import ctypes
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hypercorn.typing import ASGIFramework

from posd.httpd.admission import AdmissionGate, ConnectionSlot, ListenerPolicy, PeerQuotas, RejectedTraffic, SocketPeer
from posd.httpd.connection import ListenerContext, cut, serve

#: Seconds until the next accept after file descriptors ran out.
ACCEPT_RETRY_SECONDS = 0.1
#: Amount of work in one step of the accept loop, on the LAN and on a Unix socket. Other tasks run after each step,
#: at any load. All tills share one accept queue, and a till with hundreds of connections must not fill it. So a
#: step on a Unix socket is larger.
LAN_TURN_WORK = 32
LOCAL_TURN_WORK = 512
#: Work of an admission, and of a refusal with a response. A refusal without a response counts as 1.
ADMISSION_WORK = 8
ANSWER_WORK = 4
#: Pause after a step on the LAN, in seconds.
LAN_PAUSE_SECONDS = 0.002
#: A stop waits this many seconds before it closes idle connections, because a client that has just connected is about
#: to send.
LAST_WORDS_SECONDS = 0.05
#: Length of the accept queue on the LAN: enough for a burst of terminals after an outage.
LAN_BACKLOG = 1024
#: Length of the accept queue on a Unix socket: enough for a thousand tills at once. A non-blocking connect fails at
#: once if the queue is full. The kernel may reduce it (somaxconn).
LOCAL_BACKLOG = 4096
#: Number of ended connections after which posd returns memory to the system, and the delay in seconds. The call takes a
#: few milliseconds, which is too long for each payment. Fewer connections leave a few megabytes, which the next
#: connections use.
TRIM_CONNECTIONS = 64
TRIM_SECONDS = 2.0

#: struct ucred: process, user and group id (unix(7)).
_PEER_CREDENTIALS = struct.Struct("iII")
#: Number of the parameter M_ARENA_MAX in glibc's malloc.h.
_M_ARENA_MAX = -8


class HttpListener:
    """One listening socket and its connections.

    `admission`: an `AdmissionGate` admits connections on the LAN, and the state `place` of a request contains the
    place. `PeerQuotas` admit connections on a Unix socket, and the state `sender` contains the peer. `now`: wall clock
    for the Date header.
    """

    def __init__(
        self,
        app: ASGIFramework,
        sock: socket.socket,
        policy: ListenerPolicy,
        noise: RejectedTraffic,
        now: Callable[[], datetime],
        admission: AdmissionGate | PeerQuotas | None = None,
    ) -> None:
        self.policy = policy
        #: State that the connections share. A caller may set its hooks `refused` and `unreadable`.
        self.context = ListenerContext(app, policy, noise, now)
        self._sock = sock
        self._noise = noise
        self._gate = admission if isinstance(admission, AdmissionGate) else None
        self._senders = admission if isinstance(admission, PeerQuotas) else None
        #: Error of the newest accept, or None if it succeeded.
        self.accept_error: str | None = None
        self._connections = self.context.transports
        self._ended = 0  # number of ended connections since memory was returned
        self._trimming: asyncio.TimerHandle | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._file: tuple[int, int] | None = None

    @property
    def port(self) -> int:
        """TCP port of the socket."""
        port: int = self._sock.getsockname()[1]
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
        """Path of the Unix socket if another file or no file is at that path, else None."""
        path = self._sock.getsockname()
        lost = isinstance(path, str) and (self._file is None or _file_at(path) != self._file)
        return path if lost else None

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Set the TLS context of new connections. Open connections keep their context."""
        self.context.tls = context

    def start(self) -> None:
        """Listen and accept."""
        self._sock.setblocking(False)
        self._sock.listen(LOCAL_BACKLOG if self._gate is None else LAN_BACKLOG)
        self._file = _file_at(self._sock.getsockname())
        self._accepting = asyncio.create_task(self._accept(), name=f"accept-{self.policy.name}")

    async def close(self, grace_seconds: float) -> None:
        """Stop accepting, close idle connections, let open requests end, then abort the rest."""
        if self._accepting is not None and not self._accepting.done():
            # First remove the reader and let the task run once: otherwise a connection that was just accepted would be
            # lost with the cancelled future. The task may then wait with a new reader, so remove that one too.
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._sock)
            await asyncio.sleep(0)
            loop.remove_reader(self._sock)
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        self._sock.close()
        if self._gate is None and self._connections:
            await asyncio.sleep(LAST_WORDS_SECONDS)
        await self.context.terminate_idle()
        if self._connections:
            await asyncio.wait(self._connections, timeout=grace_seconds)
        for task, transport in list(self._connections.items()):
            if transport is not None:
                cut(transport)
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        if self._senders is not None:
            self._senders.close()
        if self._trimming is not None:
            self._trimming.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        pause, most = (0, LOCAL_TURN_WORK) if self._gate is None else (LAN_PAUSE_SECONDS, LAN_TURN_WORK)
        while True:
            try:
                work = self._take(*await loop.sock_accept(self._sock))
                with suppress(BlockingIOError):  # no more connections wait
                    while work < most:
                        work += self._take(*self._sock.accept())
                    await asyncio.sleep(pause)
            except OSError as error:
                self._noise.note("accept_failed", self.policy.name, error.strerror)
                self.accept_error = error.strerror or type(error).__name__
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                self.accept_error = None  # the next accept follows at once, and may set the error again

    def _take(self, connection: socket.socket, address: Any) -> int:
        """Serve or refuse a connection. Return the amount of work done."""
        peer = address[0] if isinstance(address, tuple) else "local"
        full = len(self._connections) >= self.policy.max_connections
        sender, place = _sender_of(connection), None
        if self._senders is not None and sender is not None:
            if not self._senders.enter(connection, sender, full=full):
                return ANSWER_WORK
        elif full or (self._gate is not None and (place := self._gate.admit(peer)) is None):
            connection.close()
            self._noise.note("too_many_connections", peer)
            return 1
        state = {"uid": sender.uid if sender is not None else None, "sender": sender, "place": place}
        task = asyncio.get_running_loop().create_task(serve(self.context, connection, peer, state))
        self._connections[task] = None
        task.add_done_callback(partial(self._forget, place, sender))
        if place is not None:
            place.on_cut = partial(self._crowd_out, task, peer)
        return ADMISSION_WORK

    def _forget(self, place: ConnectionSlot | None, sender: SocketPeer | None, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if self._senders is not None and sender is not None:
            self._senders.leave(sender)
        if place is not None:
            place.leave()
        if place is not None or len(self._connections) >= TRIM_CONNECTIONS:  # a few tills leave little memory behind
            self._ended += 1
            if self._ended >= TRIM_CONNECTIONS and self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        """Release freed memory to the system, because hundreds of TLS connections leave megabytes."""
        self._trimming, self._ended = None, 0
        give_memory_back()

    def _crowd_out(self, task: asyncio.Task[None], peer: str) -> None:
        """Abort an unproven connection that another connection replaces."""
        self._noise.note("unproven_cut", peer)
        transport = self._connections.get(task)
        if transport is not None:
            cut(transport)
        task.cancel()


def _sender_of(connection: socket.socket) -> SocketPeer | None:
    """Return the process and user at the other end of a Unix socket, or None on the LAN."""
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


def give_memory_back() -> None:
    """Release freed memory of the C library to the system. This takes a few ms.

    glibc returns memory on request (malloc_trim(3)). Other C libraries do it on their own, or have no such call.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def use_one_heap() -> None:
    """Set the C library to one heap for all threads. Call this before there is a second thread.

    By default glibc creates a heap for each thread, and each heap keeps its free memory (M_ARENA_MAX in mallopt(3)).
    posd's threads mostly wait for the disk, and seldom for the heap.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
