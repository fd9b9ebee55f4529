"""The fleet with real terminals over TLS: the address of each call, and the state of the other addresses."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from structlog.testing import capture_logs

from posd.config import TerminalConfig, load
from posd.config.profile import EDITIONS
from posd.terminals.announcements import Announcement
from posd.terminals.attempt import NotSent, Replied
from posd.terminals.client import make_clients
from posd.terminals.fleet import MAX_STRANGERS, Fleet, Liveness
from posd.terminals.identity import Proof, Trusted
from posd.terminals.terminal import AddressChange
from tests.rig.daemon import toml
from tests.rig.shop import answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

SERIAL = "SN-1"
AT = "2026-11-20T10:00:00.000Z"
#: Time-out for tests whose terminal replies, also on a busy machine.
PATIENT = "connect_timeout_seconds = 60\n"


def fleet_of(home: Path, ca: str, more: str = "") -> Fleet:
    """Return a fleet of one terminal, with this CA."""
    (home / "fleet.ca.pem").write_text(ca)
    entry = f'[[terminals]]\nserial = "{SERIAL}"\nca_file = "{home}/fleet.ca.pem"\n{PATIENT}{more}\n'
    (home / "config.toml").write_text(toml(home, entry))
    return Fleet(load(home / "config.toml").terminals)


def trusting(*terminals: ScriptedTerminal) -> str:
    return "".join(terminal.ca_file.read_text() for terminal in terminals)


def announced(name: str, terminal: ScriptedTerminal, *hosts: str, port: int = 0, serial: str = SERIAL) -> Announcement:
    """Return a terminal's announcement: at loopback, or at these hosts."""
    return Announcement(name, serial, hosts or ("127.0.0.1",), port or port_of(terminal), "B", "M", AT)


def port_of(terminal: ScriptedTerminal, number: int = 0) -> int:
    return int(terminal.base_urls[number].rsplit(":", 1)[1])


