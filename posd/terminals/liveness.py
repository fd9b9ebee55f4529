"""Probes of terminals by posd itself, limited in rate; `due` has the rules."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from posd.base.clocks import monotonic
from posd.terminals.fleet import Fleet
from posd.terminals.location import AddressChange

# Times of probes, from the state of a terminal: no I/O.
#
# mDNS reports that a terminal has come, and often that it goes, but not a pulled plug: its records live for an hour and
# more. So posd probes itself, with a reason: a new announcement, a call that shows the terminals, an open payment, a
# terminal that was just lost. Without a reason it probes rarely.

#: Least pause between two probes of one terminal, in seconds, so that repeated announcements cause no storm.
SPACING_SECONDS = 2.0
#: Pause during an open payment without news from the terminal, in seconds.
OPEN_SECONDS = 30.0
#: Pause during a conflict, in seconds: a probe must show that it ended.
CONTESTED_SECONDS = 5.0
#: First pause after the loss of a terminal, doubled each time up to the second value. Seconds.
LOST_SECONDS = 5.0
MAX_LOST_SECONDS = 60.0
#: Probes with these pauses, some 10 minutes; then the terminal is probed as rarely as others, unless a payment is open.
LOST_LOOKS = 12
#: Probes without a reason are at multiples of this on the clock, so that those of a fleet coincide. Seconds.
TOGETHER_SECONDS = 20.0
#: Least number of such multiples in a pause, so that a probe is early by a small part of the pause only.
TOGETHER_PAUSES = 10


class ProbeState(msgspec.Struct, frozen=True):
    """State of one terminal: time of the last probe or sign of life (monotonic seconds), failed probes since then, and
    whether a probe is wanted.
    """

    last: float
    failures: int = 0
    wanted: bool = False


def probe_now(pulse: ProbeState) -> ProbeState:
    """Return the state with a probe wanted as soon as possible."""
    return msgspec.structs.replace(pulse, wanted=True)


def heard(pulse: ProbeState, now: float) -> ProbeState:
    """Return the state after a sign of life."""
    return ProbeState(now, pulse.failures, pulse.wanted)  # runs for each event: `replace` takes four times as long


def begun(pulse: ProbeState, now: float) -> ProbeState:
    """Return the state at the start of a probe, which fulfils the wish for one."""
    return msgspec.structs.replace(pulse, last=now, wanted=False)


def looked(pulse: ProbeState, now: float, *, reached: bool) -> ProbeState:
    """Return the state after the result of a probe or a call."""
    return msgspec.structs.replace(pulse, last=now, failures=0 if reached else pulse.failures + 1)


def due(pulse: ProbeState, *, busy: bool, every: float, contested: bool = False) -> float | None:
    """Return the time of the next probe (monotonic seconds), or None if there is no reason for one.

    `busy`: a payment is open there. `contested`: several devices claim to be it. `every`: pause without a reason, in
    seconds, 0 for never.
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
    """Return the end of a pause, or a slightly earlier time that it shares with others."""
    end = last + pause
    return end - end % TOGETHER_SECONDS if pause >= TOGETHER_PAUSES * TOGETHER_SECONDS else end


#: Most probes at the same time.
MAX_LOOKS = 4
#: Largest part by which chance shortens the pause without a reason, so that the probes of a fleet spread.
SPREAD = 0.2


class Liveness:
    """Prober of the terminals. Run `run` as a task; cancel it to stop.

    Each terminal has its own timer, and news of a terminal affects only that one. News that postpones a probe moves no
    timer: the timer checks at its end, and waits on. So `changed` must be called only for news that makes a probe due
    sooner.

    `every`: seconds between two probes without a reason, 0 for none. `busy`: returns whether a terminal has an open
    payment. `chance`: returns a random number from 0 to 1.
    """

    def __init__(self, fleet: Fleet, every: float, busy: Callable[[str], bool], chance: Callable[[], float]) -> None:
        self._fleet = fleet
        self._busy = busy
        self._seconds = every
        self._chance = chance
        self._pulses: dict[str, ProbeState] = {}
        self._every: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(MAX_LOOKS)
        self._running = False
        fleet.listen(self._heard, AddressChange.HEARD)
        fleet.listen(self._wanted, AddressChange.WANTED)
        fleet.listen(self._reached, AddressChange.REACHED)
        fleet.listen(self._missed, AddressChange.MISSED)
        fleet.listen(self.changed, AddressChange.CHANGED, AddressChange.OPENED)

    async def run(self) -> None:
        """Probe the terminals that are due, until cancelled."""
        self._running = True
        try:
            for serial in self._fleet.serials:
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
        """Plan the next probe of a terminal again: it may be due sooner than before."""
        if not self._running or serial in self._looks:  # the end of the probe plans the next one
            return
        at, timer = self._due(serial), self._timers.get(serial)
        if at is None or (timer is not None and timer.when() <= at):
            return
        if timer is not None:
            timer.cancel()
        self._timers[serial] = asyncio.get_running_loop().call_at(at, self._ended, serial)

    def _pause(self) -> float:
        return self._seconds * (1 - SPREAD * self._chance())

    def _state(self, serial: str) -> ProbeState:
        """Return the state of a terminal; a new one is probed without delay."""
        if serial not in self._pulses:
            self._pulses[serial], self._every[serial] = ProbeState(monotonic() - SPACING_SECONDS), self._pause()
        return self._pulses[serial]

    def _due(self, serial: str) -> float | None:
        """Return the time of a terminal's next probe, or None if it has no device on this network or no reason."""
        terminal = self._fleet.get(serial)
        if terminal is None or not terminal.can_be_probed:
            return None
        state, contested = self._state(serial), terminal.conflict is not None
        return due(state, busy=self._busy(serial), every=self._every[serial], contested=contested)

    def _ended(self, serial: str) -> None:
        """Probe a terminal whose timer has ended, if the probe is still due."""
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
            await self._fleet.of(serial).check()

    def _looked(self, serial: str, _look: "asyncio.Task[None]") -> None:
        del self._looks[serial]
        self.changed(serial)

    # News of a terminal from the fleet, on the loop.

    def _heard(self, serial: str) -> None:
        self._pulses[serial] = heard(
            self._state(serial), asyncio.get_running_loop().time()
        )  # this only postpones the next probe

    def _wanted(self, serial: str) -> None:
        self._pulses[serial] = probe_now(self._state(serial))
        self.changed(serial)

    def _reached(self, serial: str) -> None:
        self._pulses[serial] = looked(self._state(serial), monotonic(), reached=True)  # the next probe is only later

    def _missed(self, serial: str) -> None:
        self._pulses[serial] = looked(self._state(serial), monotonic(), reached=False)
        self.changed(serial)
