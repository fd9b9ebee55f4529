"""Start and stop of simulated terminals: one, or several with a common clock."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

from posd.simulator.app import make_app
from posd.simulator.clock import Clock, VirtualClock
from posd.simulator.ledger import Ledger, Record
from posd.simulator.network import Switchboard
from posd.simulator.printer import Printer
from posd.simulator.scenario import CHOICE, Certificate
from posd.simulator.settings import Settings
from posd.simulator.terminal import PaymentTerminal
from posd.simulator.wire import SettingsError


class Simulator:
    """Running terminal, as an async context manager.

    `async with Simulator(settings) as terminal:` starts a terminal that listens when the block begins. The announcement
    follows in the background (see the ledger's `mdns` entry). Nothing runs after the block. Queued events, the record
    of finals and the print jobs stay in `settings.state`. Entering raises SettingsError if a file or the address cannot
    be used.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        """`clock`: common clock of several terminals; None: the clock of the settings."""
        self.settings = settings
        #: Clock of this terminal.
        self.clock = clock or make_clock(settings)
        #: Record of what the terminal did. The ledger and the parts below exist after the start.
        self.ledger: Ledger
        #: Part that replies to starts, aborts and searches. `hand` and `arm` are manual controls.
        self.terminal: PaymentTerminal
        #: Switches of power, network, address and certificate.
        self.switchboard: Switchboard
        self._running = AsyncExitStack()

    @property
    def base_url(self) -> str:
        """Base URL of the terminal, without a slash at the end. A move changes it."""
        return self.switchboard.base_url

    @property
    def certificate(self) -> Certificate | None:
        """Certificate that the terminal shows, or None over plain HTTP."""
        return None if self.settings.certificate is None else self.switchboard.certificate

    @property
    def printer(self) -> Printer:
        """Printer of the terminal."""
        return self.switchboard.printer

    def arm(self, name: str | None) -> asyncio.Task[None] | None:
        """Set the scenario of the next payment, or with `print:NAME` that of the next print job. None clears both.

        Return the task that prepares a scenario which begins before the request (see `PaymentTerminal.arm`). Raise
        KeyError if the scenario does not exist.
        """
        if name is not None and name.startswith(CHOICE):
            self.printer.arm(name.removeprefix(CHOICE))
            return None
        if name is None:
            self.printer.arm(None)
        return self.terminal.arm(name)

    async def power_off(self) -> None:
        """Cut the power: the running payment is lost."""
        await self.switchboard.set_powered(False)
        await self.terminal.stop()

    async def power_cycle(self, seconds: float) -> None:
        """Cut the power for `seconds` of the terminal's time: the running payment is lost."""
        await self.power_off()
        await self.clock.sleep(seconds)
        await self.switchboard.set_powered(True)

    async def __aenter__(self) -> Self:
        try:
            async with AsyncExitStack() as started:
                await self._start(started)
                self._running = started.pop_all()
        except OSError as error:
            raise SettingsError(str(error)) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings, clock = self.settings, self.clock
        seed = secrets.token_hex(8) if settings.seed is None else f"{settings.seed}/{settings.serial}"
        self.ledger = ledger = Ledger(settings.ledger_file, settings.answered_in)
        stack.callback(ledger.close)
        self.switchboard = switchboard = Switchboard(settings, ledger, clock, seed=seed)
        stack.push_async_callback(switchboard.close)
        record = Record(settings.state / "transactions.jsonl")
        stack.callback(record.close)
        self.terminal = terminal = PaymentTerminal(settings, seed, clock, ledger, record, switchboard)
        stack.push_async_callback(terminal.stop)
        # Stop the network first, so that no call arrives during the stop.
        stack.push_async_callback(switchboard.disconnect, goodbye=True)
        await switchboard.start(make_app(terminal))
        try:
            await terminal.prepare()
        except SettingsError as error:
            raise SettingsError(f"scenario {settings.scenario_name}: {error}") from error


@asynccontextmanager
async def started(settings: Sequence[Settings]) -> AsyncIterator[Mapping[str, Simulator]]:
    """Run terminals with a common clock during the block. Yield them by serial, in the order of `settings`.

    Raise SettingsError for no terminal, a repeated serial, or different clocks, or if a terminal cannot run.
    """
    twice = [serial for serial, count in Counter(item.serial for item in settings).items() if count > 1]
    if twice:
        raise SettingsError(f"serial {twice[0]} is given twice: each terminal has its own")
    if len({(item.virtual, item.speed) for item in settings}) != 1:
        raise SettingsError("a shop needs a terminal, and all need the same speed and kind of time (virtual or real)")
    clock = make_clock(settings[0])
    async with AsyncExitStack() as stack:
        yield {item.serial: await stack.enter_async_context(Simulator(item, clock)) for item in settings}


def make_clock(settings: Settings) -> Clock:
    """Make the clock that the settings require."""
    return VirtualClock(time.time(), settings.speed) if settings.virtual else Clock(settings.speed)
