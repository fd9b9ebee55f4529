"""Admission of connections: on the LAN by address, on a Unix socket by process and user; counts of refused traffic.

A connection is unproven until its token is checked. An unproven connection holds memory and needs a TLS handshake. So
one rule limits unproven connections, for each address and for all unknown addresses together. The rule sets a number of
places, and a budget for new unproven connections. An unproven connection keeps its place for `GRACE_SECONDS`. Then a
new connection may replace it. The budget refills within the same time, so a connection within the budget always has a
place.

A connection with a valid token gives its part of the budget back, so genuine traffic is not limited. An address is
known if it belongs to a terminal of the fleet, and for a day after a callback about an open payment. Unknown addresses
share separate places and a separate budget, and cannot use those of known addresses.
"""

import asyncio
import functools
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import structlog

from posd.httpd.allowance import Allowance

#: An unproven connection keeps its place for this number of seconds. A genuine terminal has sent its token by then.
GRACE_SECONDS = 2.0
#: Number of places of each known address. Terminals behind one address translation (NAT) share them.
PLACES_OF_KNOWN = 64
#: Number of places of each unknown address, and of all unknown addresses together. So unknown addresses cause at most
#: one TLS handshake for each place in two seconds. A handshake takes about a millisecond.
PLACES_OF_STRANGER = 16
PLACES_OF_STRANGERS = 64
#: After a callback about an open payment, its address is known for this number of seconds. Maximum number of such
#: addresses.
KNOWN_SECONDS = 86_400.0
MAX_KNOWN = 512
#: Maximum number of addresses with a stored budget. A network can have any number of addresses.
MAX_ADDRESSES = 1024
#: Seconds between two reads of the addresses of the fleet.
FLEET_SECONDS = 1.0
#: Maximum number of addresses whose plain form is cached. Each connection of a flood needs that form.
MAX_PLAIN = 1024
#: Seconds between two log lines of the same kind during a flood.
LINE_EVERY_SECONDS = 60.0

log = structlog.get_logger("posd.listener")


class ListenerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Name of a listener in logs and metrics, its limits, and the additional state of its requests.

    `in_turn`: whether the app needs no report of a disconnect before its response. If so, posd reads data after a
    complete request only after the response.
    """

    name: str
    keep_alive_seconds: float
    max_connections: int
    in_turn: bool = False
    state: dict[str, Any] = {}


class AddressQuota:
    """Places and budget of one address, or of all unknown addresses together."""

    def __init__(self, places: int, clock: Callable[[], float]) -> None:
        self._places = places
        self._budget = Allowance(places, places / GRACE_SECONDS, clock)
        self._held = 0
        self._unproven: dict[ConnectionSlot, None] = {}  # connections in the order of arrival

    def resize(self, places: int) -> None:
        """Set the number of places, and the budget for that number."""
        self._places = self._budget.room = places
        self._budget.rate = places / GRACE_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no place is used and the budget is full. Such a quota equals a new one."""
        return not self._held and not self._budget.used()

    def has_room(self, now: float) -> bool:
        """Return whether another connection may enter.

        Without a free place, the new connection may replace one that has been unproven for `GRACE_SECONDS`.
        """
        return not self._budget.seconds_until() and (self._held < self._places or self._overdue(now) is not None)

    def make_room(self, now: float) -> None:
        """Without a free place, close the oldest connection that has been unproven for `GRACE_SECONDS`."""
        if self._held >= self._places and (oldest := self._overdue(now)) is not None:
            oldest.cut()

    def take(self, place: "ConnectionSlot") -> None:
        """Occupy a place, and use budget for a new connection."""
        self._held += 1
        self._budget.take()
        self._unproven[place] = None

    def keep(self, place: "ConnectionSlot") -> None:
        """Protect a connection from replacement."""
        self._unproven.pop(place, None)

    def refund(self) -> None:
        """Refill the budget by the part that a genuine connection used."""
        self._budget.give_back()

    def give_back(self, place: "ConnectionSlot") -> None:
        """Free a place."""
        self._held -= 1
        self._unproven.pop(place, None)

    def _overdue(self, now: float) -> "ConnectionSlot | None":
        oldest = next(iter(self._unproven), None)
        return oldest if oldest is not None and now - oldest.came_at >= GRACE_SECONDS else None


def _nothing() -> None:
    """Do nothing."""


