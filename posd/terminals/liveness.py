"""Looks at the terminals by itself when there is a reason to, politely: see `pulse` for when."""

import asyncio
import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from posd.terminals import probe_schedule
from posd.terminals.fleet import Fleet, News
from posd.terminals.probe_schedule import Pulse

#: Terminals that are looked at at the same time: a look must not be a storm, whatever has changed.
MAX_LOOKS = 4
#: The pause without any reason is shorter by up to this part of it, by chance: the looks of a fleet spread by it.
SPREAD = 0.2


class Liveness:
    """Run `run` as a task; cancel it to stop.

    `every`: seconds between two looks without any reason, 0 for none. `busy` names the terminals with open payments.
    """

    def __init__(self, fleet: Fleet, every: float, busy: Callable[[], Collection[str]]) -> None:
        self._fleet = fleet
        self._busy = busy
        self._seconds = every
        self._pulses: dict[str, Pulse] = {}
        self._every: dict[str, float] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_LOOKS)
        self._wake = asyncio.Event()
        self._fit()
        fleet.on_news = self._take
        fleet.on_change = self._fit

    async def run(self) -> None:
        """Look at whatever is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                until = self._start_looks()
                with suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the event.
                    async with asyncio.timeout_at(until and asyncio.get_running_loop().time() + until):
                        await self._wake.wait()
        finally:
            looks = list(self._looks.values())
            for look in looks:
                look.cancel()
            if looks:
                await asyncio.wait(looks)

    def _fit(self) -> None:
        """Have a pulse for each terminal of the fleet, and for no other."""
        start = time.monotonic() - probe_schedule.SPACING_SECONDS
        serials = self._fleet.serials
        pauses = {serial: self._seconds * (1 - SPREAD * random.random()) for serial in serials}  # noqa: S311
        self._pulses = {serial: self._pulses.get(serial, Pulse(start)) for serial in serials}
        self._every = {serial: self._every.get(serial, pauses[serial]) for serial in serials}

    def _start_looks(self) -> float | None:
        """Start the looks that are due; return in how many seconds the next is, None for never."""
        now, busy, pauses = time.monotonic(), self._busy(), []
        for serial, item in self._pulses.items():
            if serial in self._looks or not self._fleet.can_be_looked_at(serial):
                continue
            at = probe_schedule.due(item, busy=serial in busy, every=self._every[serial])
            if at is not None and at <= now:
                self._pulses[serial] = probe_schedule.begun(item, now)
                look = asyncio.create_task(self._look(serial), name=f"liveness-{serial}")
                self._looks[serial] = look
                look.add_done_callback(partial(self._looked, serial))
            elif at is not None:
                pauses.append(at - now)
        return min(pauses, default=None)

    async def _look(self, serial: str) -> None:
        async with self._turns:
            await self._fleet.check(serial)

    def _looked(self, serial: str, _look: "asyncio.Task[None]") -> None:
        self._looks.pop(serial, None)
        self._wake.set()

    def _take(self, serial: str, news: News) -> None:
        """Hear of a terminal from the fleet, on the loop."""
        now, item = time.monotonic(), self._pulses.get(serial)
        if item is None:  # a look at a terminal that has left the fleet
            return
        match news:
            case News.WANTED:
                item = probe_schedule.want(item)
            case News.HEARD:
                item = probe_schedule.heard(item, now)
            case News.REACHED | News.MISSED:
                item = probe_schedule.looked(item, now, reached=news is News.REACHED)
        self._pulses[serial] = item
        if news is not News.HEARD:  # that only puts off the next look
            self._wake.set()
