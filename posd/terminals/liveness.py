"""Looks at the terminals by itself when there is a reason to, politely: see `due` for when."""

import asyncio
from collections.abc import Callable
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
#: Looks without any reason are at multiples of this on the clock, so that those of a fleet are together. Seconds.
TOGETHER_SECONDS = 20.0
#: Where the pause between them is at least so many of these: a look is too early by no more than a part of the pause.
TOGETHER_PAUSES = 10


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
    return Pulse(now, pulse.failures, pulse.wanted)  # each event comes by: `replace` takes four times as long


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
    times = [_together(pulse.last, max(every, SPACING_SECONDS))] if every else []
    if busy:
        times.append(pulse.last + OPEN_SECONDS)
    if contested:
        times.append(pulse.last + CONTESTED_SECONDS)
    if pulse.failures and (busy or pulse.failures <= LOST_LOOKS):
        times.append(pulse.last + min(LOST_SECONDS * 2.0 ** min(pulse.failures - 1, 10), MAX_LOST_SECONDS))
    return min(times, default=None)


def _together(last: float, pause: float) -> float:
    """Return the end of a pause, or a little earlier, where others end as well."""
    end = last + pause
    return end - end % TOGETHER_SECONDS if pause >= TOGETHER_PAUSES * TOGETHER_SECONDS else end


#: Terminals that are looked at at the same time: looks must not become a storm.
MAX_LOOKS = 4
#: The pause without any reason is shorter by up to this part of it, by chance, each time by another: the looks of a
#: fleet spread by it.
SPREAD = 0.2


class Liveness:
    """Run `run` as a task; cancel it to stop.

    Each terminal has a timer of its own, and news of a terminal touches that one alone. What puts a look off moves no
    timer: it finds out when it ends, and waits on. So `changed` is to be called for what makes a look due sooner.

    `every`: seconds between two looks without any reason, 0 for none. `busy` tells whether a payment of a terminal is
    open. `chance`: from 0 to 1, another each time.
    """

    def __init__(self, fleet: Fleet, every: float, busy: Callable[[str], bool], chance: Callable[[], float]) -> None:
        self._fleet = fleet
        self._busy = busy
        self._seconds = every
        self._chance = chance
        self._pulses: dict[str, Pulse] = {}
        self._every: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_LOOKS)
        self._running = False
        self._fit()
        fleet.addresses.on_news = self._take
        fleet.on_change = self._fit

    async def run(self) -> None:
        """Look at the terminals that are due, until cancelled."""
        self._running = True
        try:
            for serial in self._pulses:
                self.changed(serial)
            await asyncio.Event().wait()
        finally:
            self._running = False
            for timer in self._timers.values():
                timer.cancel()
            looks = list(self._looks.values())
            for look in looks:
                look.cancel()
            if looks:
                await asyncio.wait(looks)

    def changed(self, serial: str) -> None:
        """Have a terminal looked at when it is due by what is known now: that may be sooner than before."""
        if not self._running or serial in self._looks:  # it is planned anew when the look has ended
            return
        at, timer = self._due(serial), self._timers.get(serial)
        if at is None or (timer is not None and timer.when() <= at):
            return
        if timer is not None:
            timer.cancel()
        self._timers[serial] = asyncio.get_running_loop().call_at(at, self._ended, serial)

    def _fit(self) -> None:
        """Have a pulse for each terminal of the fleet, and for no other."""
        start = monotonic() - SPACING_SECONDS
        serials = self._fleet.serials
        pauses = {serial: self._pause() for serial in serials}
        self._pulses = {serial: self._pulses.get(serial, Pulse(start)) for serial in serials}
        self._every = {serial: self._every.get(serial, pauses[serial]) for serial in serials}
        for serial in serials:
            self.changed(serial)

    def _pause(self) -> float:
        return self._seconds * (1 - SPREAD * self._chance())

    def _due(self, serial: str) -> float | None:
        """Return from when on a terminal is to be looked at, None where it cannot be or nothing asks for it."""
        item, addresses = self._pulses.get(serial), self._fleet.addresses
        if item is None or not addresses.can_be_looked_at(serial):
            return None
        contested = addresses.conflict(serial) is not None
        return due(item, busy=self._busy(serial), every=self._every[serial], contested=contested)

    def _ended(self, serial: str) -> None:
        """Look at a terminal whose timer has ended, unless it was heard, or nothing asks for it any more."""
        del self._timers[serial]
        at, now = self._due(serial), monotonic()
        if at is None or at > now:
            self.changed(serial)
            return
        self._pulses[serial], self._every[serial] = begun(self._pulses[serial], now), self._pause()
        look = asyncio.create_task(self._look(serial), name=f"liveness-{serial}")
        self._looks[serial] = look
        look.add_done_callback(partial(self._looked, serial))

    async def _look(self, serial: str) -> None:
        async with self._turns:
            await self._fleet.addresses.check(serial)

    def _looked(self, serial: str, _look: "asyncio.Task[None]") -> None:
        del self._looks[serial]
        self.changed(serial)

    def _take(self, serial: str, news: News) -> None:
        """Hear of a terminal from the fleet, on the loop."""
        item = self._pulses.get(serial)
        if item is None:  # a look at a terminal that has left the fleet
            return
        match news:
            case News.HEARD:
                self._pulses[serial] = heard(item, monotonic())
                return  # that only puts off the next look
            case News.WANTED:
                self._pulses[serial] = want(item)
            case News.REACHED | News.MISSED:
                self._pulses[serial] = looked(item, monotonic(), reached=news is News.REACHED)
            case News.CHANGED:
                pass
        self.changed(serial)
