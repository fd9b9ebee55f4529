"""One daemon for a test file, with many terminals. A payment in doubt blocks only its own terminal."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from tests.rig.daemon import Daemon, running
from tests.rig.events import APPROVED, body
from tests.rig.https import deliver
from tests.rig.slow import examples
from tests.rig.streams import Reply
from tests.rig.terminal import Request, Script, ScriptedTerminal, acknowledgement, http, nowhere, scripted_terminal

#: Number of terminals, in the quick suite and in the whole suite. Each test uses new terminals. posd probes all of them
#: after each start, so many terminals take much processor time.
FEW_TERMINALS, TERMINALS = 24, 120
#: A terminal of the fleet without an address.
OFFLINE = "SN-OFFLINE"

#: Long limits of posd's own searches. During a test, posd must not search for the open payments of other tests.
QUIET = "[reconcile]\nfirst_event_grace_seconds = 3600\nstall_seconds = 3600\nstall_after_request_seconds = 3600\n"

AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00}


@dataclass
class Payment:
    """One payment of a test, with its id, its terminal, and posd's response."""

    shop: "Shop"
    identity: str
    serial: str

    async def put(self, **changes: Any) -> Reply:
        """Start the payment or repeat the call. Keyword arguments replace fields of the request."""
        request = {"terminal": self.serial, "amount": AMOUNT} | changes
        return await self.shop.daemon.call("PUT", f"/transactions/{self.identity}", request)

    @property
    def requests(self) -> list[Request]:
        """Start requests of the payment, as received by the terminal."""
        return [item for item in self.shop.terminal.requests if self.identity.encode() in item.body]

    async def event(self, status: str, previous: str | None = None, **changes: Any) -> int:
        """Deliver an event of the payment as the terminal does. Return the HTTP status."""
        return await self.deliver(body(self.identity, status, previous, self.serial, **changes))

    async def deliver(self, content: bytes) -> int:
        """Deliver these bytes to the payment's callback URL. Return the HTTP status."""
        return await deliver(self.requests[0].callback, content, self.shop.daemon.ca)

    async def approve(self, steps: int = len(APPROVED), *, after: int = 0) -> None:
        """Deliver the first events of an approved payment, or some later events."""
        for status, previous in APPROVED[after:steps]:
            assert await self.event(status, previous) == 200

    async def end(self, status: str = "TERMINAL_CANCELED") -> None:
        """End the payment by a final event without a previous state."""
        assert await self.event(status) == 200

    async def get(self) -> Any:
        """Return the payment from the local API."""
        return await self.shop.daemon.transaction(self.identity)

    async def post(self, call: str, content: Any = None, *, admin: bool = False) -> Reply:
        """Call an action on the payment: abort, reconcile, release, resolve, acknowledge."""
        socket = self.shop.daemon.admin_socket if admin else None
        return await self.shop.daemon.call("POST", f"/transactions/{self.identity}/{call}", content, socket=socket)

    async def until(self, what: Callable[[Any], bool]) -> Any:
        """Follow the feed until the payment meets a condition. Return the payment as it was when the condition was
        met."""
        return await self.shop.daemon.wait_for(self.identity, what)

    async def history(self) -> list[dict[str, Any]]:
        reply = await self.shop.daemon.call("GET", f"/transactions/{self.identity}/history")
        return list(reply.json["history"])

    @property
    def searches(self) -> list[Request]:
        """Searches for the payment, as received by the terminal."""
        return [item for item in self.shop.terminal.searches if self.identity.encode() in item.body]

    async def searched(self, count: int = 1) -> None:
        """Wait until the terminal has received this many searches for the payment."""
        await self.shop.terminal.until(lambda: len(self.searches) >= count)


