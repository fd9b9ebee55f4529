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
    """Power, network, address and certificate of one terminal. Its sender and printer need the power.

    Each power-on creates a new sender and printer from the files in the state directory. To set the present state again
    has no effect. A scenario, a person and the control API can use the switches at the same time. So changes are made
    one after the other.
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
        #: App that serves the calls.
        self._app: Starlette
        self._powered = asyncio.Event()
        self._plugged = True
        self._switching = asyncio.Lock()

    @property
    def powered(self) -> bool:
        """Whether the terminal has power."""
        return self._powered.is_set()

    @property
    def plugged(self) -> bool:
        """Whether the terminal is connected to the network while it has power."""
        return self._plugged

    @property
    def waiting_events(self) -> int:
        """Number of events that wait for delivery."""
        return sum(1 for _ in self._queue.items())

    @property
    def printer(self) -> Printer:
        """The printer. Without power, the last printer, with everything that it has printed."""
        assert self._printer is not None  # noqa: S101 - it is set when the terminal is started
        return self._printer

    def submit(self, item: QueuedEvent) -> None:
        """Queue an event. The event is in the file on return. A terminal without power stores it until power-on."""
        if self._sender is None:
            self._queue.put(item)
        else:
            self._sender.submit(item)

    async def close(self) -> None:
        """Stop sender and printer permanently. Undelivered and unprinted work stays in the files."""
        await self._stop_work()
        self._queue.close()

    async def start(self, app: Starlette) -> None:
        """Switch the terminal on for the first time. `app` serves its calls. Raise SettingsError."""
        self._app = app
        async with self._one_at_a_time():
            self._powered.set()
            await self._settle()

    async def unplug(self) -> None:
        """Disconnect the terminal from the network.

        Calls are refused, connections end, events wait, and no goodbye is sent.
        """
        await self._set_plugged(False)

    async def plug(self) -> None:
        """Reconnect the terminal to the network, at the same address.

        The terminal announces itself, and sends its events in order.
        """
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
        """Switch the terminal off for `seconds` of its time and on again. Return when it is on.

        With 0 it stays off until a person switches it on. The queue, the record of finals and the print jobs stay, as
        over a restart. The running payment continues with its further steps.
        """
        await self.power_off()
        if seconds:
            await self._clock.sleep(seconds)
            await self.power_on()
        await self._powered.wait()

    async def move(self) -> None:
        """Move the terminal to the next address, and announce it.

        Raise SettingsError if the next address is not available.
        """
        async with self._one_at_a_time():
            await self._network.down()
            try:
                self._network.move()
                self._ledger.add("moved", base_url=self._network.base_url)
            finally:
                await self._settle()

    async def show_certificate(self, which: Certificate) -> None:
        """Show another certificate from the next connection on. Open connections end.

        Raise SettingsError over plain HTTP.
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
        except SettingsError:  # another program uses the address; the terminal can be plugged in again when it is free
            self._plugged = False
            self._connect(online=False)
            self._ledger.add("unplugged")
            raise

    def _start_work(self, *, online: bool) -> None:
        """Start sender and printer if they do not run, and continue the waiting work. Raise SettingsError."""
        if self._sender is None:
            self._sender = self._make_sender()
            self._connect(online=online)
            self._sender.start()
            self.printer.start()

    def _connect(self, *, online: bool) -> None:
        """Connect to the network, or disconnect. While disconnected, events wait, and print webhooks are lost."""
        if self._sender is not None:
            self.printer.poster.offline = not online
            if online:
                self._sender.resume()
            else:
                self._sender.pause()

    async def _stop_work(self) -> None:
        """Stop sender and printer, if they run. Undelivered and unprinted work stays in the files."""
        if self._sender is not None:
            sender, self._sender = self._sender, None
            try:
                await sender.stop()
            finally:  # the simulator may end during a power cut
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
            with self._clock.held():  # it takes real time, so virtual time stops during it
                yield
