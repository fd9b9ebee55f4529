"""The terminal's time: real time, run faster by a factor."""

import asyncio
import time


class Clock:
    """Sleeps and measures in terminal seconds; with speed 20 a terminal second is 50 ms."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of the terminal's time pass."""
        await asyncio.sleep(seconds / self._speed)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for `event`, at most `seconds` of the terminal's time (None: for ever); True where it is set."""
        try:
            async with asyncio.timeout(None if seconds is None else seconds / self._speed):
                await event.wait()
        except TimeoutError:
            pass  # the event may have been set in the very turn of the time-out: look at it, not at the exception
        return event.is_set()

    def since(self, epoch: float) -> float:
        """Terminal seconds since the wall-clock time `epoch`, which can lie before a restart; never negative."""
        return max(0.0, (time.time() - epoch) * self._speed)
