"""Discovery by real mDNS on loopback, from the announcement through a payment to the goodbye."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from structlog import DropEvent
from structlog.testing import capture_logs
from zeroconf import ServiceStateChange
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from posd.config import load
from posd.logs.output import LIMITS, FloodFilter
from posd.terminals.discovery import MAX_RESOLVING, MAX_WAITING, Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from tests.rig.daemon import Daemon, running, toml
from tests.rig.shop import AMOUNT, acknowledging, answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.terminals.announcing import DISCOVERY, MARK, TYPE, port_of, service

BY_KEY, BY_OTHER_KEY, BY_NAME, STRANGER = (f"SN-{MARK}-{number}" for number in range(4))


async def charge(posd: Daemon, serial: str) -> tuple[int, str]:
    """Start a payment. Return the HTTP status, and the phase or the problem's code."""
    reply = await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": serial, "amount": AMOUNT})
    return reply.status, reply.json.get("phase") or reply.json["code"]


def fleet_of(terminal: ScriptedTerminal, *serials: str) -> str:
    return "".join(f'[[terminals]]\nserial = "{serial}"\nca_file = "{terminal.ca_file}"\n' for serial in serials)


#: Announcements of unknown devices are logged only at this level.
DEBUG = '[logging]\nlevel = "debug"\n'


async def test_a_terminal_is_used_from_its_announcement_to_its_goodbye(home: Path, network: AsyncZeroconf) -> None:
    async with scripted_terminal(home, ports=4) as terminal:
        fleet = fleet_of(terminal, BY_OTHER_KEY, BY_NAME)
        fleet = f'[[terminals]]\nserial = "{BY_KEY}"\nfingerprint_sha256 = "{terminal.fingerprint}"\n{fleet}'
        ports = [port_of(url) for url in terminal.base_urls]
        async with running(home, fleet, DEBUG, discovery=DISCOVERY) as posd:
            assert await charge(posd, BY_KEY) == (503, "terminal_offline")
            services = [
                service("Front desk", ports[0], {"serial": BY_KEY, "brand": "B", "model": "M"}),
                service("Bar", ports[1], {"SERIALNUMBER": BY_OTHER_KEY}),
                service(BY_NAME, ports[2], {"vendor": "x"}),
                service("Next door", ports[3], {"sn": STRANGER}),
            ]
            for item in services:
                await network.async_register_service(item, cooperating_responders=True)
            for serial in (BY_KEY, BY_OTHER_KEY, BY_NAME, STRANGER):
                line = await posd.log_line("discovery.found", terminal=serial)
                assert line["in_fleet"] == (serial != STRANGER)

            for serial, url in zip((BY_KEY, BY_OTHER_KEY, BY_NAME), terminal.base_urls, strict=False):
                terminal.start = acknowledging(serial)
                assert await charge(posd, serial) == (201, "active")
                known = (await posd.call("GET", f"/terminals/{serial}")).json
                assert (known["base_url"], known["source"], known["reachable"]) == (url, "mdns", True)
            known = (await posd.call("GET", f"/terminals/{BY_KEY}")).json
            assert (known["brand"], known["model"]) == ("B", "M")

            # The list shows the unknown device only with `all`, and posd never uses this device.
            assert await charge(posd, STRANGER) == (422, "unknown_terminal")
            fleet_only = (await posd.call("GET", "/terminals")).json["terminals"]
            assert [item["serial"] for item in fleet_only] == [BY_KEY, BY_OTHER_KEY, BY_NAME]
            assert all("in_fleet" not in item for item in fleet_only)
            everything = (await posd.call("GET", "/terminals?all=true")).json["terminals"]
            assert [(item["serial"], item.get("in_fleet")) for item in everything[3:]] == [(STRANGER, False)]

            terminal.abort = answering(200)
            await moved(posd, network, terminal)

            seen = len(posd.lines)
            await terminal.unplug(2)
            await network.async_unregister_service(services[2])
            await posd.log_line("discovery.gone", after=seen, terminal=BY_NAME)
            known = (await posd.call("GET", f"/terminals/{BY_NAME}")).json
            assert (known["base_url"], known["source"]) == (None, None)


async def moved(posd: Daemon, network: AsyncZeroconf, terminal: ScriptedTerminal) -> None:
    """Move the terminal during an open payment. Check that the abort and the next start go to the new address."""
    current = (await posd.call("GET", "/terminals")).json["terminals"][0]
    elsewhere = terminal.base_urls[3]
    seen = len(posd.lines)
    changed = service("Front desk", port_of(elsewhere), {"serial": BY_KEY, "brand": "B", "model": "M"})
    await network.async_update_service(changed)
    await posd.log_line("discovery.found", after=seen, terminal=BY_KEY, port=port_of(elsewhere))
    assert (await posd.call("GET", f"/terminals/{BY_KEY}")).json["base_url"] == elsewhere
    await terminal.unplug()  # nothing listens at the old address
    reply = await posd.call("POST", f"/transactions/{current['transaction']}/abort")
    assert (reply.status, terminal.aborts) == (202, 1)


