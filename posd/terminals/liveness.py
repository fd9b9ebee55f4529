"""Looks at the terminals by itself when there is a reason to, politely: see `due` for when."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import msgspec

from posd.base.clocks import monotonic
from posd.terminals.addresses import News
from posd.terminals.fleet import Fleet

# When a terminal is looked at by itself, from what is known of it: no I/O.
#
# mDNS tells that a terminal has come, and often that it goes, but not that its plug was pulled: its records live
# for an hour and more. So posd looks by itself, and only where there is a reason to: what is announced anew,
# a call that shows the terminals, a payment that is open, a terminal that has just been lost, and otherwise
# rarely.

#: The least pause between two looks at one terminal, in seconds: an announcer that flaps causes no storm.
SPACING_SECONDS = 2.0
#: While a payment is open there and nothing was heard of it, in seconds.
OPEN_SECONDS = 30.0
#: While devices contradict each other about who is it, in seconds: that it ended by itself has to be seen.
CONTESTED_SECONDS = 5.0
#: A terminal that was lost is looked for after this, each time twice as long later, up to the second. Seconds.
LOST_SECONDS = 5.0
MAX_LOST_SECONDS = 60.0
#: So many times; then it is looked for as rarely as all the others (unless a payment is open): some 10 minutes.
LOST_LOOKS = 12


class Pulse(msgspec.Struct, frozen=True):
    """What is known of one terminal: when it was last looked at or heard (monotonic seconds), the looks since that
    failed, and whether something wants it looked at.
    """

    last: float
    failures: int = 0
    wanted: bool = False


def want(pulse: Pulse) -> Pulse:
    """Note that it is to be looked at as soon as may be."""
    return msgspec.structs.replace(pulse, wanted=True)


def heard(pulse: Pulse, now: float) -> Pulse:
    """Note that it said something by itself."""
    return msgspec.structs.replace(pulse, last=now)


def begun(pulse: Pulse, now: float) -> Pulse:
    """Note that it is being looked at: what wanted it has it."""
    return msgspec.structs.replace(pulse, last=now, wanted=False)


def looked(pulse: Pulse, now: float, *, reached: bool) -> Pulse:
    """Note what came of a look at it, or of a call."""
    return msgspec.structs.replace(pulse, last=now, failures=0 if reached else pulse.failures + 1)


def due(pulse: Pulse, *, busy: bool, every: float, contested: bool = False) -> float | None:
    """Return from when on it is to be looked at, None where nothing asks for it.

    `busy`: a payment is open there. `contested`: several devices claim to be it.
    `every`: the pause without any reason, in seconds, 0 for never.
    """
    if pulse.wanted:
        return pulse.last + SPACING_SECONDS
    pauses = [max(every, SPACING_SECONDS)] if every else []
    if busy:
        pauses.append(OPEN_SECONDS)
    if contested:
        pauses.append(CONTESTED_SECONDS)
    if pulse.failures and (busy or pulse.failures <= LOST_LOOKS):
        pauses.append(min(LOST_SECONDS * 2.0 ** min(pulse.failures - 1, 10), MAX_LOST_SECONDS))
    return pulse.last + min(pauses) if pauses else None


#: Terminals that are looked at at the same time: looks must not become a storm.
MAX_LOOKS = 4
#: The pause without any reason is shorter by up to this part of it, by chance: the looks of a fleet spread by it.
SPREAD = 0.2


class Liveness:
    """Run `run` as a task; cancel it to stop.

    `every`: seconds between two looks without any reason, 0 for none. `busy` names the terminals with open payments.
    `chance`: from 0 to 1, another each time.
    """

    def __init__(
        self, fleet: Fleet, every: float, busy: Callable[[], Collection[str]], chance: Callable[[], float]
    ) -> None:
        self._fleet = fleet
        self._busy = busy
        self._seconds = every
        self._chance = chance
        self._pulses: dict[str, Pulse] = {}
        self._every: dict[str, float] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_LOOKS)
        self._wake = asyncio.Event()
        self._fit()
        fleet.addresses.on_news = self._take
        fleet.on_change = self._fit

    async def run(self) -> None:
        """Look at the terminals that are due, until cancelled."""
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
        start = monotonic() - SPACING_SECONDS
        serials = self._fleet.serials
        pauses = {serial: self._seconds * (1 - SPREAD * self._chance()) for serial in serials}
        self._pulses = {serial: self._pulses.get(serial, Pulse(start)) for serial in serials}
        self._every = {serial: self._every.get(serial, pauses[serial]) for serial in serials}

    def _start_looks(self) -> float | None:
        """Start the looks that are due; return in how many seconds the next is, None for never."""
        now, busy, pauses = monotonic(), self._busy(), []
        for serial, item in self._pulses.items():
            if serial in self._looks or not self._fleet.addresses.can_be_looked_at(serial):
                continue
            contested = self._fleet.addresses.conflict(serial) is not None
            at = due(item, busy=serial in busy, every=self._every[serial], contested=contested)
            if at is not None and at <= now:
                self._pulses[serial] = begun(item, now)
                look = asyncio.create_task(self._look(serial), name=f"liveness-{serial}")
                self._looks[serial] = look
                look.add_done_callback(partial(self._looked, serial))
            elif at is not None:
                pauses.append(at - now)
        return min(pauses, default=None)

    async def _look(self, serial: str) -> None:
        async with self._turns:
            await self._fleet.addresses.check(serial)

    def _looked(self, serial: str, _look: "asyncio.Task[None]") -> None:
        self._looks.pop(serial, None)
        self._wake.set()

    def _take(self, serial: str, news: News) -> None:
        """Hear of a terminal from the fleet, on the loop."""
        now, item = monotonic(), self._pulses.get(serial)
        if item is None:  # a look at a terminal that has left the fleet
            return
        match news:
            case News.WANTED:
                item = want(item)
            case News.HEARD:
                item = heard(item, now)
            case News.REACHED | News.MISSED:
                item = looked(item, now, reached=news is News.REACHED)
        self._pulses[serial] = item
        if news is not News.HEARD:  # that only puts off the next look
            self._wake.set()
