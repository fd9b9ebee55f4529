"""The listener: it accepts connections, admits them, and ends them at a stop. Hypercorn has no place for these limits.

They are the number of connections (of all, and those of the LAN by `admission.Gate`), a short TLS handshake, and an
orderly stop that no idle client can hold up. What is spoken on a connection is in `posd.httpd.connection`.
"""

import asyncio
import ctypes
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from hypercorn.typing import ASGIFramework

from posd.httpd.admission import Gate, Place, RejectedTraffic
from posd.httpd.connection import Connection, Context, Writer, http_config, untaken
from posd.httpd.senders import Sender, Senders, sender_of

#: A terminal's handshake takes well under a second; a half one must not hold a place longer. Seconds.
TLS_HANDSHAKE_SECONDS = 10.0
#: How long the shutdown of a TLS connection may take, in seconds: less than the stop may take.
TLS_SHUTDOWN_SECONDS = 0.3
#: After running out of file descriptors, how long until the next try to accept, in seconds.
ACCEPT_RETRY_SECONDS = 0.1
#: A turn of accepting, in units of work: one for a connection that is turned away, more for one that is answered so or
#: served. What else there is to do comes after each turn, however much the LAN sends; on the LAN a pause follows, in
#: seconds.
TURN_WORK = 32
ADMISSION_WORK = 8
ANSWER_WORK = 4
LAN_PAUSE_SECONDS = 0.002
#: What is read of a connection before the app wants it, in bytes; asyncio keeps up to twice as much and a TLS record.
READ_AHEAD_BYTES = 4 * 1024
#: What a TLS connection holds that was not deciphered, in bytes, while what came before it is not wanted: more than a
#: record. asyncio's own is 256 KiB, and all of it is deciphered at once.
TLS_AHEAD_BYTES = 32 * 1024
#: What is written to a connection beside one piece of an answer, and not taken, in bytes; our answers to terminals are
#: a few hundred. Before that the kernel holds as much as it likes (net.core.wmem_default, 208 KiB).
WRITE_AHEAD_BYTES = 16 * 1024
#: The buffer of each TLS connection, in bytes: a record. asyncio's own is 256 KiB, for each of hundreds.
TLS_BUFFER_BYTES = 16 * 1024
#: How long the connections that were accepted last have to send a request before idle ones are closed at a stop, in
#: seconds: a client that has just connected to a socket is about to send one.
LAST_WORDS_SECONDS = 0.05
#: Connections that wait to be accepted: a burst of terminals after an outage fits, and in a flood none waits for long.
LAN_BACKLOG = 1024
#: A thousand tills at once: a Unix socket fails a non-blocking connect at once where the queue is full. The kernel may
#: cap it (somaxconn).
LOCAL_BACKLOG = 4096
#: After so many connections of the LAN have ended, memory is given back, so many seconds later. That takes a few
#: milliseconds, too much for each payment. What fewer leave behind is a few megabytes, and the next ones use it.
TRIM_CONNECTIONS = 64
TRIM_SECONDS = 2.0

sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def _no_refusal(_peer: str, _error: BaseException | None) -> bool:
    """Tell that the client did not refuse our certificate: without TLS it cannot."""
    return False


