"""A network that breaks: TCP proxies that cut, delay and swallow by a seeded plan. TLS goes through untouched.

A proxy sees TLS records, not what is in them, but can tell them apart by their order: in TLS 1.3 the first record of
application data that a client sends is the end of its handshake, and what follows is its request; a server answers
that with two session tickets, and what follows is its reply.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from tests.chaos.listener import Listener

#: The head of a TLS record: type, version, length of what follows (RFC 8446, 5.1).
_HEAD = struct.Struct("!BHH")
#: The type of records with encrypted content.
APPLICATION_DATA = 23
#: Session tickets that OpenSSL's servers send after the handshake.
TICKETS = 2
#: The longest that a delayed record is held, in seconds: less than the daemon waits between its two rounds of proof,
#: for a request that comes later than that no daemon can know of.
MAX_DELAY_SECONDS = 0.6
#: struct linger: closing such a socket resets the connection.
_RESET = struct.pack("ii", 1, 0)


class Fate(StrEnum):
    """What happens to a connection."""

    PASSED = "passed"
    #: Cut at once: nothing of it reaches the server.
    REFUSED = "refused"
    #: Cut in the TLS handshake.
    CUT_HANDSHAKE = "cut_in_handshake"
    #: Cut before the first byte of the request.
    CUT_BEFORE_REQUEST = "cut_before_request"
    #: Cut in the middle of the request: the server cannot read it.
    CUT_REQUEST = "cut_in_request"
    #: The request goes through, the reply is lost and the connection cut.
    LOST_REPLY = "lost_reply"
    #: Cut in the middle of the reply.
    CUT_REPLY = "cut_in_reply"
    #: The request is never delivered, and nothing is cut: the client's time runs out.
    SWALLOWED_REQUEST = "swallowed_request"
    #: The request goes through, the reply never comes: the client's time runs out.
    SWALLOWED_REPLY = "swallowed_reply"
    DELAYED_REQUEST = "delayed_request"
    DELAYED_REPLY = "delayed_reply"


#: How many of a hundred connections meet each fate; the rest pass.
IN_A_HUNDRED: Mapping[Fate, int] = {
    Fate.REFUSED: 2,
    Fate.CUT_HANDSHAKE: 1,
    Fate.CUT_BEFORE_REQUEST: 1,
    Fate.CUT_REQUEST: 1,
    Fate.LOST_REPLY: 4,
    Fate.CUT_REPLY: 2,
    Fate.SWALLOWED_REQUEST: 1,
    Fate.SWALLOWED_REPLY: 2,
    Fate.DELAYED_REQUEST: 3,
    Fate.DELAYED_REPLY: 3,
}


class Act(StrEnum):
    """What is done with one record."""

    PASS = "pass"
    CUT = "cut"
    CUT_HALF = "cut_half"
    SWALLOW = "swallow"
    DELAY = "delay"


#: fate -> (from the client?, records of application data before this one, what is done with it and all after it).
DEEDS: Mapping[Fate, tuple[bool, int, Act]] = {
    Fate.CUT_BEFORE_REQUEST: (True, 1, Act.CUT),
    Fate.CUT_REQUEST: (True, 1, Act.CUT_HALF),
    Fate.SWALLOWED_REQUEST: (True, 1, Act.SWALLOW),
    Fate.DELAYED_REQUEST: (True, 1, Act.DELAY),
    Fate.LOST_REPLY: (False, TICKETS, Act.CUT),
    Fate.CUT_REPLY: (False, TICKETS, Act.CUT_HALF),
    Fate.SWALLOWED_REPLY: (False, TICKETS, Act.SWALLOW),
    Fate.DELAYED_REPLY: (False, TICKETS, Act.DELAY),
}


class Lan:
    """Whether anything gets through. `cut` and `refuse` are for an outage: what becomes of connections, old and new."""

    def __init__(self) -> None:
        self.refusing = False
        self._up = asyncio.Event()
        self._up.set()
        self._connections: set[_Connection] = set()

    def enter(self, connection: "_Connection") -> None:
        """Count a connection in."""
        self._connections.add(connection)

    def leave(self, connection: "_Connection") -> None:
        """Count a connection out."""
        self._connections.discard(connection)

    async def open(self) -> None:
        """Wait until something gets through."""
        await self._up.wait()

    def down(self, *, cut: bool, refuse: bool) -> None:
        """Let nothing through. Open connections are cut, or freeze; new ones are refused, or freeze."""
        self._up.clear()
        self.refusing = refuse
        for connection in list(self._connections) if cut else ():
            connection.cut()

    def up(self) -> None:
        """Let everything through again; what froze goes on."""
        self.refusing = False
        self._up.set()


class _Cut(Exception):
    """The fate of a connection is that it ends here."""


@dataclass(eq=False)
class _Connection:
    """The two ends of one connection, and what has passed."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    #: Records of application data from the client, and those of the server since the first of these.
    seen: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    swallowing: set[bool] = field(default_factory=set)
    met: bool = False  # its fate has come

    def cut(self) -> None:
        """Reset both ends."""
        for writer in (self.client, self.server):
            if writer is None:
                continue
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    def close(self) -> None:
        """Close both ends in order."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.close()


class Proxy(Listener):
    """Listens on one address and connects to another that can change: `upstream`, None while nothing listens there."""

    def __init__(self, name: str, seed: int, lans: tuple[Lan, ...]) -> None:
        super().__init__()
        self.upstream: tuple[str, int] | None = None
        #: How many connections met each fate, those counted that came to it.
        self.fates: Counter[str] = Counter()
        self.faulty = True
        #: Whether connections meet fates, and not only outages.
        self.fateful = True
        self._rng = Random(f"proxy/{seed}/{name}")
        self._deck: list[Fate] = []
        self._lans = lans

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        for lan in self._lans:
            lan.enter(connection)
        fate, rng = self._draw()
        try:
            await self._serve(connection, reader, fate, rng)
        except _Cut:
            if rng.random() < 0.5:
                connection.cut()
        except OSError:
            connection.cut()  # an end is gone
        except asyncio.CancelledError:
            connection.cut()  # by `stop`; a task of the server that ends as cancelled would be told as a fault
        finally:
            for lan in self._lans:
                lan.leave(connection)
            connection.close()
            if not connection.met and fate is not Fate.PASSED:
                self._deck.append(fate)  # an end was gone before it came: the next connection has it

    def _draw(self) -> tuple[Fate, Random]:
        """Draw the fate of the next connection, and the numbers for it.

        Fates are dealt like cards, so that each of them comes once in a hundred connections that can meet one.
        """
        rng = Random(self._rng.getrandbits(64))
        if not self.faulty:
            return Fate.PASSED, rng
        return self._deal() if self.fateful else Fate.PASSED, rng

    def _deal(self) -> Fate:
        if not self._deck:
            self._deck = [fate for fate, count in IN_A_HUNDRED.items() for _ in range(count)]
            self._deck += [Fate.PASSED] * (100 - len(self._deck))
            self._rng.shuffle(self._deck)
        return self._deck.pop()

    async def _serve(self, connection: _Connection, reader: asyncio.StreamReader, fate: Fate, rng: Random) -> None:
        if any(lan.refusing for lan in self._lans):
            raise ConnectionRefusedError
        await self._open()
        if fate is Fate.REFUSED:
            self._meet(connection, fate)
            raise _Cut
        if self.upstream is None:
            raise ConnectionRefusedError
        far, connection.server = await asyncio.open_connection(*self.upstream)
        if fate in (Fate.PASSED, Fate.CUT_HANDSHAKE):
            self._meet(connection, fate)
        pumps = [
            asyncio.create_task(self._pump(connection, source, fate, rng, from_client=source is reader))
            for source in (reader, far)
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, connection: _Connection, source: asyncio.StreamReader, fate: Fate, rng: Random, *, from_client: bool
    ) -> None:
        """Carry records from one end to the other, until this end closes or the fate comes."""
        assert connection.server is not None
        target = connection.server if from_client else connection.client
        while True:
            try:
                head = await source.readexactly(_HEAD.size)
                kind, _, length = _HEAD.unpack(head)
                record = head + await source.readexactly(length)
            except asyncio.IncompleteReadError:
                break
            await self._open()
            act = self._act(connection, fate, kind, from_client=from_client)
            if act is Act.DELAY:
                await asyncio.sleep(rng.uniform(0.05, MAX_DELAY_SECONDS))
                await self._open()
            if act is Act.CUT or (fate is Fate.CUT_HANDSHAKE and not from_client):
                raise _Cut
            if act is Act.CUT_HALF:
                target.write(record[: len(record) // 2])
                await target.drain()
                raise _Cut
            if act is not Act.SWALLOW:
                target.write(record)
                await target.drain()
        await self._open()
        if from_client in connection.swallowing:
            if from_client:
                raise _Cut  # it has given up
            return  # it goes on waiting for what was swallowed
        target.write_eof()

    def _act(self, connection: _Connection, fate: Fate, kind: int, *, from_client: bool) -> Act:
        """Decide on a record, and count it."""
        if from_client in connection.swallowing:
            return Act.SWALLOW
        if kind != APPLICATION_DATA or not (from_client or connection.seen[True]):
            return Act.PASS  # the handshake
        number = connection.seen[from_client]
        connection.seen[from_client] += 1
        if fate not in DEEDS or DEEDS[fate][:2] != (from_client, number):
            return Act.PASS
        self._meet(connection, fate)
        act = DEEDS[fate][2]
        if act is Act.SWALLOW:
            connection.swallowing.add(from_client)
        return act

    def _meet(self, connection: _Connection, fate: Fate) -> None:
        connection.met = True
        self.fates[fate] += 1

    async def _open(self) -> None:
        for lan in self._lans:
            await lan.open()
