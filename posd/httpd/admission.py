"""Admission to the webhook listener: which addresses may connect, how often, and a count of what is turned away.

A stranger costs the most before its token is judged: the connection holds memory, and the TLS handshake is work. So a
connection is worth little until it has shown a valid token. Connections that have shown none are kept within one rule,
for each address and for all strangers together. It is a number of places, each of which is safe for `GRACE_SECONDS`
only (then a new connection may take it), and a budget of connections that prove nothing, which lasts as long. So there
is always a place for the next connection within the budget, however many places the others hold.

A connection that shows a valid token gives its part of the budget back: honest traffic is not limited by it, however
much it is. An address is known if it belongs to a terminal of the fleet, or has called back in the last day about what
is open. Strangers can take the strangers' places and use up their budget; those of known addresses are not theirs.
"""

import asyncio
import functools
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

#: How long a connection that has proved nothing keeps its place where others want it, in seconds. An honest terminal
#: has shown its token by then.
GRACE_SECONDS = 2.0
#: What a known address may hold: terminals behind one address translation share them.
PLACES_OF_KNOWN = 64
#: What an address may hold that is not known, and all such together. As many in two seconds is all the work, too, that
#: strangers can impose: a TLS handshake takes about a millisecond.
PLACES_OF_STRANGER = 16
PLACES_OF_STRANGERS = 64
#: How long an address is known after such a callback, in seconds; and how many are remembered.
KNOWN_SECONDS = 86_400.0
MAX_KNOWN = 512
#: Addresses whose budget is remembered: a network has addresses without end.
MAX_ADDRESSES = 1024
#: How often the addresses of the fleet are looked at, in seconds.
FLEET_SECONDS = 1.0
#: Addresses whose plain form is remembered: it is wanted for each connection of a flood.
MAX_PLAIN = 1024
#: A flood is one line a minute of each kind, in seconds.
LINE_EVERY_SECONDS = 60.0

log = structlog.get_logger("posd.listener")


class Share:
    """The places and the budget of one address, or of all strangers together."""

    def __init__(self, places: int, now: float) -> None:
        self._places = places
        self._budget = float(places)
        self._filled_at = now
        self._held = 0
        self._unproven: dict[Place, None] = {}  # in the order in which they came

    def resize(self, places: int) -> None:
        """Let it have another number of places, and the budget that goes with it."""
        self._budget += places - self._places
        self._places = places

    def idle(self, now: float) -> bool:
        """Whether nothing is held and nothing is owed: it is as good as a new one."""
        self._fill(now)
        return not self._held and self._budget >= self._places

    def has_room(self, now: float) -> bool:
        """Whether one more may come, if need be in the place of one that has proved nothing for too long."""
        self._fill(now)
        return self._budget >= 1 and (self._held < self._places or self._overdue(now) is not None)

    def make_room(self, now: float) -> None:
        """Cut the connection that has proved nothing for the longest time, where no place is free."""
        if self._held >= self._places and (oldest := self._overdue(now)) is not None:
            oldest.cut()

    def take(self, place: "Place") -> None:
        """Give a place away."""
        self._held += 1
        self._budget -= 1
        self._unproven[place] = None

    def keep(self, place: "Place") -> None:
        """Do not cut this one."""
        self._unproven.pop(place, None)

    def refund(self) -> None:
        """Give back what an honest connection has used of the budget."""
        self._budget = min(self._places, self._budget + 1)

    def give_back(self, place: "Place") -> None:
        """Take a place back."""
        self._held -= 1
        self._unproven.pop(place, None)

    def _fill(self, now: float) -> None:
        earned = (now - self._filled_at) * self._places / GRACE_SECONDS
        self._budget = min(self._places, self._budget + earned)
        self._filled_at = now

    def _overdue(self, now: float) -> "Place | None":
        oldest = next(iter(self._unproven), None)
        return oldest if oldest is not None and now - oldest.came_at >= GRACE_SECONDS else None


def _nothing() -> None:
    """Do nothing."""