@dataclass(eq=False)
class Listener:
    """One listening socket and its connections.

    `gate` says who may connect; a place of it is the request's state `place`, None without a gate. On a Unix socket
    `senders` does; who is at the other end is the state `sender`, None on the LAN. `in_turn`: the app
    need not hear that a client has gone while it answers. `refused` is told what broke a connection, and returns
    whether the client refused our certificate by it.
    """

    app: ASGIFramework
    sock: socket.socket
    _: KW_ONLY
    #: What it is called in logs and metrics.
    name: str
    noise: RejectedTraffic
    #: The wall clock, for the Date of answers.
    now: Callable[[], datetime]
    keep_alive_seconds: float
    max_connections: int
    in_turn: bool = False
    gate: Gate | None = None
    senders: Senders | None = None
    tls: ssl.SSLContext | None = None
    refused: Callable[[str, BaseException | None], bool] = _no_refusal
    state: dict[str, Any] = field(default_factory=dict)
    #: Why the newest try to accept failed, None where it did not.
    accept_error: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._config = http_config(self.keep_alive_seconds)
        self._context = Context(self.now)
        self._connections: dict[asyncio.Task[None], asyncio.Transport | None] = {}
        self._ended = 0  # connections of the LAN, since memory was given back
        self._trimming: asyncio.TimerHandle | None = None
        self._accepting: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        port: int = self.sock.getsockname()[1]
        return port

    @property
    def listening(self) -> bool:
        """Whether it accepts connections."""
        return self._accepting is not None and not self._accepting.done()

    @property
    def accepting(self) -> bool:
        """Whether a client that connects now is served: it listens, and the newest try to accept did not fail."""
        return self.listening and self.accept_error is None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Serve connections that are accepted from now on with another context; open ones keep theirs."""
        self.tls = context

    def start(self) -> None:
        """Listen and accept."""
        self.sock.setblocking(False)
        self.sock.listen(LOCAL_BACKLOG if self.gate is None else LAN_BACKLOG)
        self._accepting = asyncio.create_task(self._accept(), name=f"accept-{self.name}")

    async def close(self, grace_seconds: float) -> None:
        """Accept nothing more, close idle connections, let requests under way end, then cut what is left."""
        if self._accepting is not None and not self._accepting.done():
            # First the reader, then a turn: a connection of this very moment would be accepted for a future that is
            # cancelled. Once more with the cancellation: in that turn it may have begun to wait again.
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
        pause = 0 if self.gate is None else LAN_PAUSE_SECONDS
        while True:
            try:
                work = self._take(*await loop.sock_accept(self.sock))
                with suppress(BlockingIOError):  # no more of them wait
                    while work < TURN_WORK:
                        work += self._take(*self.sock.accept())
                    await asyncio.sleep(pause)
            except OSError as error:
                self.noise.note("accept_failed", self.name, error.strerror)
                self.accept_error = error.strerror or type(error).__name__
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                self.accept_error = None  # the next try is made in this same step

    def _take(self, connection: socket.socket, address: Any) -> int:
        """Serve a connection or turn it away; return how much work that is."""
        peer = address[0] if isinstance(address, tuple) else "local"
        full = len(self._connections) >= self.max_connections
        sender, place = sender_of(connection), None
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

    def _forget(self, place: Place | None, sender: Sender | None, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if self.senders is not None and sender is not None:
            self.senders.leave(sender)
        if place is not None:
            place.leave()
            self._ended += 1
            if self._ended >= TRIM_CONNECTIONS and self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        """Give memory that a flood has used back to the system: hundreds of TLS connections leave megabytes behind."""
        self._trimming, self._ended = None, 0
        give_memory_back()

    def _crowd_out(self, task: asyncio.Task[None], peer: str) -> None:
        """End a connection that has proved nothing, at once."""
        self.noise.note("unproven_cut", peer)
        transport = self._connections.get(task)
        if transport is not None:
            _cut(transport)
        task.cancel()

    async def _serve(self, connection: socket.socket, peer: str, place: Place | None, sender: Sender | None) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_AHEAD_BYTES)
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
            error.__traceback__ = None  # asyncio keeps the error, and this the connection, until garbage is looked for
            return
        transport.set_write_buffer_limits(WRITE_AHEAD_BYTES)
        if self.tls is not None:
            transport.set_read_buffer_limits(TLS_AHEAD_BYTES)  # type: ignore[attr-defined]
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs as a task
        self._connections[task] = transport
        writer = Writer(transport, protocol, reader, loop)
        state = self.state | {
            "uid": sender.uid if sender is not None else None,
            "sender": sender,
            "place": place,
            "untaken": partial(untaken, transport),
        }
        served = Connection(self.app, self._config, self._context, state, reader, writer, in_turn=self.in_turn)
        try:
            await served.serve()
        except asyncio.CancelledError as error:
            error.__traceback__ = None  # the error and the task group know each other, and both the connection
        except (OSError, asyncio.IncompleteReadError, ExceptionGroup) as error:
            self.noise.note("connection_broke", peer, type(error).__name__)
        finally:
            if served.untaken:
                self.noise.note("untaken_answer", peer)
            self.refused(peer, reader.exception())  # under TLS 1.3 it may come after our side's handshake
            _cut(transport)


def _cut(transport: asyncio.Transport) -> None:
    """Abort a connection, open or not."""
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where its connection is gone
        transport.abort()


def give_memory_back() -> None:
    """Give back to the system what the C library keeps of freed memory, in pieces between what is not. A few ms.

    glibc does so when it is told to (malloc_trim(3)); other C libraries do so by themselves, or have no such call.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