@asynccontextmanager
async def counting(terminal: ScriptedTerminal) -> AsyncIterator[list[None]]:
    """Count the connections. The connections close when the peer closes. Check that no peer has sent a byte."""
    connections: list[None] = []

    async def instead(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        connections.append(None)
        assert await reader.read() == b"", "a check sends nothing"

    terminal.instead = instead
    yield connections
    terminal.instead = None


@pytest.fixture
async def right(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    """Yield the terminal, with two addresses and a certificate of its own CA."""
    async with scripted_terminal(tmp_path, "right", ports=2) as right:
        right.start = right.abort = answering(200, b"{}")
        yield right


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    """Yield another terminal, with a certificate of another CA."""
    async with scripted_terminal(tmp_path, "other") as other:
        other.start = answering(200, b"{}")
        yield other


@pytest.fixture
async def fleet(tmp_path: Path, right: ScriptedTerminal) -> AsyncIterator[Fleet]:
    """Yield a fleet of one terminal that trusts only the right CA."""
    fleet = fleet_of(tmp_path, trusting(right))
    yield fleet
    await fleet.close()


@pytest.fixture
async def trusting_both(tmp_path: Path, right: ScriptedTerminal, other: ScriptedTerminal) -> AsyncIterator[Fleet]:
    fleet = fleet_of(tmp_path, trusting(right, other))
    yield fleet
    await fleet.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield the port of a device that accepts connections and never sends anything."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def shown(fleet: Fleet) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(next(iter(fleet.documents({}, everything=False))))
    return document


async def test_a_single_address_is_not_probed_before_a_call(fleet: Fleet, right: ScriptedTerminal) -> None:
    assert await fleet.of(SERIAL).choose() is None
    assert fleet.announce(announced("a", right))
    async with counting(right) as connections:
        assert await fleet.of(SERIAL).choose() == right.base_url
        assert connections == []
    assert shown(fleet)["reachable"] is None


async def test_a_call_goes_to_an_address_that_replies(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.announce(announced("a", right, "127.0.0.99", "127.0.0.1"))
    assert fleet.of(SERIAL).addresses.base_url == f"https://127.0.0.99:{port_of(right)}"
    address = await fleet.of(SERIAL).choose()
    assert (address, fleet.document(fleet.of(SERIAL), {}).source) == (right.base_url, "mdns")
    assert isinstance(await fleet.of(SERIAL).device.call("GET", f"{address}/x"), Replied)
    assert len(right.requests) == 1
    document = shown(fleet)
    assert (document["base_url"], document["reachable"], document["reason"]) == (right.base_url, True, None)
    (claim,) = document["claims"]
    assert (claim["state"], claim["same_device"]) == ("silent", True)
    assert "nothing listens there" in claim["reason"]
    async with counting(right) as connections:  # posd knows for a while which address replies
        assert await fleet.of(SERIAL).choose() == address
        assert connections == []


async def test_a_failed_address_is_probed_again_if_all_others_fail(
    fleet: Fleet, right: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posd.terminals.terminal.CHECK_SECONDS", 0.0)
    fleet.announce(announced("old", right))
    fleet.announce(announced("new", right, port=1))
    fleet.of(SERIAL).note_call(right.base_url, "no connection")
    fleet.of(SERIAL).note_call("https://127.0.0.1:1", "no connection")
    assert await fleet.of(SERIAL).choose() == right.base_url


async def test_a_stop_of_posd_ends_present_and_later_waits_for_an_address(tmp_path: Path, silent: int) -> None:
    fleet = fleet_of(tmp_path, trustme.CA().cert_pem.bytes().decode())
    fleet.announce(Announcement("a", SERIAL, ("127.0.0.1", "127.0.0.2"), silent, None, None, AT))
    choosing = asyncio.create_task(fleet.of(SERIAL).choose())
    await asyncio.sleep(0)  # posd is probing the address
    fleet.cancel_calls()
    async with asyncio.timeout(30):  # without the stop the probe would last until the connect time-out
        assert await choosing is not None
        assert await fleet.of(SERIAL).choose() is not None
    await fleet.close()


async def test_the_reason_is_shown_if_no_address_answers(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.announce(announced("a", right, "127.0.0.99", "127.0.0.98"))
    address = await fleet.of(SERIAL).choose()
    assert address is not None
    assert isinstance(await fleet.of(SERIAL).device.call("GET", address), NotSent)
    assert (shown(fleet)["reachable"], "nothing listens there" in shown(fleet)["reason"]) == (False, True)


async def test_a_trusted_address_that_answers_is_called_at_once(
    fleet: Fleet, right: ScriptedTerminal, silent: int
) -> None:
    fleet.announce(announced("old", right, port=silent))
    fleet.announce(announced("new", right))
    fleet.of(SERIAL).trust(Trusted(right.base_url, Proof.NONE, AT))
    assert await fleet.of(SERIAL).choose() == right.base_url
    assert list(fleet.of(SERIAL)._probes) == [f"https://127.0.0.1:{silent}"], "the check of the other address continues"


async def test_simultaneous_probes_of_one_address_are_made_once(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.announce(announced("a", right))
    async with counting(right) as connections:
        await asyncio.gather(*(fleet.of(SERIAL).check() for _ in range(20)), fleet.check_stale(60))
        assert len(connections) == 1
    assert shown(fleet)["checked_at"] is not None


@pytest.mark.parametrize("right_is_newer", [True, False])
async def test_of_two_devices_with_one_serial_the_verified_device_is_used(
    fleet: Fleet, right: ScriptedTerminal, other: ScriptedTerminal, right_is_newer: bool
) -> None:
    for terminal in (other, right) if right_is_newer else (right, other):
        fleet.announce(announced(terminal.serial, terminal))
    with capture_logs() as lines:
        assert await fleet.of(SERIAL).choose() == right.base_url
        for _ in range(3):
            await fleet.of(SERIAL).check()
    warnings = [line for line in lines if line["event"] == "discovery.claim"]
    assert [(line["log_level"], line["terminal"], line["host"]) for line in warnings] == [
        ("warning", SERIAL, right.base_url)
    ]
    assert other.base_url in warnings[0]["detail"]
    (claim,) = shown(fleet)["claims"]
    assert (claim["base_url"], claim["state"], claim["same_device"]) == (other.base_url, "refused", False)
    assert claim["reason"]
    assert (right.requests, other.requests) == ([], [])

    fleet.withdraw(other.serial)
    await fleet.of(SERIAL).check()
    assert shown(fleet)["claims"] == []
    fleet.announce(announced(other.serial, other))
    with capture_logs() as lines:
        await fleet.of(SERIAL).check()
    assert [line["event"] for line in lines] == ["discovery.claim"], "posd logs the return of the terminal again"


async def test_of_two_trusted_devices_without_the_serial_neither_is_called(
    trusting_both: Fleet, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = trusting_both
    fleet.announce(announced("a", right))
    fleet.announce(announced("b", other))
    with capture_logs() as lines:
        assert await fleet.of(SERIAL).choose() is None
        await fleet.of(SERIAL).check()
    (warning,) = (line for line in lines if line["log_level"] == "warning")
    assert (warning["event"], warning["kind"]) == ("terminal.identity_conflict", "rivals")
    dispute = fleet.of(SERIAL).conflict
    assert dispute is not None
    assert {item.base_url for item in dispute.claims} == {right.base_url, other.base_url}


async def test_a_terminal_that_reappears_elsewhere_is_called_there(fleet: Fleet, right: ScriptedTerminal) -> None:
    returned: list[str] = []
    fleet.listen(returned.append, AddressChange.RETURNED)
    fleet.announce(announced("a", right))
    await fleet.of(SERIAL).check()
    await right.unplug()
    returned.clear()
    fleet.announce(announced("a", right, port=port_of(right, 1)))
    assert returned == [SERIAL]
    async with counting(right) as connections:
        assert await fleet.of(SERIAL).choose() == right.base_urls[1]
        await fleet.of(SERIAL).check()
        assert connections
    document = shown(fleet)
    assert (document["reachable"], document["claims"]) == (True, [])


async def test_an_address_of_an_old_network_is_used_while_it_answers(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.announce(announced("a", right))
    fleet.announce(announced("s", right, serial="SN-STRANGER"))
    fleet.mark_stale()
    await fleet.of(SERIAL).check()
    assert fleet.of(SERIAL).addresses.base_url == right.base_url
    assert [item.serial for item in fleet.documents({}, everything=True)] == [SERIAL]
    await right.unplug()
    await fleet.of(SERIAL).check()
    assert fleet.of(SERIAL).addresses.base_url is None
    assert "announced" in shown(fleet)["reason"]


async def test_only_the_configured_address_is_probed(
    tmp_path: Path, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = fleet_of(tmp_path, trusting(right), f'base_url = "{right.base_url}"')
    news: list[str] = []
    fleet.listen(news.append, *AddressChange)
    fleet.announce(announced("b", other))
    assert news == []
    async with counting(other) as connections:
        assert await fleet.of(SERIAL).choose() == right.base_url
        assert fleet.document(fleet.of(SERIAL), {}).source == "config"
        await fleet.of(SERIAL).check()
        assert connections == []
    document = shown(fleet)
    assert (document["reachable"], [claim["base_url"] for claim in document["claims"]]) == (True, [other.base_url])
    await fleet.close()


async def test_a_terminal_in_the_cloud_is_never_probed(tmp_path: Path, right: ScriptedTerminal) -> None:
    (tmp_path / "fleet.ca.pem").write_text(trusting(right))
    entry = f'[[terminals]]\nserial = "{SERIAL}"\naccess_mode = "cloud"\nca_file = "fleet.ca.pem"\n'
    entry += f'base_url = "{right.base_url}"\n'
    text = toml(tmp_path, entry).replace("[webhooks]", '[webhooks]\npublic_url = "https://pos.example"')
    (tmp_path / "config.toml").write_text(text)
    fleet = Fleet(load(tmp_path / "config.toml").terminals)
    async with counting(right) as connections:
        await fleet.of(SERIAL).check()
        await fleet.check_stale(60)
        assert not fleet.of(SERIAL).addresses.can_be_probed
        assert connections == []
    await fleet.close()


async def test_the_device_that_got_a_payment_is_recognized_by_its_certificate(
    trusting_both: Fleet, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = trusting_both
    fleet.announce(announced("a", right))
    device, sent_to, elsewhere = fleet.of(SERIAL).device, right.base_urls[0], right.base_urls[1]
    attempt = await device.call(
        "POST", f"{sent_to}/x", connected=lambda certificate: fleet.of(SERIAL).note_start(sent_to, certificate)
    )
    assert isinstance(attempt, Replied)
    fleet.of(SERIAL).note_call(sent_to, None)
    assert shown(fleet)["reachable"] is True
    assert fleet.of(SERIAL).addresses.same_device(sent_to, elsewhere) == right.fingerprint
    assert fleet.of(SERIAL).addresses.same_device(sent_to, sent_to) == right.fingerprint
    assert fleet.of(SERIAL).addresses.same_device("https://192.0.2.9:1", elsewhere) is False, "it started elsewhere"
    assert fleet.of(SERIAL).addresses.was_same_device(sent_to, sent_to, right.fingerprint)
    assert fleet.of(SERIAL).addresses.was_same_device(sent_to, elsewhere, right.fingerprint)
    assert not fleet.of(SERIAL).addresses.was_same_device(sent_to, sent_to, other.fingerprint), "another has it now"
    assert not fleet.of(SERIAL).addresses.was_same_device(sent_to, sent_to, None)

    asked = [await device.call("GET", f"{url}/abort", same_as=right.fingerprint) for url in (elsewhere, other.base_url)]
    assert isinstance(asked[0], Replied)
    assert isinstance(asked[1], NotSent)
    assert other.fingerprint in asked[1].reason
    assert (right.aborts, other.requests) == (1, [])


@pytest.mark.parametrize(
    ("more", "started", "expected"),
    [
        ("", False, (True, False)),  # the start was before a restart of posd, so only the same address counts
        ('scheme = "http"', True, (True, False)),
        (f'fingerprint_sha256 = "{"0" * 64}"', False, (True, True)),
    ],
    ids=["unknown", "http", "pinned"],
)
def test_without_a_certificate_the_same_address_is_the_same_device(
    tmp_path: Path, more: str, started: bool, expected: tuple[bool, bool]
) -> None:
    scheme = "http" if "http" in more else "https"
    fleet = fleet_of(tmp_path, trustme.CA().cert_pem.bytes().decode(), more)
    here, there = f"{scheme}://192.0.2.1:6869", f"{scheme}://192.0.2.2:6869"
    fleet.announce(Announcement("a", SERIAL, ("192.0.2.1",), 6869, None, None, AT))
    if started:
        fleet.of(SERIAL).note_start(here, None)
    assert (
        fleet.of(SERIAL).addresses.same_device(here, here),
        fleet.of(SERIAL).addresses.same_device(here, there),
    ) == expected
    assert fleet.of(SERIAL).addresses.was_same_device(here, here, None)
    assert fleet.of(SERIAL).addresses.was_same_device(here, there, None) == expected[1]


@pytest.mark.parametrize("key", ["fingerprint_sha256", "public_key_sha256"])
def test_a_device_pinned_after_the_start_is_not_the_device_of_the_start(tmp_path: Path, key: str) -> None:
    here, before, after = "https://192.0.2.1:6869", "a" * 64, "b" * 64
    entry = f'[[terminals]]\nserial = "{SERIAL}"\nbase_url = "{here}"\n'
    fleet = Fleet(configured(tmp_path, f'{entry}{key} = "{before}"\n'))
    fleet.of(SERIAL).note_start(here, before)
    fleet.adopt(make_clients(configured(tmp_path, f'{entry}{key} = "{after}"\n')), EDITIONS)
    assert fleet.of(SERIAL).addresses.same_device(here, here) == before
    assert not fleet.of(SERIAL).addresses.was_same_device(here, here, after)
    assert fleet.of(SERIAL).addresses.was_same_device(here, here, before)


def test_a_name_with_a_new_serial_loses_its_old_announcement(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, trustme.CA().cert_pem.bytes().decode())
    fleet.announce(Announcement("a", SERIAL, ("192.0.2.1",), 6869, None, None, AT))
    fleet.announce(Announcement("a", "SN-2", ("192.0.2.1",), 6869, None, None, AT))
    assert fleet.of(SERIAL).addresses.base_url is None
    assert [item.serial for item in fleet.documents({}, everything=True)] == [SERIAL, "SN-2"]
    gone = fleet.withdraw("a")
    assert gone is not None
    assert gone.serial == "SN-2"


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_newest_announced_address_is_used_with_the_configured_url_scheme(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "config.toml").write_text(toml(tmp_path, f'[[terminals]]\nserial = "{SERIAL}"\nscheme = "{scheme}"\n'))
    fleet = Fleet(load(tmp_path / "config.toml").terminals)
    for name, host in (("a", "192.0.2.1"), ("b", "192.0.2.2"), ("a", "192.0.2.3")):
        fleet.announce(Announcement(name, SERIAL, (host,), 6868, None, None, AT))
        assert fleet.of(SERIAL).addresses.base_url == f"{scheme}://{host}:6868"
    fleet.withdraw("a")
    assert fleet.of(SERIAL).addresses.base_url == f"{scheme}://192.0.2.2:6868"


def test_of_many_strangers_the_oldest_are_removed_first() -> None:
    fleet = Fleet(())
    for number in range(MAX_STRANGERS + 10):
        fleet.announce(Announcement(f"n{number}", f"S{number}", ("192.0.2.1",), 6869, None, None, AT))
    known = [item.serial for item in fleet.documents({}, everything=True)]
    assert known == [f"S{number}" for number in range(10, MAX_STRANGERS + 10)]
    assert all(item.in_fleet is False for item in fleet.documents({}, everything=True))


def configured(home: Path, entries: str) -> tuple[TerminalConfig, ...]:
    (home / "config.toml").write_text(toml(home, entries))
    return load(home / "config.toml").terminals


async def test_a_reload_keeps_the_state_of_a_terminal(fleet: Fleet, tmp_path: Path, right: ScriptedTerminal) -> None:
    fleet.announce(announced("one", right))
    await fleet.of(SERIAL).check()
    fleet.of(SERIAL).note_start(right.base_url, right.fingerprint)
    before = shown(fleet)
    assert before["reachable"] is True

    fleet.adopt(make_clients(load(tmp_path / "config.toml").terminals), EDITIONS)
    assert shown(fleet) == before
    assert fleet.of(SERIAL).addresses.same_device(right.base_url, "https://elsewhere") == right.fingerprint

    # The trusted CA has changed. The address stays, but the terminal must prove its identity again.
    pinned = f'[[terminals]]\nserial = "{SERIAL}"\nfingerprint_sha256 = "{"0" * 64}"\n{PATIENT}'
    fleet.adopt(make_clients(configured(tmp_path, pinned)), EDITIONS)
    assert (shown(fleet)["base_url"], shown(fleet)["reachable"]) == (before["base_url"], None)
    await fleet.of(SERIAL).check()
    assert "has fingerprint" in shown(fleet)["reason"]


async def test_a_reload_keeps_the_announcements_of_added_and_removed_terminals(
    fleet: Fleet, tmp_path: Path, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet.announce(announced("one", right))
    fleet.announce(announced("two", other, serial="SN-NEW"))
    liveness = Liveness(fleet, 0, lambda _serial: False, random.random)
    entry = f'[[terminals]]\nserial = "SN-NEW"\nca_file = "{other.ca_file}"\n{PATIENT}'
    fleet.adopt(make_clients(configured(tmp_path, entry)), EDITIONS)
    assert fleet.serials == ("SN-NEW",)
    documents = list(fleet.documents({}, everything=True))
    assert [(item.serial, item.in_fleet) for item in documents] == [("SN-NEW", msgspec.UNSET), (SERIAL, False)]
    reached = asyncio.Event()
    fleet.listen(lambda _serial: reached.set(), AddressChange.REACHED)
    looking = asyncio.create_task(liveness.run())
    await asyncio.wait_for(reached.wait(), 60)  # the address is announced, so posd itself probes it
    assert shown(fleet)["reachable"] is True
    looking.cancel()
    await asyncio.wait({looking})
    # If a call has chosen the removed terminal, the call can still use the terminal.
    assert fleet.of(SERIAL).device is not None
    assert fleet.of(SERIAL).config.access_mode == "local"
    fleet.adopt(make_clients(configured(tmp_path, entry + f'[[terminals]]\nserial = "{SERIAL}"\n')), EDITIONS)
    assert fleet.of(SERIAL).addresses.base_url is not None
