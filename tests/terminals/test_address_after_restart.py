"""After a restart posd refuses no sale.

posd keeps the last proven address of a terminal, or the start waits for mDNS.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trustme
from zeroconf.asyncio import AsyncZeroconf

from tests.rig.daemon import Daemon, running
from tests.rig.shop import Payment, Shop
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.terminals.announcing import DISCOVERY, MARK, port_of, service

SERIAL = f"SN-{MARK}-again"


@dataclass
class Counter:
    """A daemon and a terminal. The terminal listens on two ports and is announced on one port."""

    posd: Daemon
    terminal: ScriptedTerminal
    announcer: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def announce(self, port: int = 0) -> None:
        """Announce the terminal on one of its ports, and withdraw the earlier announcement."""
        await self.announcer.aclose()
        network = AsyncZeroconf(interfaces=["127.0.0.1"])
        self.announcer.push_async_callback(network.async_close)
        url = self.terminal.base_urls[port]
        info = service(SERIAL, port_of(url), {"serial": SERIAL})
        await network.async_register_service(info, cooperating_responders=True)

    async def call(self) -> tuple[Any, Payment]:
        """Start a payment. Return posd's response."""
        payment = Payment(Shop(self.posd, self.terminal, repeat(SERIAL)), str(uuid4()), SERIAL)
        return (await payment.put()).json, payment

    async def charge(self) -> Payment:
        """Run a payment that the terminal accepts and ends."""
        document, payment = await self.call()
        assert document.get("phase") == "active", document
        await payment.end()
        return payment


def by_pin(terminal: ScriptedTerminal) -> str:
    return f'fingerprint_sha256 = "{terminal.fingerprint}"'


def by_ca(terminal: ScriptedTerminal) -> str:
    return f'ca_file = "{terminal.ca_file}"'


def bearing_the_serial(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("127.0.0.1", common_name=SERIAL)


@asynccontextmanager
async def open_counter(
    home: Path, trusted: Callable[[ScriptedTerminal], str] = by_pin, *, charged: bool = True
) -> AsyncIterator[Counter]:
    """Run a daemon that has found its terminal by mDNS and charged once, and kill the daemon."""
    async with AsyncExitStack() as stack:
        terminal = await stack.enter_async_context(scripted_terminal(home, SERIAL, bearing_the_serial, ports=2))
        entry = f'[[terminals]]\nserial = "{SERIAL}"\n{trusted(terminal)}\n'
        posd = await stack.enter_async_context(running(home, entry, discovery=DISCOVERY))
        counter = Counter(posd, terminal)
        stack.push_async_callback(counter.announcer.aclose)
        await counter.announce()
        await posd.log_line("discovery.found", terminal=SERIAL)
        if charged:
            await counter.charge()
        await posd.kill()
        yield counter


async def test_the_first_sale_goes_to_the_last_proven_address(home: Path) -> None:
    async with open_counter(home) as counter:
        await counter.announcer.aclose()
        await counter.posd.start()
        await counter.charge()


async def test_the_very_first_sale_waits_until_the_terminal_is_announced(home: Path) -> None:
    async with open_counter(home, charged=False) as counter:
        await counter.posd.start()
        await counter.charge()


@pytest.mark.parametrize("trusted", [by_pin, by_ca])
async def test_the_first_sale_waits_for_a_terminal_that_moved_during_the_restart(home: Path, trusted: Any) -> None:
    async with open_counter(home, trusted) as counter:
        await counter.terminal.unplug()
        await counter.announce(1)
        await counter.posd.start()
        payment = await counter.charge()
        assert payment.requests[0].headers["host"] == counter.terminal.base_urls[1].removeprefix("https://")


@pytest.mark.parametrize("trusted", [by_pin, by_ca])
async def test_nothing_is_sent_to_another_device_at_the_last_proven_address(home: Path, trusted: Any) -> None:
    async with open_counter(home, trusted) as counter, scripted_terminal(home, "SN-OTHER") as other:
        await counter.announcer.aclose()
        await counter.terminal.unplug()
        await other.unplug()
        other.base_urls = counter.terminal.base_urls
        await other.plug_in()
        await counter.posd.start()
        document, _ = await counter.call()
        assert document["code"] == "terminal_offline"
        assert other.requests == []
