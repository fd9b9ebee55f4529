"""A program that follows the stream of the feed, like head office. After a break the program continues after its last
change. The program must get each change once, in order, and in time.
"""

import asyncio
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Seconds until the follower connects again.
PAUSE: Final = 1.0


class Follower:
    """One follower of the feed."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._place = ""  # number of the last change that the follower has
        self._seq = 0
        #: Time at which the follower connected, in seconds of the loop. The time is inf without a connection.
        self.since = math.inf

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        while True:
            with suppress(OSError):
                end = await self.world.network.dial("follower", self.world.machine.feed_socket)
                stream, life = _Stream(end, self), self.world.machine.life
                try:
                    began = self.world.loop.time()
                    await stream.run(self._place)
                finally:
                    self.since = math.inf
                    end.abort()
                if stream.status == 200:
                    self.world.checks.stream_ended("the feed", life, began, stream.last)
            await asyncio.sleep(PAUSE)

    def take(self, kind: str, place: str, data: bytes) -> None:
        """Receive a message of the stream."""
        if kind == "notice":
            self._seq = 0  # this change follows a gap, or comes from another database
        if not place:
            return
        change: dict[str, Any] = json.loads(data)
        self.world.checks.streamed(change, self._seq)
        self._place, self._seq = place, change["seq"]


class _Stream(asyncio.Protocol):
    """Reader of server-sent events from the pieces of an HTTP response."""

    def __init__(self, end: Any, follower: Follower) -> None:
        self._end, self._follower = end, follower
        self._over = asyncio.Event()
        self._received, self._text = b"", b""
        self.status, self.last = 0, ""
        end.attach(self)

    async def run(self, place: str) -> None:
        """Request the feed after a change, and read until the stream ends."""
        where = f"last-event-id: {place}\r\n" if place else ""
        head = f"GET /v1/feed?after=start HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n{where}\r\n"
        self._end.write(head.encode())
        await self._over.wait()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self.status:
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if not separator:
                return
            self.status, self._received = int(head.split(b" ")[1]), rest
            if self.status != 200:
                self._over.set()
                return
            self._follower.since = self._follower.world.loop.time()
        while b"\r\n" in self._received:
            length, _, rest = self._received.partition(b"\r\n")
            size = int(length, 16)
            if len(rest) < size + 2:
                return
            self._text += rest[:size]
            self._received = rest[size + 2 :]
            self._read()

    def _read(self) -> None:
        *messages, self._text = self._text.split(b"\n\n")
        for message in messages:
            said = dict(line.partition(b": ")[::2] for line in message.split(b"\n"))
            if b"event" in said:
                self.last = said[b"event"].decode()
                self._follower.take(self.last, said.get(b"id", b"").decode(), said[b"data"])

    def eof_received(self) -> bool:
        self._over.set()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._over.set()