async def test_payments_run_although_discovery_has_no_usable_interface(home: Path) -> None:
    async with scripted_terminal(home) as terminal:
        discovery = f'service_types = ["{TYPE}"]\ninterfaces = ["192.0.2.1"]'  # no interface has this address
        async with running(home, terminal.toml, discovery=discovery) as posd:
            await posd.log_line("discovery.unavailable")
            assert await charge(posd, terminal.serial) == (201, "active")
            health = (await posd.call("GET", "/health")).json
            assert (health["status"], health["checks"]["discovery"]["status"]) == ("degraded", "degraded")


async def test_a_configured_address_is_used_instead_of_an_announced_address(home: Path, network: AsyncZeroconf) -> None:
    async with (
        scripted_terminal(home, f"SN-{MARK}-9") as terminal,
        running(home, terminal.toml, discovery=DISCOVERY) as posd,
    ):
        impostor = service("Impostor", 9, {"serial": terminal.serial})
        await network.async_register_service(impostor, cooperating_responders=True)
        await posd.log_line("discovery.found", terminal=terminal.serial)
        known = (await posd.call("GET", f"/terminals/{terminal.serial}")).json
        assert (known["base_url"], known["source"]) == (terminal.base_url, "config")
        assert await charge(posd, terminal.serial) == (201, "active")


async def test_a_terminal_that_comes_and_goes_does_not_flood_the_log(home: Path) -> None:
    (home / "config.toml").write_text(toml(home, '[[terminals]]\nserial = "SN-1"\n'))
    config = load(home / "config.toml")
    fleet = Fleet(config.terminals, config.profiles)
    discovery = Discovery(config.discovery, fleet, Interfaces(), lambda: datetime.now(UTC))
    most, floods, told = LIMITS["discovery.found"].lines, FloodFilter(), []
    with capture_logs() as lines:
        for number in range(5 * most):
            for serial in ("SN-1", "SN-STRANGER"):
                address = bytes((192, 0, 2, number + 1))  # each announcement has a new address
                properties = {"serial": serial}
                name = f"{serial}.{TYPE}"
                info = AsyncServiceInfo(TYPE, name, addresses=[address], port=6869, properties=properties)
                discovery._take(info)
    for line in lines:
        with suppress(DropEvent):
            floods.admit(line | {"level": line["log_level"]}, 0.0)
            told += [line["terminal"]] if line["log_level"] == "info" else []
    assert told == ["SN-1"] * most
    await fleet.close()


async def test_endless_announcements_do_not_accumulate(home: Path, network: AsyncZeroconf) -> None:
    (home / "config.toml").write_text(toml(home, ""))
    config = load(home / "config.toml").discovery
    discovery = Discovery(config, Fleet(()), Interfaces(), lambda: datetime.now(UTC))
    before = asyncio.all_tasks()
    for number in range(MAX_RESOLVING + MAX_WAITING + 10):
        discovery._on_change(network.zeroconf, TYPE, f"flood-{number}.{TYPE}", ServiceStateChange.Added)
    resolving = asyncio.all_tasks() - before
    assert (len(resolving), len(discovery._waiting)) == (MAX_RESOLVING, MAX_WAITING)
    discovery._waiting.clear()
    for task in resolving:
        task.cancel()
    await asyncio.wait(resolving)


async def test_the_systems_cas_verify_a_discovered_terminal_only_if_the_configuration_says_so(
    home: Path, network: AsyncZeroconf
) -> None:
    """A certificate of a public CA proves nothing, because anyone can get such a certificate.

    A certificate of a public CA still verifies a configured address.
    """
    plain, written, named = (f"SN-{MARK}-{name}" for name in ("plain", "written", "named"))
    async with scripted_terminal(home, ports=3) as terminal:
        fleet = (
            f'[[terminals]]\nserial = "{plain}"\n[[terminals]]\nserial = "{written}"\ntrust = "system"\n'
            f'[[terminals]]\nserial = "{named}"\nbase_url = "{terminal.base_urls[2]}"\n'
        )
        system = {"SSL_CERT_FILE": str(terminal.ca_file)}
        async with running(home, fleet, DEBUG, discovery=DISCOVERY, environment=system) as posd:
            for serial, url in ((plain, terminal.base_urls[0]), (written, terminal.base_urls[1])):
                found = service(serial, port_of(url), {"serial": serial})
                await network.async_register_service(found, cooperating_responders=True)
                await posd.log_line("discovery.found", terminal=serial)
            reply = await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": plain, "amount": AMOUNT})
            outcome = reply.json["outcome"]
            assert (reply.status, outcome["result"], outcome["reached_acquirer"]) == (201, "not_started", False)
            assert "the configuration trusts no certificate" in outcome["evidence"][0]["reason"]
            assert terminal.requests == []
            for serial in (written, named):
                terminal.start = acknowledging(serial)
                assert await charge(posd, serial) == (201, "active")
