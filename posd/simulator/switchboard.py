"""Switches of one running terminal: power, network, address and certificate, with their effects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from posd.simulator.clock import Clock
from posd.simulator.delivery import Poster, Queue, QueuedEvent, Sender
from posd.simulator.ledger import Ledger
from posd.simulator.network import Network, client_context
from posd.simulator.printer import WEBHOOK_SECONDS, Printer
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings
from posd.simulator.wire import SettingsError


class Switchboard:
    """Power, network, address and certificate of one terminal, and the sender and the printer that need the power.

    Each power-on makes sender and printer again from the files in the state directory. Setting the present state has no
    effect. The switches work one after the other: a scenario, a person and the control API can use them at once.
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, network: Network, *, seed: str) -> None:
        """Open and lock the queue of events. Raise OSError, SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._network = network
        self._seed = seed
        self._trust = client_context(settings.trust)
        self._queue = Queue(settings.state / "queue.jsonl")
        self._sender: Sender | None = None
        self._printer: Printer | None = None
        #: The app that serves calls.
        self._app: Starlette
        self._powered = asyncio.Event()
        self._plugged = True
        self._switching = asyncio.Lock()

    @property
    def powered(self) -> bool:
        """Whether it has power."""
        return self._powered.is_set()

    @property
    def plugged(self) -> bool:
        """Whether it is on the network while it has power."""
        return self._plugged

    @property
    def waiting_events(self) -> int:
        """Number of events that wait for delivery."""
        return sum(1 for _ in self._queue.items())

    @property
    def printer(self) -> Printer:
        """The printer; without power the last one, with all its printed paper."""
        assert self._printer is not None  # noqa: S101 - made when the terminal was started
        return self._printer

    def submit(self, item: QueuedEvent) -> None:
        """Queue an event; it is in the file on return. A terminal without power stores it until power-on."""
        if self._sender is None:
            self._queue.put(item)
        else:
            self._sender.submit(item)

    async def close(self) -> None:
        """Stop sender and printer permanently; undelivered and unprinted work stays in the files."""
        await self._stop_work()
        self._queue.close()

    async def start(self, app: Starlette) -> None:
        """Switch on for the first time; `app` serves calls. Raise SettingsError."""
        self._app = app
        async with self._one_at_a_time():
            self._powered.set()
            await self._settle()

    async def unplug(self) -> None:
        """Disconnect it from the network: calls are refused, connections end, events wait, no goodbye is sent."""
        await self._set_plugged(False)

    async def plug(self) -> None:
        """Reconnect it to the network, at the same address; it announces itself, and sends its events in order."""
        await self._set_plugged(True)

    async def _set_plugged(self, plugged: bool) -> None:
        async with self._one_at_a_time():
            if self._plugged is not plugged:
                self._plugged = plugged
                self._ledger.add("plugged" if plugged else "unplugged")
                await self._settle()

    async def power_off(self) -> None:
        """Cut the power. The caller decides about the running payment."""
        await self._set_powered(False)

    async def power_on(self) -> None:
        """Restore the power."""
        await self._set_powered(True)

    async def _set_powered(self, powered: bool) -> None:
        async with self._one_at_a_time():
            if self.powered is not powered:
                if powered:
                    self._powered.set()
                else:
                    self._powered.clear()
                self._ledger.add("power_on" if powered else "power_off")
                await self._settle()

    async def power_cycle(self, seconds: float) -> None:
        """Switch it off for so many terminal seconds and on again; return when it is on.

        0: it stays off until a person switches it on. The queue, the record of finals and the print jobs stay as over a
        restart. The running payment is unchanged: its further steps are what it remembers.
        """
        await self.power_off()
        if seconds:
            await self._clock.sleep(seconds)
            await self.power_on()
        await self._powered.wait()

    async def move(self) -> None:
        """Move it to the next address, and announce it. Raise SettingsError if that address is not available."""
        async with self._one_at_a_time():
            await self._network.down()
            try:
                self._network.move()
                self._ledger.add("moved", base_url=self._network.base_url)
            finally:
                await self._settle()

    async def show_certificate(self, which: Certificate) -> None:
        """Show another certificate from the next connection on; open ones end.

        Raise NotPossible over plain HTTP.
        """
        async with self._one_at_a_time():
            if which is self._network.certificate:
                return
            self._network.choose(which)
            self._ledger.add("certificate", which=which)
            await self._network.refuse()
            await self._settle()

    async def _settle(self) -> None:
        """Apply the switches."""
        online = self.powered and self._plugged
        if not online:
            await self._network.down()
        self._connect(online=online)
        if not self.powered:
            await self._stop_work()
            return
        self._start_work(online=online)
        if not online:
            return
        try:
            await self._network.up(self._app)
        except SettingsError:  # another program has its address: it can be plugged in again once that is free
            self._plugged = False
            self._connect(online=False)
            self._ledger.add("unplugged")
            raise

    def _start_work(self, *, online: bool) -> None:
        """Start sender and printer, unless they run, and continue the waiting work. Raise SettingsError."""
        if self._sender is None:
            self._sender = self._make_sender()
            self._connect(online=online)
            self._sender.start()
            self.printer.start()

    def _connect(self, *, online: bool) -> None:
        """Connect to the network or disconnect: then events wait, and a print webhook is lost."""
        if self._sender is not None:
            self.printer.poster.offline = not online
            if online:
                self._sender.resume()
            else:
                self._sender.pause()

    async def _stop_work(self) -> None:
        """Stop sender and printer, if they run; undelivered and unprinted work stays in the files."""
        if self._sender is not None:
            sender, self._sender = self._sender, None
            try:
                await sender.stop()
            finally:  # the end of the simulator can come amid a power cut
                await self.printer.stop()

    def _make_sender(self) -> Sender:
        """Make printer and sender, and return the sender."""
        before, settings = self._printer, self._settings
        poster = Poster(self._trust, WEBHOOK_SECONDS, self._clock)
        try:
            self._printer = Printer(settings, self._ledger, self._clock, poster, seed=self._seed)
        except OSError as error:
            raise SettingsError(str(error)) from error
        if before is None:
            self._printer.catch_up()
        else:
            self._printer.arm(before.armed)
        poster = Poster(self._trust, settings.delivery_timeout, self._clock)
        return Sender(self._queue, self._ledger, self._clock, poster, seed=self._seed, unruly=settings.unruly)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        async with self._switching:
            with self._clock.held():  # it takes real time: virtual time stops meanwhile
                yield
