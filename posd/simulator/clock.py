"""The terminal's time, real (run faster by a factor) or virtual (it passes only when it is told to), and its tasks.

Moments are seconds since the epoch, and keep their meaning over a restart. How far two of them lie apart in the
terminal's time only the clock can tell: ask it with `since` and `until`, and make a moment to come with `after`.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

#: Turns of the event loop that woken work gets to come to its next pause, or to the network. It needs a handful.
_TURNS = 100


class Clock:
    """Sleeps and measures in terminal seconds; with speed 20 a terminal second is 50 ms."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return this moment: the wall clock's."""
        return time.time()

    def after(self, seconds: float) -> float:
        """Return the moment that lies `seconds` of the terminal's time from now."""
        return self.now() + seconds / self._speed

    def since(self, moment: float) -> float:
        """Terminal seconds since a moment, which can lie before a restart; never negative."""
        return max(0.0, (self.now() - moment) * self._speed)

    def until(self, moment: float) -> float:
        """Terminal seconds until a moment; never negative."""
        return max(0.0, (moment - self.now()) * self._speed)

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

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do something that takes real time, on the network: virtual time stands still meanwhile, real time passes."""
        yield

    async def make_up(self, seconds: float) -> None:
        """Let the real `seconds` that the network took pass on a clock that was held meanwhile."""


class VirtualClock(Clock):
    """Time that passes only by `advance`, and is then the same in each run.

    A task that sleeps is woken at its exact moment, in the order of the moments. Time goes on only once what it does
    then has come to its next pause: a POST that it makes takes no time on this clock.
    """

    def __init__(self, start: float = 0.0, speed: float = 1.0) -> None:
        """It stands at `start`, in seconds since the epoch; `speed` is for real seconds alone, see `make_up`."""
        super().__init__()
        self._network_speed = speed
        self._now = start
        #: Moment, the order of the calls, and what is set then.
        self._alarms: list[tuple[float, int, asyncio.Future[None]]] = []
        self._asked = 0
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()
        self._advancing = asyncio.Lock()

    def now(self) -> float:
        """Return the moment at which this clock stands."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and everything that happens in them; return when it has happened.

        Raises ValueError where `seconds` is negative: time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} seconds")
        async with self._advancing:
            end = self._now + seconds
            await self._settle()
            while self._alarms and self._alarms[0][0] <= end:
                self._now, _, alarm = heapq.heappop(self._alarms)
                if not alarm.done():
                    alarm.set_result(None)
                    await self._settle()
            self._now = end

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self._alarm(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for `event`, at most until the clock was advanced by `seconds` (None: for ever); True where set."""
        if seconds is None:
            return await event.wait()
        alarm = self._alarm(seconds)
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((alarm, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            waiting.cancel()
        return event.is_set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the clock where it stands, while something takes real time."""
        self._holders += 1
        self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._free.set()

    async def make_up(self, seconds: float) -> None:
        """Let the real `seconds` that the network took pass on this clock too, as many times over as the speed says."""
        await self.sleep(seconds * self._network_speed)

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked += 1
        heapq.heappush(self._alarms, (self._now + seconds, self._asked, alarm))
        return alarm

    async def _settle(self) -> None:
        """Return when each task sleeps, or waits for something that is not time."""
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if not self._holders:
                return
            await self._free.wait()


class Tasks:
    """Work that goes on in the background until it is done, or stopped."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Begin some work; an exception that it ends with is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def stop(self) -> None:
        """Cancel all work and wait until it has ended. Other work can be begun afterwards."""
        await cancel(self._running)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of the simulator: the next payment can still run
            _log.error("the simulated terminal broke off: %s", error, exc_info=error)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    canceled = list(tasks)
    for task in canceled:
        task.cancel()
    await asyncio.gather(*canceled, return_exceptions=True)
