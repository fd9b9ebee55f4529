"""Clock and background tasks of a terminal. Time is real (faster by a factor) or virtual (only `advance` changes it).

Moments are seconds since the epoch, and stay valid after a restart. Only the clock can convert moments to durations of
the terminal's time: `since` and `until` return durations, `after` returns a future moment.
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

#: After this number of turns of the event loop, woken tasks have reached their next pause or network call. A few turns
#: are enough.
_TURNS = 100


class Clock:
    """Clock in terminal seconds. At speed 20 a terminal second is 50 ms."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return this moment on the wall clock."""
        return time.time()

    def after(self, seconds: float) -> float:
        """Return the moment `seconds` of the terminal's time from now."""
        return self.now() + seconds / self._speed

    def since(self, moment: float) -> float:
        """Return the terminal seconds since a moment, which may be before a restart. The result is never negative."""
        return max(0.0, (self.now() - moment) * self._speed)

    def until(self, moment: float) -> float:
        """Return the terminal seconds until a moment. The result is never negative."""
        return max(0.0, (moment - self.now()) * self._speed)

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of the terminal's time."""
        await asyncio.sleep(seconds / self._speed)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for `event`, at most `seconds` of the terminal's time (None: no limit). Return whether it is set."""
        try:
            async with asyncio.timeout(None if seconds is None else seconds / self._speed):
                await event.wait()
        except TimeoutError:
            pass  # the event may have been set in the same turn as the time-out, so check the event
        return event.is_set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop virtual time during a block that waits for the network. On this clock, time continues."""
        yield

    async def make_up(self, seconds: float) -> None:
        """Advance a virtual clock by the real `seconds` that the network took. On this clock, do nothing."""


class VirtualClock(Clock):
    """Clock that changes only by `advance`, so each run has the same times.

    Sleeping tasks are woken at their exact moments, in order. The time stands still until the woken task has reached
    its next pause, so its POST takes no time on this clock.
    """

    def __init__(self, start: float = 0.0, speed: float = 1.0) -> None:
        """Set the clock to `start`, in seconds since the epoch. `speed` affects only `make_up`."""
        super().__init__()
        self._network_speed = speed
        self._now = start
        #: (moment, order of the call, future to set at that moment).
        self._alarms: list[tuple[float, int, asyncio.Future[None]]] = []
        self._asked = 0
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()
        self._advancing = asyncio.Lock()

    def now(self) -> float:
        """Return the present moment of this clock."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds`, and run everything that is due in that time. Return when it has run.

        Raise ValueError if `seconds` is negative.
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
        """Wait for `event`, at most until the clock was advanced by `seconds` (None: no limit). Return whether it is
        set.
        """
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
        """Stop the clock during a block that waits for the network."""
        self._holders += 1
        self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._free.set()

    async def make_up(self, seconds: float) -> None:
        """Advance this clock by the real `seconds` that the network took, times the speed."""
        await self.sleep(seconds * self._network_speed)

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked += 1
        heapq.heappush(self._alarms, (self._now + seconds, self._asked, alarm))
        return alarm

    async def _settle(self) -> None:
        """Wait until each task sleeps, or waits for something other than time."""
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if not self._holders:
                return
            await self._free.wait()


class Tasks:
    """Background tasks, which run until they end or are stopped."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task. An exception of the task is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended. New tasks can be started afterwards."""
        await cancel(self._running)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # an error of the simulator must not prevent the next payment
            _log.error("the simulated terminal broke off: %s", error, exc_info=error)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end."""
    canceled = list(tasks)
    for task in canceled:
        task.cancel()
    await asyncio.gather(*canceled, return_exceptions=True)
