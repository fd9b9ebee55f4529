"""The switches of one running terminal: power, network, address and certificate, and what follows from them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from posd.simulator.clock import Clock
from posd.simulator.devices import Workings
from posd.simulator.errors import SettingsError
from posd.simulator.ledger import Ledger
from posd.simulator.network import Network
from posd.simulator.printing import Printer
from posd.simulator.scenario import Certificate


class Switchboard:
    """Carries out `Switches`, one after the other: a script, a person and the control API may all pull at once."""

    def __init__(
        self, ledger: Ledger, clock: Clock, network: Network, workings: Workings, app: Callable[[Printer], Starlette]
    ) -> None:
        """`app` makes what answers calls, of the printer that there is since the power came."""
        self._ledger = ledger
        self._clock = clock
        self._network = network
        self._workings = workings
        self._app = app
        self._powered = asyncio.Event()
        self._plugged = True
        self._pulling = asyncio.Lock()

    @property
    def powered(self) -> bool:
        """Whether it has power."""
        return self._powered.is_set()

    @property
    def plugged(self) -> bool:
        """Whether it is on the network, when it has power."""
        return self._plugged

    async def start(self) -> None:
        """Switch on for the first time. Raises SettingsError."""
        async with self._one_at_a_time():
            self._powered.set()
            await self._settle()

    async def unplug(self) -> None:
        """See `Switches`."""
        async with self._one_at_a_time():
            if self._plugged:
                self._plugged = False
                self._ledger.add("unplugged")
                await self._settle()

    async def plug(self) -> None:
        """See `Switches`."""
        async with self._one_at_a_time():
            if not self._plugged:
                self._plugged = True
                self._ledger.add("plugged")
                await self._settle()

    async def power_off(self) -> None:
        """Take the power away; the payment that runs is the caller's business."""
        async with self._one_at_a_time():
            if self.powered:
                self._powered.clear()
                self._ledger.add("power_off")
                await self._settle()

    async def power_on(self) -> None:
        """Give the power back."""
        async with self._one_at_a_time():
            if not self.powered:
                self._powered.set()
                self._ledger.add("power_on")
                await self._settle()

    async def power_cycle(self, seconds: float) -> None:
        """See `Switches`."""
        await self.power_off()
        if seconds:
            await self._clock.sleep(seconds)
            await self.power_on()
        await self._powered.wait()

    async def move(self) -> None:
        """See `Switches`."""
        async with self._one_at_a_time():
            await self._network.down()
            try:
                self._network.move()
                self._ledger.add("moved", base_url=self._network.base_url)
            finally:
                await self._settle()

    async def show_certificate(self, which: Certificate) -> None:
        """See `Switches`."""
        async with self._one_at_a_time():
            if which is self._network.certificate:
                return
            self._network.choose(which)
            self._ledger.add("certificate", which=which)
            await self._network.refuse()
            await self._settle()

    async def _settle(self) -> None:
        """Make everything as the switches stand."""
        online = self.powered and self._plugged
        if not online:
            await self._network.down()
        self._workings.connect(online=online)
        if not self.powered:
            await self._workings.stop()
            return
        self._workings.start(online=online)
        if not online:
            return
        try:
            await self._network.up(self._app(self._workings.printer))
        except SettingsError:  # somebody took its address meanwhile: it can be plugged in again once that is free
            self._plugged = False
            self._workings.connect(online=False)
            self._ledger.add("unplugged")
            raise

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        async with self._pulling:
            with self._clock.held():  # it takes real time: virtual time does not pass meanwhile
                yield
