"""The network between the machine, the terminals and the tills: connections in memory, with faults.

A connection has two ends. The bytes of one end arrive at the other end in order, after the latency of the way. While a
way is down, it holds the bytes, as TCP does. A cut closes a connection at both ends. An address without a host does not
reply. A port without a listener refuses connections. TLS is real if the client uses TLS. Without TLS the bytes are
plain text, and the listener treats the bytes as decrypted. Plain text saves half of the time of a payment. Other tests
cover refusals by TLS on real connections.
"""

import asyncio
import contextvars
import errno
import ipaddress
import os
import socket
import ssl as ssl_module
import struct
from asyncio import protocols, sslproto
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from zeroconf.asyncio import AsyncServiceInfo

from posd.terminals.discovery import Discovery
from tests.simulation.loop import LIFE, OUTSIDE, VirtualLoop

#: Service that the terminals announce.
SERVICE: Final = "_card-terminal._tcp.local."
#: Latency of a Unix socket, in seconds.
LOCAL_SECONDS: Final = 0.00002
#: Maximum number of unread bytes that the kernel buffers. The buffer of a Unix socket has about this size.
KERNEL_BYTES: Final = 208 * 1024
#: Seconds after which the kernel reports that a host in the same network is unreachable.
UNREACHABLE_SECONDS: Final = 3.06
#: An invalid file descriptor.
NO_DESCRIPTOR: Final = -1

_CREDENTIALS = struct.Struct("iII")
_MIX = 0xFFFFFFFFFFFFFFFF


def mixed(seed: int, count: int) -> float:
    """Return the n-th number in [0, 1) of a seed (splitmix64).

    The computation is fast, and the number is the same on every machine.
    """
    state = (seed + (count + 1) * 0x9E3779B97F4A7C15) & _MIX
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MIX
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MIX
    return ((state ^ (state >> 31)) >> 11) / (1 << 53)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass(eq=False)
class Way:
    """The way between the machine and one host, in both directions."""

    seed: int
    #: Shortest and longest latency, in seconds.
    latency: tuple[float, float] = (0.0003, 0.003)
    #: Whether bytes pass.
    up: asyncio.Event = field(default_factory=asyncio.Event)
    #: Whether the host exists. If the host does not exist, a connection fails after a while.
    there: bool = True
    #: Open connections, each with two ends.
    ends: list["End"] = field(default_factory=list)
    _drawn: int = 0

    def __post_init__(self) -> None:
        self.up.set()

    def delay(self) -> float:
        """Draw a latency."""
        self._drawn += 1
        low, high = self.latency
        return low + (high - low) * mixed(self.seed, self._drawn)

    def raise_up(self) -> None:
        """Open the way, and deliver the held bytes."""
        self.up.set()
        for end in self.ends[:]:
            held, end.held = end.held, []
            for what in held:
                end._loop.call_soon(end.arrive, what, context=end.context)

    def cut(self) -> None:
        """Reset all connections on the way."""
        for end in self.ends[:]:
            end.end(_error(errno.ECONNRESET))


#: Signals to an end: the peer has written everything, or the peer is gone.
_EOF, _RESET = object(), object()


class Socket:
    """A substitute for a socket. `name`: its address."""

    name: Any

    def fileno(self) -> int:
        """Return an invalid descriptor."""
        return NO_DESCRIPTOR

    def setblocking(self, _flag: bool) -> None:
        """Do nothing. The socket never blocks."""

    def getsockname(self) -> Any:
        """Return the address of this end."""
        return self.name


