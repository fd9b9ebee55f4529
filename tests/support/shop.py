"""One daemon for a whole file of tests, with many terminals: a payment in doubt blocks only the one that it is on."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.daemon import Daemon, Reply, running
from tests.support.events import body
from tests.support.https import deliver
from tests.support.terminal import Request, Script, ScriptedTerminal, acknowledgement, http, scripted_terminal

#: Terminals of a shop; each test takes fresh ones.
TERMINALS = 120
QUICK_TERMINALS = 10
#: Time-outs of the terminals that a test of time-outs takes, in seconds.
QUICK_SECONDS = 0.4
#: In the fleet, without an address.
OFFLINE = "SN-OFFLINE"

AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00}


@dataclass
class Payment:
    """One payment of a test: its id, its terminal, and what came back."""

    shop: "Shop"
    identity: str
    serial: str

    async def put(self, **changes: Any) -> Reply:
        """Start it, or repeat the call; keyword arguments replace fields of the request."""
        request = {"terminal": self.serial, "amount": AMOUNT} | changes
        return await self.shop.daemon.call("PUT", f"/transactions/{self.identity}", request)

    @property
    def requests(self) -> list[Request]:
        """The start requests that the terminal saw for it."""
        return [item for item in self.shop.terminal.requests if self.identity.encode() in item.body]

    async def event(self, status: str, previous: str | None = None, **changes: Any) -> int:
        """Deliver an event of it as the terminal does; return the HTTP status."""
        content = body(self.identity, status, previous, self.serial, **changes)
        return await deliver(self.requests[0].callback, content, self.shop.daemon.ca)

    async def end(self, status: str = "TERMINAL_CANCELED") -> None:
        """End it by a final event."""
        assert await self.event(status, "TERMINAL_ACKNOWLEDGED") == 200

    async def get(self) -> Any:
        """Return it as the local API shows it."""
        return await self.shop.daemon.transaction(self.identity)


@dataclass
class Shop:
    """A daemon and a scripted terminal that stands for many serials."""

    daemon: Daemon
    terminal: ScriptedTerminal
    serials: Iterator[str]
    quick_serials: Iterator[str]

    def payment(self, *, quick: bool = False) -> Payment:
        """Return a new payment on a terminal that nobody else uses."""
        self.terminal.start = self.terminal.abort = self.terminal.instead = None
        return Payment(self, str(uuid4()), next(self.quick_serials if quick else self.serials))

    async def started(self) -> Payment:
        """Return a payment that its terminal has acknowledged."""
        payment = self.payment()
        self.terminal.start = acknowledging(payment.serial)
        assert (await payment.put()).status == 201
        return payment


def acknowledging(serial: str) -> Script:
    """Return the script of a terminal of that serial that takes the payment."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, acknowledgement(request, serial)))

    return script


def answering(status: int, content: bytes | dict[str, Any] = b"") -> Script:
    """Return the script of a terminal that answers so."""
    content = content if isinstance(content, bytes) else json.dumps(content).encode()

    async def script(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(status, content))

    return script


@dataclass
class Held:
    """A script that holds the reply back: `arrived` is set when the request is there, `release` lets it go on."""

    then: Script
    arrived: asyncio.Event
    release: asyncio.Event

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.arrived.set()
        await self.release.wait()
        await self.then(request, writer)


def held(then: Script) -> Held:
    """Return a script that does the same, but waits first."""
    return Held(then, asyncio.Event(), asyncio.Event())


@asynccontextmanager
async def open_shop(directory: Path, extra: str = "") -> AsyncIterator[Shop]:
    """Run a shop for the block."""
    async with scripted_terminal(directory, ports=TERMINALS + QUICK_TERMINALS) as terminal:
        addresses = iter(terminal.base_urls)
        serials = [f"SN-{number:03}" for number in range(TERMINALS)]
        quick = [f"SN-QUICK-{number}" for number in range(QUICK_TERMINALS)]
        limits = f"reply_timeout_seconds = {QUICK_SECONDS}\nconnect_timeout_seconds = {QUICK_SECONDS}\n"
        entries = [entry(serial, next(addresses), terminal) for serial in serials]
        entries += [entry(serial, next(addresses), terminal) + limits for serial in quick]
        entries.append(f'[[terminals]]\nserial = "{OFFLINE}"\n')
        async with running(directory, "".join(entries), extra) as daemon:
            yield Shop(daemon, terminal, iter(serials), iter(quick))


def entry(serial: str, base_url: str, terminal: ScriptedTerminal) -> str:
    """Return the configuration of one terminal that is reached at an address of `terminal`."""
    return f'[[terminals]]\nserial = "{serial}"\nbase_url = "{base_url}"\nca_file = "{terminal.ca_file}"\n'