class ConnectionSlot(msgspec.Struct, eq=False):
    """Place of one connection. `on_cut` is called if another connection replaces it."""

    gate: "AdmissionGate"
    address: str
    shares: list[AddressQuota]
    came_at: float
    on_cut: Callable[[], None] = _nothing
    _proven: bool = False

    def keep(self) -> None:
        """Protect the connection from replacement, because it has sent a valid token."""
        for share in self.shares:
            share.keep(self)

    def prove(self) -> None:
        """Refill the budget, because a complete callback with a valid token arrived.

        From then on the connection uses no place of the unknown addresses.
        """
        if not self._proven:
            self._proven = True
            for share in self.shares:
                share.keep(self)
                share.refund()
            for share in self.shares[1:]:  # the quota of all unknown addresses
                share.give_back(self)
            self.shares = self.shares[:1]

    def know(self) -> None:
        """Mark the address as known for a day, because its callback was about an open payment."""
        self.gate.know(self.address)

    def leave(self) -> None:
        """Free the place of an ended connection."""
        for share in self.shares:
            share.give_back(self)
        self.shares = []
        self.on_cut = _nothing  # break the reference cycle with the connection

    def cut(self) -> None:
        """End the connection, so that another connection can take its place."""
        on_cut = self.on_cut
        self.leave()
        on_cut()


class AdmissionGate:
    """Gate that assigns a place to each admitted connection, by its address."""

    def __init__(
        self,
        fleet: Callable[[], Iterable[str]] = tuple,
        *,
        of_known: int = PLACES_OF_KNOWN,
        of_stranger: int = PLACES_OF_STRANGER,
        of_strangers: int = PLACES_OF_STRANGERS,
        clock: Callable[[], float],
    ) -> None:
        """`fleet`: returns the present addresses of the terminals. `clock`: monotonic seconds."""
        self._fleet = fleet
        self._of_known = of_known
        self._of_stranger = of_stranger
        self._clock = clock
        self._strangers = AddressQuota(of_strangers, clock)
        self._addresses: dict[str, AddressQuota] = {}
        self._known: dict[str, float] = {}
        self._of_fleet: frozenset[str] = frozenset()
        self._looked_at = -FLEET_SECONDS

    def admit(self, peer: str) -> ConnectionSlot | None:
        """Return a place for a connection from `peer`, or None if no place is free."""
        now, address = self._clock(), plain(peer)
        known = self._is_known(address, now)
        places = self._of_known if known else self._of_stranger
        of_address = self._addresses.get(address) or AddressQuota(places, self._clock)
        of_address.resize(places)
        shares = [of_address] if known else [of_address, self._strangers]
        if not all(share.has_room(now) for share in shares):
            return None
        for share in shares:
            share.make_room(now)
        self._remember(address, of_address)
        place = ConnectionSlot(self, address, shares, now)
        for share in shares:
            share.take(place)
        return place

    def know(self, address: str) -> None:
        """Mark the address as known, because it sent a callback about an open payment."""
        self._known.pop(address, None)
        self._known[address] = self._clock()
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]  # drop the address whose last callback is the oldest

    def _is_known(self, address: str, now: float) -> bool:
        if now - self._known.get(address, -KNOWN_SECONDS) < KNOWN_SECONDS:
            return True
        if now - self._looked_at >= FLEET_SECONDS:
            self._of_fleet, self._looked_at = frozenset(self._fleet()), now
        return address in self._of_fleet

    def _remember(self, address: str, share: AddressQuota) -> None:
        """Store the quota of an address as the newest. If too many are stored, drop the idle ones."""
        self._addresses.pop(address, None)
        self._addresses[address] = share
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses = {key: item for key, item in self._addresses.items() if not item.idle}