@dataclass
class Shop:
    """A daemon and a scripted terminal with many serials."""

    daemon: Daemon
    terminal: ScriptedTerminal
    serials: Iterator[str]

    def payment(self) -> Payment:
        """Return a new payment on a terminal that no other test uses."""
        self.terminal.start = self.terminal.abort = self.terminal.search = self.terminal.instead = None
        return Payment(self, str(uuid4()), next(self.serials))

    async def started(self, **request: Any) -> Payment:
        """Return a payment that its terminal has acknowledged. Keyword arguments are fields of the request."""
        payment = self.payment()
        self.terminal.start = acknowledging(payment.serial)
        assert (await payment.put(**request)).status == 201
        return payment

    async def in_doubt(self, **request: Any) -> Payment:
        """Return a payment in doubt. The terminal read the request and closed the connection."""
        payment = self.payment()
        self.terminal.start = hanging_up
        assert (await payment.put(**request)).json["phase"] == "in_doubt"
        return payment


#: Attentions after which posd searches once by itself.
ASKED = {"gap", "illegal_transition", "quarantined_event"}


async def quiet(posd: Daemon) -> None:
    """Wait until posd has searched for every payment of earlier tests, and writes nothing more."""
    async with asyncio.timeout(30):
        async for _ in posd.changes():
            listed = (await posd.call("GET", "/transactions?attention=true&limit=500")).json["transactions"]
            if all(
                item["last_search"] is not None
                for item in listed
                if ASKED & {attention["code"] for attention in item["attention"]}
            ):
                return


async def nothing_to_correct(posd: Daemon) -> None:
    """Check that reprocessing changes no payment of this daemon."""
    report = (await posd.call("POST", "/reprocess", socket=posd.admin_socket)).json
    assert (report["differing"], report["differences"]) == (0, []), report


def acknowledging(serial: str) -> Script:
    """Return the script of a terminal that accepts the payment with this serial."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, acknowledgement(request, serial)))

    return script


def answering(status: int, content: bytes | dict[str, Any] = b"") -> Script:
    """Return the script of a terminal with this reply."""
    content = content if isinstance(content, bytes) else json.dumps(content).encode()

    async def script(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(status, content))

    return script


async def hanging_up(_request: Request, _writer: asyncio.StreamWriter) -> None:
    """Script of a terminal that reads the request and closes without a reply."""


def knowing(*elements: dict[str, Any], otherwise: Script = nowhere) -> Script:
    """Return the script of a search that finds only these transactions. The transactions are events (see
    `tests.rig.events`). posd also searches for other payments of the shop. For an unknown id the script `otherwise`
    replies.
    """

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        found = [item for item in elements if item["client_transaction_id"] == request.json["client_transaction_id"]]
        if found:
            writer.write(http(200, json.dumps(found).encode()))
        else:
            await otherwise(request, writer)

    return script


@dataclass
class Held:
    """Script that delays the reply. The script sets `arrived` when the request has arrived, and continues when a test
    sets `release`.
    """

    then: Script
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.arrived.set()
        await self.release.wait()
        await self.then(request, writer)


@asynccontextmanager
async def open_shop(
    directory: Path, extra: str = "", environment: Mapping[str, str] | None = None, terminals: int | None = None
) -> AsyncIterator[Shop]:
    """Run a shop for the block. `terminals`: number of terminals, if not the suite's."""
    count = examples(FEW_TERMINALS, TERMINALS) if terminals is None else terminals
    async with scripted_terminal(directory, ports=count) as terminal:
        serials = [f"SN-{number:03}" for number in range(count)]
        entries = [terminal.entry(serial, url) for serial, url in zip(serials, terminal.base_urls, strict=True)]
        entries.append(f'[[terminals]]\nserial = "{OFFLINE}"\n')
        async with running(directory, "".join(entries), QUIET + extra, environment=environment) as daemon:
            yield Shop(daemon, terminal, _each_once(serials))


def _each_once(serials: Iterable[str]) -> Iterator[str]:
    yield from serials
    raise AssertionError("no terminal is left for this test: the file needs a larger number TERMINALS")


@asynccontextmanager
async def open_counters(count: int, extra: str = "") -> AsyncIterator[list[Shop]]:
    """Run one daemon with several terminals for the block. Yield a shop for each terminal."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="posd-")))
        terminals = [
            await stack.enter_async_context(scripted_terminal(directory, f"SN-{number}")) for number in range(count)
        ]
        entries = "".join(item.toml for item in terminals)
        daemon = await stack.enter_async_context(running(directory, entries, extra))
        yield [Shop(daemon, item, repeat(item.serial)) for item in terminals]
