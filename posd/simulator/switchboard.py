"""Switches of one running terminal: power, network, address and certificate, with their effects."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from posd.simulator.clock import Clock
from posd.simulator.delivery import Poster, Queue, QueuedEvent, Sender
from posd.simulator.ledger import Ledger
from posd.simulator.network import (
    Announcer,
    Certificates,
    Listener,
    bind,
    client_context,
    reachable_addresses,
    url,
)
from posd.simulator.printer import Printer
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings
from posd.simulator.wire import SettingsError


class Switchboard:
    """Power, network, address and certificate of one terminal. Its sender and printer need the power.

    To set the present state again has no effect. A scenario, a person and the control API can use the switches at the
    same time. So changes are made one after the other.
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, *, seed: str) -> None:
        """Open and lock the queue of events. Raise OSError, SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._certificates = _certificates(settings)
        #: Certificate for the next connections.
        self.certificate = Certificate.OWN
        self._poster = Poster(client_context(settings.trust), clock)
        self.printer = Printer(settings, ledger, clock, self._poster, seed=seed)
        self._queue = Queue(settings.state / "queue.jsonl")
        self._sender = Sender(
            self._queue,
            ledger,
            clock,
            self._poster,
            timeout=settings.delivery_timeout,
            seed=seed,
            unruly=settings.unruly,
        )
        #: App that serves the calls.
        self._app: Starlette
        #: The bound socket of the present address, which stays bound over an outage.
        self._bound: socket.socket | None = None
        self._port = settings.port
        self._ports: Iterator[int] = itertools.cycle(settings.move_ports or (0,))
        self._listener: Listener | None = None
        self._announcer: Announcer | None = None
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
        return len(self._queue.items)

    @property
    def base_url(self) -> str:
        """Base URL of the terminal, without a slash at the end."""
        return url("http" if self._certificates is None else "https", self._addresses()[0], self._port)

    def submit(self, item: QueuedEvent) -> None:
        """Queue an event. The event is in the file on return. Without power or network it waits."""
        self._sender.submit(item)

    async def close(self) -> None:
        """Stop permanently. Undelivered and unprinted work stays in the files."""
        await self.disconnect()
        await self.printer.stop()
        await self._poster.close()
        self._queue.close()
        if self._bound is not None:
            self._bound.close()

    async def start(self, app: Starlette) -> None:
        """Switch the terminal on for the first time. `app` serves its calls. Raise OSError, SettingsError."""
        self._app = app
        self._bind(self._port)
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
            await self._refuse()
            try:
                self._bind(next(self._ports))
                self._ledger.add("moved", base_url=self.base_url)
            finally:
                await self._stop_announcing()
                await self._settle()

    async def show_certificate(self, which: Certificate) -> None:
        """Show another certificate from the next connection on. Open connections end.

        Raise SettingsError over plain HTTP.
        """
        async with self._one_at_a_time():
            if which is self.certificate:
                return
            if self._certificates is None:
                raise SettingsError("this terminal speaks plain HTTP and shows no certificate: leave out --http")
            self._certificates.context(which)  # it fails here, and not while the terminal refuses calls
            self.certificate = which
            self._ledger.add("certificate", which=which)
            await self._refuse()
            await self._settle()

    async def disconnect(self, *, goodbye: bool = False) -> None:
        """Refuse calls, and end the announcement and the deliveries. `goodbye`: whether to announce the end."""
        self._poster.offline = True  # print webhooks are lost
        await self._refuse()
        await self._stop_announcing(goodbye=goodbye)
        await self._sender.stop()

    async def _settle(self) -> None:
        """Apply the switches."""
        if not self.powered:
            await self.disconnect()
            await self.printer.stop()
            return
        self.printer.start()
        if not self._plugged:
            await self.disconnect()
            return
        try:
            self._listen()
        except SettingsError:  # another program uses the address; the terminal can be plugged in again when it is free
            self._plugged = False
            self._ledger.add("unplugged")
            await self.disconnect()
            raise
        self._poster.offline = False
        self._sender.start()

    def _listen(self) -> None:
        """Listen and announce, unless this is so already. Raise SettingsError."""
        assert self._bound is not None  # noqa: S101 - it is bound at the start
        if self._listener is None:
            tls = None if self._certificates is None else self._certificates.context(self.certificate)
            listener = Listener(self._app, tls, clock_offset=self._settings.clock_offset)
            listener.start(self._bound)
            self._listener = listener
        if self._settings.mdns and self._announcer is None:
            self._announcer = Announcer(self._settings, self._ledger, self._addresses(), self._port)

    async def _refuse(self) -> None:
        """Close every connection and refuse calls. The address stays bound."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            self._bind(self._port)
            await listener.stop()

    def _bind(self, port: int) -> None:
        """Bind a port without listening. Raise SettingsError if it is not available."""
        bound = bind(self._settings.host, port)
        if self._bound is not None:
            self._bound.close()
        self._bound, self._port = bound, bound.getsockname()[1]

    async def _stop_announcing(self, *, goodbye: bool = False) -> None:
        if self._announcer is not None:
            announcer, self._announcer = self._announcer, None
            await announcer.stop(goodbye=goodbye)

    def _addresses(self) -> list[str]:
        return reachable_addresses(self._settings.host, self._settings.mdns_interfaces)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        async with self._switching:
            with self._clock.held():  # it takes real time, so virtual time stops during it
                yield


def _certificates(settings: Settings) -> Certificates | None:
    if settings.certificate is None or settings.private_key is None:
        return None
    ca = (
        None
        if settings.ca_certificate is None or settings.ca_private_key is None
        else (settings.ca_certificate, settings.ca_private_key)
    )
    return Certificates(settings.certificate, settings.private_key, ca)
