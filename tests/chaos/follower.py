"""A reader who follows the feed through all restarts, as a back office does: each change once, in order."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from tests.support.streams import stream

#: Until a daemon that is away is asked again, in seconds.
AGAIN_SECONDS = 0.1

#: What is kept of a change: id, reason, phase, result.
Followed = tuple[str, str, str, str | None]


class Follower:
    """Follows the feed on one socket."""

    def __init__(self, socket: Path) -> None:
        #: seq -> the change.
        self.changes: dict[int, Followed] = {}
        #: The newest of them.
        self.newest = 0
        #: What was not as promised.
        self.faults: list[str] = []
        self._socket = socket
        self._news = asyncio.Event()

    async def follow(self) -> None:
        """Follow until cancelled."""
        while True:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError, ValueError):
                await self._listen()
            await asyncio.sleep(AGAIN_SECONDS)

    async def reach(self, seq: int) -> None:
        """Wait until it has read so far."""
        while self.newest < seq:
            self._news.clear()
            await self._news.wait()

    async def _listen(self) -> None:
        async with stream(self._socket, "/feed", last_event_id=self.newest) as messages:
            async for message in messages:
                if message.id is None:
                    continue  # the stream ends, and says why
                change = json.loads(message.data)
                if change["seq"] <= self.newest:
                    self.faults.append(f"change {change['seq']} of the feed came after {self.newest}")
                self.newest = change["seq"]
                self.changes[self.newest] = (change["id"], change["reason"], change["phase"], change["result"])
                self._news.set()
