"""Names in mDNS. posd compares names without case.

A name that the library refuses affects no other name (RFC 6762, 16).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText
from zeroconf.asyncio import AsyncZeroconf
from zeroconf.const import _CLASS_IN, _FLAGS_QR_RESPONSE, _TYPE_A, _TYPE_PTR, _TYPE_SRV, _TYPE_TXT

from posd.config import load
from posd.terminals import discovery as discovery_module
from posd.terminals.announcements import Announcement
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from tests.rig.daemon import toml
from tests.rig.waits import until
from tests.terminals.announcing import DISCOVERY, TYPE

PATIENCE_SECONDS = 20.0
UPPER = TYPE.upper()


@dataclass
class Browsing:
    """Discovery as in the daemon, and the network of the announcing devices."""

    network: AsyncZeroconf
    fleet: Fleet
    discovery: Discovery
    faults: list[Any] = field(default_factory=list)

    def send(self, *records: Any) -> None:
        """Multicast an answer."""
        out = DNSOutgoing(_FLAGS_QR_RESPONSE)
        for record in records:
            out.add_answer_at_time(record, 0)
        for packet in out.packets():
            for sender in self.network.zeroconf.engine.senders:
                sender.transport.sendto(packet, ("224.0.0.251", 5353))

    def known(self, serial: str) -> list[Announcement]:
        """Return the announced addresses of a serial."""
        return [item for item in self.fleet.strangers.values() if item.serial == serial]

    async def until_known(self, serial: str, *records: Any, gone: bool = False) -> None:
        """Send records until a serial is known or gone. Repeat the records, because multicast packets can be lost."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while bool(self.known(serial)) is gone:
                self.send(*records)
                await asyncio.sleep(0.05)


@asynccontextmanager
async def browsing(home: Path, network: AsyncZeroconf) -> AsyncIterator[Browsing]:
    """Run a browser of announcements for the block."""
    (home / "config.toml").write_text(toml(home, "", discovery=DISCOVERY))
    fleet = Fleet(())
    discovery = Discovery(load(home / "config.toml").discovery, fleet, Interfaces(), lambda: datetime.now(UTC))
    made = Browsing(network, fleet, discovery)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: made.faults.append(context))
    task = asyncio.create_task(discovery.run())
    try:
        with capture_logs() as lines:
            await until(lambda: any(line["event"] == "discovery.started" for line in lines))
            yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


def records(serial: str, instance: str, type_of_pointer: str, type_of_name: str, *, ttl: int = 120) -> list[Any]:
    """Return an announcement with its service type in these spellings."""
    name, server = f"{instance}.{type_of_name}", f"host-{serial}.local."
    return [
        DNSPointer(type_of_pointer, _TYPE_PTR, _CLASS_IN, ttl, name),
        DNSService(name, _TYPE_SRV, _CLASS_IN, 120, 0, 0, 6869, server),
        DNSText(name, _TYPE_TXT, _CLASS_IN, 120, bytes([len(serial) + 7]) + b"serial=" + serial.encode()),
        DNSAddress(server, _TYPE_A, _CLASS_IN, 120, bytes((127, 0, 0, 1))),
    ]


@pytest.mark.parametrize("pointer", [TYPE, UPPER], ids=["pointer as asked", "pointer upper"])
@pytest.mark.parametrize("name", [TYPE, UPPER], ids=["name as asked", "name upper"])
async def test_a_terminal_is_found_by_its_service_type_in_upper_and_lower_case(
    home: Path, network: AsyncZeroconf, pointer: str, name: str
) -> None:
    async with browsing(home, network) as made:
        await made.until_known("SN-Case", *records("SN-Case", "Desk", pointer, name))
        moved = DNSAddress("HOST-SN-CASE.local.", _TYPE_A, _CLASS_IN | 0x8000, 120, bytes((127, 0, 0, 9)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any("127.0.0.9" in item.hosts for item in made.known("SN-Case")):
                made.send(moved)
                await asyncio.sleep(0.05)
        goodbye = records("SN-Case", "dESK", pointer, name, ttl=0)[0]
        await made.until_known("SN-Case", goodbye, gone=True)
    assert made.faults == []


def pointer(name: str) -> DNSPointer:
    return DNSPointer(TYPE, _TYPE_PTR, _CLASS_IN, 120, name)


#: Instance names that the library refuses.
REFUSED = {
    "CR LF at the end of the instance": f"Desk\r\n.{TYPE}",
    "CR LF at the end of the name": f"Desk.{TYPE}\r\n.",
    "a name of another service type": "Desk._other._tcp.local.",
    "a name without a service": "local.",
}


@pytest.mark.parametrize("resolving", [32, 0], ids=["idle", "busy"])
@pytest.mark.parametrize("case", REFUSED)
async def test_a_name_that_the_library_refuses_does_not_hide_other_names(
    home: Path, network: AsyncZeroconf, monkeypatch: pytest.MonkeyPatch, case: str, resolving: int
) -> None:
    monkeypatch.setattr(discovery_module, "MAX_RESOLVING", resolving)
    bad = pointer(REFUSED[case])
    async with browsing(home, network) as made:
        await made.until_known("SN-Near", bad, *records("SN-Near", "Near", TYPE, TYPE))
        await made.until_known("SN-Next", *records("SN-Next", "Next", TYPE, TYPE))
        assert made.discovery.ignored > 0
    assert made.faults == []
