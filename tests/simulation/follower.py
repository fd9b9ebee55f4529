"""A program that follows the stream of the feed, like head office.

After a break the program continues after its last change. The program must get each change once, in order, and in time.
"""

import asyncio
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.http import Stream

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
        self._stream: Stream | None = None

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        while True:
            with suppress(OSError):
                end = await self.world.network.dial("follower", self.world.machine.feed_socket)
                stream, life = Stream(end, self._take), self.world.machine.life
                self._stream, began = stream, self.world.loop.time()
                try:
                    where = f"last-event-id: {self._place}\r\n" if self._place else ""
                    await stream.run("/v1/feed?after=start", where)
                finally:
                    self._stream = None
                    end.abort()
                if stream.status == 200:
                    self.world.checks.stream_ended("the feed", life, began, stream.last)
            await asyncio.sleep(PAUSE)

    @property
    def since(self) -> float:
        """Time at which the follower connected, in seconds of the loop. The time is inf without a connection."""
        return math.inf if self._stream is None else self._stream.since

    def _take(self, kind: str, place: str, data: bytes) -> None:
        """Receive a message of the stream."""
        if kind == "notice":
            self._seq = 0  # this change follows a gap, or comes from another database
        if not place:
            return
        change: dict[str, Any] = json.loads(data)
        self.world.checks.streamed(change, self._seq)
        self._place, self._seq = place, change["seq"]