@functools.lru_cache(MAX_PLAIN)
def plain(peer: str) -> str:
    """Return an address without its zone, and an IPv4-mapped IPv6 address as IPv4."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class RejectedTraffic(msgspec.Struct, eq=False):
    """Counters of refused connections and requests, and their log lines.

    The first refusal of a kind is logged at once. Later refusals are logged as a number when the minute ends. An
    `Allowance` is not used, because it does not count refusals.
    """

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    #: Kind that was logged within the last minute -> number of refusals since that line, newest peer, and detail.
    _untold: dict[str, tuple[int, str, str | None]] = {}

    def note(self, kind: str, peer: str, detail: str | None = None) -> None:
        """Count one refusal. A log line has the newest peer and the number since the last line."""
        self.counts[kind] += 1
        if (untold := self._untold.get(kind)) is not None:
            self._untold[kind] = (untold[0] + 1, peer, detail)
            return
        _tell(kind, 1, peer, detail)
        with suppress(RuntimeError):  # without a loop there is no timer
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)
            self._untold[kind] = (0, peer, detail)

    def _minute_over(self, kind: str) -> None:
        count, peer, detail = self._untold.pop(kind, (0, "", None))
        if count:
            _tell(kind, count, peer, detail)
            self._untold[kind] = (0, peer, detail)
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)

    def tell(self) -> None:
        """Log the remaining numbers, because posd is stopping."""
        for kind, (count, peer, detail) in self._untold.items():
            if count:
                _tell(kind, count, peer, detail)
        self._untold.clear()


def _tell(kind: str, count: int, peer: str, detail: str | None) -> None:
    log.warning("listener.refused", kind=kind, peer=peer, count=count, detail=detail)


# Limits of a Unix socket: connections of each process and of each user, and the response above a limit.
#
# The kernel reports which process and user made a connection (SO_PEERCRED). A process of another pid namespace has no
# id here, so only its user is counted.

#: Time-out of a refused connection, in seconds. In this time its client must send the request and read the response.
TURNED_AWAY_SECONDS = 1.0
#: Maximum number of refused connections that stay open. Above it, a refused connection gets its response and is closed
#: at once, which needs the least work.
MAX_TURNED_AWAY = 64
#: Size of one read from a refused connection, in bytes. The data is dropped.
_PIECE_BYTES = 65_536


class SocketPeer(msgspec.Struct, frozen=True):
    """Process and user at the other end of a Unix socket; `pid` is 0 if the kernel reports none."""

    pid: int
    uid: int


class PeerQuotas(msgspec.Struct, eq=False):
    """Places of one Unix socket, by process and by user.

    `on_full`: called with the name of the reached limit (`process`, `user` or `socket`) and the sender; returns the
    response in wire format.
    """

    of_process: int
    of_user: int
    on_full: Callable[[str, SocketPeer], bytes]
    _processes: Counter[int] = msgspec.field(default_factory=Counter)
    _users: Counter[int] = msgspec.field(default_factory=Counter)
    #: Refused connection -> its response, and the timer that ends the connection.
    _waiting: dict[socket.socket, tuple[bytes, asyncio.TimerHandle]] = {}

    def enter(self, connection: socket.socket, sender: SocketPeer, *, full: bool) -> bool:
        """Reserve a place for a connection. If none is free, send the response, close the connection and return False.

        `full`: whether the socket has all its allowed connections.
        """
        reached = self._reached(sender) or ("socket" if full else None)
        if reached is not None:
            self._turn_away(connection, self.on_full(reached, sender))
            return False
        self._users[sender.uid] += 1
        if sender.pid:
            self._processes[sender.pid] += 1
        return True

    def leave(self, sender: SocketPeer) -> None:
        """Free the place of a connection."""
        for counts, key in ((self._users, sender.uid), (self._processes, sender.pid)):
            counts[key] -= 1
            if counts[key] <= 0:
                del counts[key]

    def _turn_away(self, connection: socket.socket, answer: bytes) -> None:
        """Send the response when the request arrives. Close the connection when the client has closed its side."""
        connection.setblocking(False)
        if len(self._waiting) >= MAX_TURNED_AWAY:
            with suppress(OSError):  # the client has disconnected
                connection.send(answer)
            connection.close()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURNED_AWAY_SECONDS, self._end, connection)
        self._waiting[connection] = (answer, timer)
        loop.add_reader(connection, partial(self._hear, connection))

    def close(self) -> None:
        """End all refused connections."""
        for connection in list(self._waiting):
            self._end(connection)

    def _reached(self, sender: SocketPeer) -> str | None:
        """Return the name of the limit that a sender has reached, or None."""
        if sender.pid and self._processes[sender.pid] >= self.of_process:
            return "process"
        return "user" if self._users[sender.uid] >= self.of_user else None

    def _hear(self, connection: socket.socket) -> None:
        try:
            piece = connection.recv(_PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            piece = b""
        if not piece:
            self._end(connection)
            return
        self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        answer, timer = self._waiting[connection]
        if answer:
            self._waiting[connection] = (b"", timer)
            with suppress(OSError):  # the client has disconnected
                connection.send(answer)
                connection.shutdown(socket.SHUT_WR)

    def _end(self, connection: socket.socket) -> None:
        self._answer(connection)
        _, timer = self._waiting.pop(connection)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(connection)
        connection.close()
