"""Terminals that appear, disappear, move, send false announcements, or change often, with real mDNS, daemon and TLS."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import uuid4

import pytest
import trustme
from structlog.testing import capture_logs
from zeroconf import DNSAddress, DNSOutgoing, DNSPointer, DNSService, DNSText, ServiceInfo, ServiceStateChange
from zeroconf.asyncio import AsyncZeroconf
from zeroconf.const import _CLASS_IN, _FLAGS_QR_RESPONSE, _TYPE_A, _TYPE_PTR, _TYPE_SRV, _TYPE_TXT

from posd.config import load
from posd.terminals import discovery as discovery_module
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from tests.rig.daemon import Daemon, running, toml
from tests.rig.shop import AMOUNT, acknowledging, answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.rig.waits import until
from tests.terminals import announcing
from tests.terminals.announcing import DISCOVERY, MARK, TYPE, port_of, shown

DEBUG = '[logging]\nlevel = "debug"\n'
PATIENCE_SECONDS = 60.0


@pytest.fixture
async def devices(home: Path) -> AsyncIterator[tuple[ScriptedTerminal, ScriptedTerminal]]:
    """Yield two devices. Both certificates have the serial of the first device.

    The first device listens on two ports.
    """
    serial = f"SN-{token_hex(3)}"

    def bearing(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("127.0.0.1", common_name=serial)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(scripted_terminal(home, serial, bearing, ports=2))
        second = await stack.enter_async_context(scripted_terminal(home, f"{serial}-other", bearing))
        first.start = second.start = acknowledging(first.serial)
        first.abort = second.abort = answering(200)
        yield first, second


def service(instance: str, url: str, serial: str) -> ServiceInfo:
    """Return the announcement of a serial at an address."""
    return announcing.service(instance, port_of(url), {"serial": serial})


def trusting(home: Path, serial: str, *terminals: ScriptedTerminal) -> str:
    """Return the configuration of a discovered terminal that trusts any of these certificates."""
    (home / "fleet.pem").write_text("".join(terminal.ca_file.read_text() for terminal in terminals))
    return f'[[terminals]]\nserial = "{serial}"\nca_file = "{home}/fleet.pem"\nconnect_timeout_seconds = 60\n'


async def announce(network: AsyncZeroconf, info: ServiceInfo) -> None:
    await network.async_register_service(info, cooperating_responders=True)


async def charge(posd: Daemon, serial: str) -> Any:
    """Start a payment and return it."""
    reply = await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": serial, "amount": AMOUNT})
    assert reply.status == 201, reply.body
    return reply.json


@pytest.mark.slow
async def test_an_abort_goes_only_to_the_device_that_was_sent_the_payment(
    home: Path, network: AsyncZeroconf, devices: tuple[ScriptedTerminal, ScriptedTerminal]
) -> None:
    first, second = devices
    serial = first.serial
    async with running(home, trusting(home, serial, first, second), discovery=DISCOVERY) as posd:
        await announce(network, service("a", first.base_url, serial))
        await posd.log_line("discovery.found", terminal=serial)
        payment = await charge(posd, serial)
        await first.unplug()
        # Another device with an equally valid certificate replaces the first device. Later the first device has another
        # address.
        for url, aborted in ((second.base_url, (503, 0)), (first.base_urls[1], (202, 1))):
            seen = len(posd.lines)
            await network.async_update_service(service("a", url, serial))
            await posd.log_line("discovery.found", after=seen, terminal=serial, port=port_of(url))
            await shown(posd, serial, base_url=url, reachable=True)
            reply = await posd.call("POST", f"/transactions/{payment['client_transaction_id']}/abort")
            assert (reply.status, first.aborts) == aborted
            known = (await posd.call("GET", f"/terminals/{serial}")).json
            assert (known["base_url"], known["reachable"]) == (url, True), "the device can be reached, whichever it is"
        assert second.requests == []
        line = await posd.log_line("payment.abort", judgement="unreachable")
        assert second.fingerprint in line["reason"]


def malformed(*records: Any) -> list[bytes]:
    """Return the packets of a malformed mDNS response with these records."""
    out = DNSOutgoing(_FLAGS_QR_RESPONSE)
    for record in records:
        out.add_answer_at_time(record, 0)
    return out.packets()


def records(instance: str, *, port: int, text: bytes, server: str) -> list[Any]:
    """Return the records of a wrong announcement."""
    name = f"{instance}.{TYPE}"
    return [
        DNSPointer(TYPE, _TYPE_PTR, _CLASS_IN, 120, name),
        DNSService(name, _TYPE_SRV, _CLASS_IN, 120, 0, 0, port, server),
        DNSText(name, _TYPE_TXT, _CLASS_IN, 120, text),
    ]


def send(network: AsyncZeroconf, packet: bytes) -> None:
    for sender in network.zeroconf.engine.senders:
        sender.transport.sendto(packet, ("224.0.0.251", 5353))


def txt(*pairs: bytes) -> bytes:
    return b"".join(bytes([len(pair)]) + pair for pair in pairs)


async def test_malformed_packets_are_ignored_and_have_no_effect(
    home: Path, network: AsyncZeroconf, devices: tuple[ScriptedTerminal, ScriptedTerminal]
) -> None:
    terminal, _ = devices
    serial = terminal.serial
    server = f"good-{MARK}.local."
    async with running(home, trusting(home, serial, terminal), DEBUG, discovery=DISCOVERY) as posd:
        await posd.log_line("discovery.started")
        good = service("good", terminal.base_url, serial)
        await announce(network, good)
        await posd.log_line("discovery.found", terminal=serial)
        said = serial.encode()
        bad = [
            records("no-port", port=0, text=txt(b"serial=" + said), server=good.server or server),
            records("control", port=1, text=txt(b"serial=" + said + b"\x1b[2J"), server=good.server or server),
            records("not-utf8", port=1, text=txt(b"serial=\xff\xfe"), server=good.server or server),
            records("long", port=1, text=txt(b"serial=" + b"x" * 200), server=good.server or server),
            records("broken-txt", port=1, text=b"\xff" + b"serial", server=good.server or server),
            records("key", port=1, text=txt(b"\xc3\xa9=\x00", b"=", b"serial"), server=good.server or server),
        ]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(line["event"] == "discovery.ignored" for line in posd.lines) < 4:
                for answer in bad:  # the announcement is repeated, because multicast packets can be lost
                    for packet in malformed(*answer):
                        send(network, packet)
                        send(network, packet[: len(packet) // 2])
                        send(network, packet[:12] + b"\xc0\x0c" * 200)
                await asyncio.sleep(0.2)
        assert await shown(posd, serial, base_url=terminal.base_url, reachable=True, claims=[])
        everything = (await posd.call("GET", "/terminals?all=true")).json["terminals"]
        assert all(item["serial"].isprintable() and len(item["serial"]) <= 64 for item in everything)
        assert (await charge(posd, serial))["phase"] == "active"
        assert not [line for line in posd.lines if line["level"] == "error"]


def noise_of_names() -> Any:
    return DNSText(f"{token_hex(8)}.local.", _TYPE_TXT, _CLASS_IN, 4500, txt(b"x"))


def noise_of_one_name() -> Any:
    return DNSPointer(TYPE, _TYPE_PTR, _CLASS_IN, 4500, f"{token_hex(8)}.{TYPE}")


@pytest.mark.parametrize("noise", [noise_of_names, noise_of_one_name], ids=["names", "one-name"])
async def test_endless_announcements_do_not_fill_the_memory(
    home: Path, network: AsyncZeroconf, monkeypatch: pytest.MonkeyPatch, noise: Callable[[], Any]
) -> None:
    monkeypatch.setattr(discovery_module, "MAX_RECORDS", 200)
    monkeypatch.setattr(discovery_module, "RETRY_SECONDS", 0.01)
    (home / "config.toml").write_text(toml(home, "", discovery=DISCOVERY))
    discovery = Discovery(load(home / "config.toml").discovery, Fleet(()), Interfaces(), lambda: datetime.now(UTC))
    with capture_logs() as lines:
        browsing = asyncio.create_task(discovery.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any("without end" in line.get("error", "") for line in lines):
                for _ in range(20):
                    for packet in malformed(noise()):
                        send(network, packet)
                await asyncio.sleep(0.01)
        await until(lambda: discovery.trouble is None)
        browsing.cancel()
        await asyncio.wait({browsing})
    assert [line["event"] for line in lines if line["event"] == "discovery.unavailable"]


async def test_a_terminal_is_found_while_many_incomplete_announcements_wait(
    home: Path, network: AsyncZeroconf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery_module, "MAX_RESOLVING", 2)
    monkeypatch.setattr(discovery_module, "MAX_WAITING", 2)
    monkeypatch.setattr(discovery_module, "RESOLVE_TIMEOUT_MS", 3_600_000)
    (home / "config.toml").write_text(toml(home, '[[terminals]]\nserial = "SN-1"\n', discovery=DISCOVERY))
    config = load(home / "config.toml")
    fleet = Fleet(config.terminals, config.profiles)
    discovery = Discovery(config.discovery, fleet, Interfaces(), lambda: datetime.now(UTC))
    browsing = asyncio.create_task(discovery.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        server = f"good-{MARK}.local."
        good = records("good", port=6869, text=txt(b"serial=SN-1"), server=server)
        good.append(DNSAddress(server, _TYPE_A, _CLASS_IN, 120, bytes((127, 0, 0, 1))))
        while fleet.of("SN-1").addresses.base_url is None:
            for packet in malformed(*(noise_of_one_name() for _ in range(10))) + malformed(*good):
                send(network, packet)  # repeated, because multicast packets can be lost
            await asyncio.sleep(0.01)
    browsing.cancel()
    await asyncio.wait({browsing})
    await fleet.close()


async def test_a_stop_at_any_point_of_the_start_closes_the_sockets(home: Path) -> None:
    (home / "config.toml").write_text(toml(home, "", discovery=DISCOVERY))
    discovery = Discovery(load(home / "config.toml").discovery, Fleet(()), Interfaces(), lambda: datetime.now(UTC))
    before = descriptors()
    for turns in range(30):
        browsing = asyncio.create_task(discovery.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        browsing.cancel()
        await asyncio.wait({browsing})
    await until(lambda: descriptors() == before)


async def test_an_announcement_during_the_stop_causes_no_fault(home: Path) -> None:
    (home / "config.toml").write_text(toml(home, "", discovery=DISCOVERY))
    discovery = Discovery(load(home / "config.toml").discovery, Fleet(()), Interfaces(), lambda: datetime.now(UTC))
    network = AsyncZeroconf(interfaces=["127.0.0.1"])
    await network.async_close()
    # zeroconf's browser makes the same call
    discovery._on_change(network.zeroconf, TYPE, f"late.{TYPE}", ServiceStateChange.Added)
    (resolving,) = discovery._resolving.values()
    await asyncio.wait_for(resolving, PATIENCE_SECONDS)
    assert not discovery._resolving


def descriptors() -> int:
    """Return the number of open files and sockets."""
    return len(list(Path("/proc/self/fd").iterdir()))