class End(Socket, asyncio.Transport):
    """One end of a connection. The end is the transport of the code at this end, and a substitute for the socket."""

    def __init__(self, network: "Network", way: Way, name: Any, peer_name: Any, life: int) -> None:
        super().__init__()
        self._network, self._loop, self.way = network, network.loop, way
        self.name, self.peer_name, self.life = name, peer_name, life
        self.family = socket.AF_UNIX if "" in (name, peer_name) else socket.AF_INET
        self.credentials, self.encrypted = (0, 0, 0), False
        self.protocol: Any = None
        self.assumed: Any = None
        self.peer: End = self
        self.held: list[Any] = []
        self.ended = self.closing = self._wrote_eof = self._heard_eof = False
        self._buffered = self._paused = self._writing_paused = False
        self.context = contextvars.copy_context()
        self._inbox: deque[Any] = deque()
        self._last_arrival = 0.0
        self._untaken = 0  # Bytes that the peer has not read.
        self._limit = KERNEL_BYTES + 65536
        self._reader: tuple[Callable[..., object], tuple[Any, ...]] | None = None

    # Methods of a socket.

    def setsockopt(self, *_: Any) -> None:
        """Accept any option."""

    def getsockopt(self, _level: int, _option: int, _length: int = 0) -> bytes:
        """Return the peer of a Unix socket."""
        return _CREDENTIALS.pack(*self.credentials)

    def getpeername(self) -> Any:
        """Return the address of the other end."""
        return self.peer_name

    def recv(self, size: int) -> bytes:
        """Receive the bytes that have arrived. Raise BlockingIOError, OSError."""
        if not self._inbox and not self._heard_eof:
            raise _error(errno.EAGAIN)
        what: Any = self._inbox.popleft() if self._inbox else _EOF
        if what is _RESET:
            raise _error(errno.ECONNRESET)
        if what is _EOF:
            self._heard_eof = True
            return b""
        piece, rest = what[:size], what[size:]
        if rest:
            self._inbox.appendleft(rest)
        self._taken(len(piece))
        return bytes(piece)

    def send(self, data: bytes) -> int:
        """Write bytes. Raise OSError if the connection has ended."""
        if self.ended or self._wrote_eof:
            raise _error(errno.EPIPE)
        self.write(data)
        return len(data)

    def shutdown(self, _how: int) -> None:
        """End the written data."""
        self.write_eof()

    def add_reader(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call the function when data can be received."""
        self._reader = (callback, args)
        if self._inbox:
            self._loop.call_soon(callback, *args)

    def remove_reader(self) -> bool:
        """Remove the callback."""
        had, self._reader = self._reader is not None, None
        return had

    async def serve(self, factory: Callable[[], Any], *, ssl: Any = None, **options: Any) -> Any:
        """Make this end the transport of a protocol, as asyncio does for an accepted connection."""
        protocol = factory()
        if ssl is not None and self.peer.encrypted:
            return await _secured(self, protocol, ssl, server_side=True, **options)
        if ssl is not None:
            self.assumed = SimpleNamespace(selected_alpn_protocol=lambda: None, getpeercert=lambda **_: None)
        self.attach(protocol)
        return self, protocol

    def attach(self, protocol: Any) -> None:
        """Deliver all later bytes to a protocol."""
        self.set_protocol(protocol)
        self.context = contextvars.copy_context()
        protocol.connection_made(self)
        self.resume_reading()

    # Methods of a transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the information that asyncio's transports have."""
        known = {"socket": self, "peername": self.peer_name, "ssl_object": self.assumed}
        return known.get(name) or default

    def set_protocol(self, protocol: Any) -> None:
        """Change the protocol."""
        self.protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def is_closing(self) -> bool:
        """Whether the end is closed or closing."""
        return self.closing

    def pause_reading(self) -> None:
        """Stop delivering arriving bytes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Deliver arriving bytes."""
        self._paused = False
        if self._inbox:
            self._loop.call_soon(self._drain, context=self.context)

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing. The simulation sets no limit."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many bytes may wait beyond the kernel's buffer."""
        self._limit = KERNEL_BYTES + (65536 if high is None else high)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that do not fit into the kernel's buffer."""
        return max(0, self._untaken - KERNEL_BYTES)

    def write(self, data: Any) -> None:
        """Send bytes to the other end."""
        if self.ended or self.closing or self._wrote_eof or not data or self._network.is_dead(self.life):
            return
        data = bytes(data)
        self._untaken += len(data)
        self._send(data)
        if self._untaken > self._limit and not self._writing_paused and self.protocol is not None:
            self._writing_paused = True
            self.protocol.pause_writing()

    def write_eof(self) -> None:
        """Report the end of the data to the peer."""
        if not self._wrote_eof and not self.ended:
            self._wrote_eof = True
            self._send(_EOF)

    def close(self) -> None:
        """Close after the written bytes are sent."""
        if not self.closing:
            self.write_eof()
            self._end_soon()

    def abort(self) -> None:
        """End the connection at once."""
        if not self.ended:
            self._send(_RESET)
            self._end_soon()

    def _end_soon(self) -> None:
        self.closing = True
        if self.protocol is None:
            self.end(None)
        else:
            self._loop.call_soon(self.end, None, context=self.context)

    def _force_close(self, _error: BaseException | None) -> None:
        """End the connection, as asyncio's TLS requires after a failure."""
        self.abort()

    # Arriving data.

    def _send(self, what: Any) -> None:
        if not self._network.is_dead(self.life):
            peer = self.peer
            peer._last_arrival = max(self._loop.time() + self.way.delay(), peer._last_arrival + 1e-9)
            self._loop.call_at(peer._last_arrival, peer.arrive, what, context=peer.context)

    def arrive(self, what: Any) -> None:
        """Receive bytes from the way, unless it is down."""
        if self.ended:
            return
        if self.held or not self.way.up.is_set():
            self.held.append(what)
            return
        self._inbox.append(what)
        if self._reader is not None:
            callback, args = self._reader
            callback(*args)
        elif self.protocol is not None and not self._paused:
            self._drain()

    def _drain(self) -> None:
        while self._inbox and not self._paused and not self.ended and self.protocol is not None:
            what = self._inbox.popleft()
            if what is _RESET:
                self.end(_error(errno.ECONNRESET))
            elif what is _EOF:
                self._heard_eof = True
                if not self.protocol.eof_received() and not self.closing:
                    self.close()
            else:
                self._taken(len(what))
                if self._buffered:
                    protocols._feed_data_to_buffered_proto(self.protocol, what)  # type: ignore[attr-defined]
                else:
                    self.protocol.data_received(what)

    def _taken(self, count: int) -> None:
        peer = self.peer
        peer._untaken -= count
        if peer._writing_paused and peer._untaken <= peer._limit // 2:
            peer._writing_paused = False
            if peer.protocol is not None and not peer.ended:
                self._loop.call_soon(peer.protocol.resume_writing, context=peer.context)

    def end(self, error: Exception | None) -> None:
        """Report the end of the connection to the protocol."""
        if self.ended:
            return
        self.ended = self.closing = True
        self._inbox.clear()
        self.held.clear()
        if self.protocol is not None and not self._network.is_dead(self.life):
            self._loop.call_soon(self.protocol.connection_lost, error, context=self.context)
        if self.peer.ended and self in self.way.ends:
            self.way.ends.remove(self)
            self.way.ends.remove(self.peer)


class Listening(Socket):
    """A listening socket. Its name is (host, port) or a path."""

    def __init__(self, network: "Network", name: Any, family: int) -> None:
        self._network, self.name, self.family = network, name, family
        self.life = LIFE.get()
        self._queue: deque[End] = deque()
        self._came = asyncio.Event()
        self._backlog = 0
        #: Handler of each connection, instead of `accept`. Hosts of the simulation use a handler.
        self.handler: Callable[[End], object] | None = None

    def listen(self, backlog: int) -> None:
        """Accept connections from this moment."""
        if self.name[0] in self._network.former:  # the machine moved after the bind, and the bind is to any address
            self.name = (self._network.machine, self.name[1])
        self._backlog = backlog
        self._network.listeners[self.name] = self

    def close(self) -> None:
        """Close the listener, and reset the waiting connections."""
        if self._network.listeners.get(self.name) is self:
            del self._network.listeners[self.name]
        while self._queue:
            self._queue.popleft().abort()

    def offer(self, end: End) -> bool:
        """Add a connection to the queue. Return False if the queue is full."""
        if self.handler is not None:
            OUTSIDE.copy().run(self.handler, end)  # the client may be the daemon
            return True
        if len(self._queue) >= self._backlog:
            return False
        self._queue.append(end)
        self._came.set()
        return True

    def remove_reader(self) -> bool:
        """Return False, because there are no callbacks."""
        return False

    def accept(self) -> tuple[End, Any]:
        """Accept a connection. Raise BlockingIOError if no connection waits."""
        if (error := self._network.accept_error) is not None:
            raise error
        while self._queue:
            end = self._queue.popleft()
            if not end.ended:
                return end, end.peer_name
        raise _error(errno.EAGAIN)

    async def accepted(self) -> tuple[End, Any]:
        """Wait for the next connection and accept it."""
        while True:
            try:
                return self.accept()
            except BlockingIOError:
                self._came.clear()
                await self._came.wait()


class Network:
    """All listeners, and the ways to all hosts. `machine` is the machine's address."""

    loop: VirtualLoop

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.machine = "10.0.0.2"
        self.listeners: dict[Any, Listening] = {}
        self.ways: dict[str, Way] = {}
        self.local = Way(seed, (LOCAL_SECONDS, LOCAL_SECONDS * 2))
        #: Error that each `accept` raises, for example for a lack of descriptors. None without a fault.
        self.accept_error: OSError | None = None
        self._dead: set[int] = set()
        self._ports = 40000
        #: Addresses that the machine had before.
        self.former: set[str] = set()

    def way(self, host: str) -> Way:
        """Return the way to a host."""
        if host in (self.machine, "127.0.0.1"):
            return self.local
        if host not in self.ways:
            self.ways[host] = Way(self.seed ^ (hash_of(host) << 1))
        return self.ways[host]

    def move(self, address: str) -> None:
        """Set another address of the machine."""
        old, self.machine = self.machine, address
        self.former.add(old)
        self.former.discard(address)
        for host, port in [place for place in self.listeners if place[0] == old]:
            listening = self.listeners[address, port] = self.listeners.pop((host, port))
            listening.name = (address, port)
        for way in self.ways.values():
            way.cut()
        self.way(old).there = False

    def is_dead(self, life: int) -> bool:
        """Whether a life of the daemon has ended."""
        return life in self._dead

    def mute(self, life: int) -> None:
        """Block all output of a life of the daemon that is being killed."""
        self._dead.add(life)

    def end_life(self, life: int) -> None:
        """Close the sockets of an ended process, as the kernel does."""
        for place, listening in list(self.listeners.items()):
            if listening.life == life:
                del self.listeners[place]  # the close also ends the connections in the queue
        for way in (self.local, *self.ways.values()):
            for end in way.ends[:]:
                if end.life == life and not end.ended:
                    peer = end.peer
                    end.end(None)
                    if not peer.ended and peer.life != life:
                        self.loop.call_later(way.delay(), peer.arrive, _RESET, context=peer.context)

    def tcp_socket(self, host: str, port: int, _key: str = "") -> Any:
        """Return a bound socket. The machine has one address."""
        if host in ("0.0.0.0", "::", "127.0.0.1"):
            host = self.machine
        return Listening(self, (host, port), socket.AF_INET)

    def unix_socket(self, path: Any, _group: str = "") -> Any:
        """Return a Unix socket that is bound to a path, and make a file at that path."""
        path.touch()
        return Listening(self, str(path), socket.AF_UNIX)

    def serve(self, place: tuple[str, int], handler: Callable[[End], object]) -> Listening:
        """Listen at a host of the simulation."""
        listening = Listening(self, place, socket.AF_INET)
        listening.handler = handler
        listening.listen(128)
        return listening

    async def connect(self, factory: Callable[[], Any], host: Any, port: Any, **options: Any) -> Any:
        """Connect from the machine, like the loop's create_connection. Raise OSError."""
        ssl = options.get("ssl")
        if host == "127.0.0.1":
            host = self.machine
        end = await self.dial(self.machine, (host, port), encrypted=ssl is not None)
        protocol = factory()
        if ssl is not None:
            given = {key: value for key, value in options.items() if key.startswith("ssl_")}
            return await _secured(end, protocol, ssl, server_hostname=options.get("server_hostname") or host, **given)
        end.attach(protocol)
        return end, protocol

    async def dial(
        self, origin: str, place: Any, *, credentials: tuple[int, int, int] = (0, 0, 0), encrypted: bool = False
    ) -> End:
        """Connect from a host to (host, port) or to a path. Raise OSError."""
        local = isinstance(place, str)
        way = self.local if local else self.way(origin if place[0] == self.machine else place[0])
        if not way.there:
            await asyncio.sleep(UNREACHABLE_SECONDS)
            raise _error(errno.EHOSTUNREACH)
        await asyncio.sleep(way.delay())
        await way.up.wait()
        listening = self.listeners.get(place)
        if listening is None:
            await asyncio.sleep(way.delay())
            raise _error(errno.ENOENT if local else errno.ECONNREFUSED)
        self._ports = 40000 + (self._ports - 39999) % 20000
        mine = "" if local else (origin, self._ports)
        near = End(self, way, mine, place, LIFE.get())
        far = End(self, way, place, mine, listening.life)
        near.encrypted = encrypted
        far.credentials = credentials
        near.peer, far.peer = far, near
        way.ends += [near, far]
        if not listening.offer(far):
            near.end(None)
            far.end(None)
            raise _error(errno.EAGAIN)
        await asyncio.sleep(way.delay())
        return near


async def _secured(end: End, protocol: Any, context: ssl_module.SSLContext, **options: Any) -> Any:
    """Start TLS over an end, as asyncio does. Raise OSError."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    wrapped = sslproto.SSLProtocol(loop, protocol, context, waiter, **options)
    end.attach(wrapped)
    try:
        await waiter
    except BaseException:
        end.abort()
        raise
    return wrapped._app_transport, protocol


def hash_of(text: str) -> int:
    """Return a number for a text. The number is the same on every machine (FNV-1a, 64 bit)."""
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = ((found ^ byte) * 0x100000001B3) & _MIX
    return found


class Air:
    """The present announcements, by name, as a substitute for mDNS. One daemon receives all announcements.

    An announcement stays until the device changes it.
    """

    def __init__(self) -> None:
        self._announced: dict[str, AsyncServiceInfo] = {}
        self._heard: asyncio.Queue[tuple[str, AsyncServiceInfo | None]] = asyncio.Queue()

    def announce(self, name: str, serial: str, address: str, port: int) -> None:
        """Announce a terminal. A new announcement replaces an earlier announcement of the same name."""
        full = f"{name}.{SERVICE}"
        addresses = [ipaddress.ip_address(address).packed]
        info = AsyncServiceInfo(SERVICE, full, port=port, properties={"serial": serial}, addresses=addresses)
        self._announced[full] = info
        self._heard.put_nowait((full, info))

    def withdraw(self, name: str) -> None:
        """Withdraw an announcement."""
        full = f"{name}.{SERVICE}"
        self._announced.pop(full, None)
        self._heard.put_nowait((full, None))

    def listen(self) -> "asyncio.Queue[tuple[str, AsyncServiceInfo | None]]":
        """Report the present announcements, and then each change."""
        self._heard = asyncio.Queue()
        for name, info in self._announced.items():
            self._heard.put_nowait((name, info))
        return self._heard


class Heard(Discovery):
    """Discovery that passes the announcements of the simulated network to the fleet."""

    def __init__(self, air: Air, *parts: Any) -> None:
        super().__init__(*parts)
        self._air = air

    async def run(self) -> None:
        """Listen until cancelled."""
        self._say(None)
        heard = self._air.listen()
        while True:
            name, info = await heard.get()
            if info is None:
                self._fleet.withdraw(name)
            else:
                self._take(info)