class Place:
    """The place of one connection. `on_cut` is called if another connection gets it."""

    def __init__(self, gate: "Gate", address: str, shares: list[Share], now: float) -> None:
        self.came_at = now
        self._proven = False
        self.on_cut: Callable[[], None] = _nothing
        self._gate = gate
        self._address = address
        self._shares = shares

    def keep(self) -> None:
        """A valid token was shown on this connection: its place is not given to others."""
        for share in self._shares:
            share.keep(self)

    def prove(self) -> None:
        """A whole callback of what is open came: its address is no stranger's."""
        if not self._proven:
            self._proven = True
            for share in self._shares:
                share.keep(self)
                share.refund()
            for share in self._shares[1:]:  # the strangers'
                share.give_back(self)
            self._shares = self._shares[:1]
        self._gate.know(self._address)

    def leave(self) -> None:
        """The connection has ended."""
        for share in self._shares:
            share.give_back(self)
        self._shares = []
        self.on_cut = _nothing  # it keeps the connection

    def cut(self) -> None:
        """End the connection: another one gets its place."""
        on_cut = self.on_cut
        self.leave()
        on_cut()


class Gate:
    """Gives places away."""

    def __init__(
        self,
        fleet: Callable[[], Iterable[str]] = tuple,
        *,
        of_known: int = PLACES_OF_KNOWN,
        of_stranger: int = PLACES_OF_STRANGER,
        of_strangers: int = PLACES_OF_STRANGERS,
        clock: Callable[[], float],
    ) -> None:
        """`fleet` returns the addresses of the terminals as they are known now. `clock`: monotonic seconds."""
        self._fleet = fleet
        self._of_known = of_known
        self._of_stranger = of_stranger
        self._clock = clock
        self._strangers = Share(of_strangers, clock())
        self._addresses: dict[str, Share] = {}
        self._known: dict[str, float] = {}
        self._of_fleet: frozenset[str] = frozenset()
        self._looked_at = -FLEET_SECONDS

    def admit(self, peer: str) -> Place | None:
        """Return a place for a connection of an address, None where there is none for it."""
        now, address = self._clock(), plain(peer)
        known = self._is_known(address, now)
        places = self._of_known if known else self._of_stranger
        of_address = self._addresses.get(address) or Share(places, now)
        of_address.resize(places)
        shares = [of_address] if known else [of_address, self._strangers]
        if not all(share.has_room(now) for share in shares):
            return None
        for share in shares:
            share.make_room(now)
        self._remember(address, of_address, now)
        place = Place(self, address, shares, now)
        for share in shares:
            share.take(place)
        return place

    def know(self, address: str) -> None:
        """Record the address from which a callback of an open payment came."""
        self._known.pop(address, None)
        self._known[address] = self._clock()
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]  # the one that was silent longest

    def _is_known(self, address: str, now: float) -> bool:
        if now - self._known.get(address, -KNOWN_SECONDS) < KNOWN_SECONDS:
            return True
        if now - self._looked_at >= FLEET_SECONDS:
            self._of_fleet, self._looked_at = frozenset(self._fleet()), now
        return address in self._of_fleet

    def _remember(self, address: str, share: Share, now: float) -> None:
        """Keep the share of an address, last in the order; forget those that are as good as new ones."""
        self._addresses.pop(address, None)
        self._addresses[address] = share
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses = {key: item for key, item in self._addresses.items() if not item.idle(now)}


@functools.lru_cache(MAX_PLAIN)
def plain(peer: str) -> str:
    """Return an address as people know it: an IPv4 address that came through an IPv6 socket as IPv4, without a zone."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class RejectedTraffic:
    """Counts refused connections and requests, and tells of them now and then.

    The first of a kind is told at once; what follows is told as a number when its minute is over.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: What was not told yet, of the kinds whose minute runs: how many, the newest peer and its detail.
        self._untold: dict[str, tuple[int, str, str | None]] = {}

    def note(self, kind: str, peer: str, detail: str | None = None) -> None:
        """Count one more of a kind; a line names the newest peer and how many there were since the last line."""
        self.counts[kind] += 1
        if (untold := self._untold.get(kind)) is not None:
            self._untold[kind] = (untold[0] + 1, peer, detail)
            return
        _tell(kind, 1, peer, detail)
        with suppress(RuntimeError):  # without a loop no timer comes back to it
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)
            self._untold[kind] = (0, peer, detail)

    def _minute_over(self, kind: str) -> None:
        count, peer, detail = self._untold.pop(kind, (0, "", None))
        if count:
            _tell(kind, count, peer, detail)
            self._untold[kind] = (0, peer, detail)
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)

    def tell(self) -> None:
        """Tell what is left: posd stops."""
        for kind, (count, peer, detail) in self._untold.items():
            if count:
                _tell(kind, count, peer, detail)
        self._untold.clear()


def _tell(kind: str, count: int, peer: str, detail: str | None) -> None:
    log.warning("listener.refused", kind=kind, peer=peer, count=count, detail=detail)
