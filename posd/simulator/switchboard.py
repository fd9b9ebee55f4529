"""The switches of one running terminal: power, network, address and certificate, and what follows from them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette

from posd.simulator.clock import Clock
from posd.simulator.delivery import Item, Poster, Queue, Sender
from posd.simulator.journal import SettingsError
from posd.simulator.ledger import Ledger
from posd.simulator.listener import client_context
from posd.simulator.network import Network
from posd.simulator.printing import WEBHOOK_SECONDS, Printer
from posd.simulator.record import PrintRecord
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings

# What works in a terminal while it has power: the delivery of its events, and its printer.


@dataclass(slots=True)
class _Running:
    sender: Sender
    print_record: PrintRecord
    poster: Poster


class Workings:
    """Sender and printer, made anew at each power-on from what stands in the state directory."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, *, seed: str) -> None:
        """Open the queue, which no other simulator gets meanwhile. Raises SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._seed = seed
        self._trust = client_context(settings.trust)
        self._running: _Running | None = None
        self._printer: Printer | None = None
        try:
            self._queue = Queue(settings.state / "queue.jsonl")
        except OSError as error:
            raise SettingsError(str(error)) from error

    @property
    def waiting(self) -> int:
        """How many events wait for their delivery."""
        return sum(1 for _ in self._queue.items())

    @property
    def printer(self) -> Printer:
        """The printer; without power the one that there was, with all the paper that came out of it."""
        assert self._printer is not None  # noqa: S101 - made when the terminal was started
        return self._printer

    def submit(self, item: Item) -> None:
        """Queue an event; see `Outbox`."""
        if self._running is None:
            self._queue.put(item)
        else:
            self._running.sender.submit(item)

    def start(self, *, online: bool) -> None:
        """Switch on, where it is off, and go on with what waits. Raises SettingsError."""
        if self._running is None:
            self._running = self._make()
            self.connect(online=online)
            self._running.sender.start()
            self.printer.start()

    def connect(self, *, online: bool) -> None:
        """Have the network, or lose it: events wait then, and a print webhook is lost."""
        if self._running is not None:
            self._running.poster.offline = not online
            if online:
                self._running.sender.resume()
            else:
                self._running.sender.pause()

    async def stop(self) -> None:
        """Switch off, where it is on; what was not delivered or printed stays on file."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.sender.stop()
            await self.printer.stop()
            running.print_record.close()

    async def close(self) -> None:
        """Switch off for good."""
        await self.stop()
        self._queue.close()

    def _make(self) -> _Running:
        settings = self._settings
        try:
            print_record = PrintRecord(settings.state / "prints.jsonl")
        except OSError as error:
            raise SettingsError(str(error)) from error
        poster = Poster(self._trust, WEBHOOK_SECONDS, self._clock)
        first = self._printer is None
        self._printer = Printer(
            self._ledger, print_record, poster, self._clock, seed=self._seed, scenario=settings.print_scenario
        )
        if first:
            self._printer.catch_up()
        sender = Sender(
            self._queue,
            self._ledger,
            self._clock,
            tls=self._trust,
            timeout=settings.delivery_timeout,
            seed=self._seed,
            unruly=settings.unruly,
        )
        return _Running(sender, print_record, poster)


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
