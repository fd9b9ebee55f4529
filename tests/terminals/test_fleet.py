"""The fleet with real terminals over TLS: which address a call goes to, and what is told of the others (design 8)."""

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
from posd.terminals import members
from posd.terminals.addresses import MAX_STRANGERS, AddressChange
from posd.terminals.announcements import Announcement
from posd.terminals.attempt import NotSent, Replied
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Proof, Trusted
from posd.terminals.liveness import Liveness
from tests.support.daemon import toml
from tests.support.shop import answering
from tests.support.terminal import ScriptedTerminal, scripted_terminal

SERIAL = "SN-1"
AT = "2026-11-20T10:00:00.000Z"
#: What answers does so, however busy this machine is.
PATIENT = "connect_timeout_seconds = 60\n"


def fleet_of(home: Path, ca: str, more: str = "") -> Fleet:
    """Return a fleet of one terminal; `ca` is what it trusts."""
    (home / "fleet.ca.pem").write_text(ca)
    entry = f'[[terminals]]\nserial = "{SERIAL}"\nca_file = "{home}/fleet.ca.pem"\n{PATIENT}{more}\n'
    (home / "config.toml").write_text(toml(home, entry))
    return Fleet(load(home / "config.toml").terminals)


def trusting(*terminals: ScriptedTerminal) -> str:
    return "".join(terminal.ca_file.read_text() for terminal in terminals)


def announced(name: str, terminal: ScriptedTerminal, *hosts: str, port: int = 0, serial: str = SERIAL) -> Announcement:
    """Return what a terminal announces: at loopback, or at these hosts."""
    return Announcement(name, serial, hosts or ("127.0.0.1",), port or port_of(terminal), "B", "M", AT)


def port_of(terminal: ScriptedTerminal, number: int = 0) -> int:
    return int(terminal.base_urls[number].rsplit(":", 1)[1])


@asynccontextmanager
async def counting(terminal: ScriptedTerminal) -> AsyncIterator[list[None]]:
    """Count the connections, which are closed when their other side closes; none may have sent anything."""
    connections: list[None] = []

    async def instead(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        connections.append(None)
        assert await reader.read() == b"", "a look sends nothing"

    terminal.instead = instead
    yield connections
    terminal.instead = None


@pytest.fixture
async def right(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    """The terminal, with two addresses and a certificate of its own CA."""
    async with scripted_terminal(tmp_path, "right", ports=2) as right:
        right.start = right.abort = answering(200, b"{}")
        yield right


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    """Another one, with a certificate of another CA."""
    async with scripted_terminal(tmp_path, "other") as other:
        other.start = answering(200, b"{}")
        yield other


@pytest.fixture
async def fleet(tmp_path: Path, right: ScriptedTerminal) -> AsyncIterator[Fleet]:
    """A fleet of one terminal that trusts the right one alone."""
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
    """The port of a device that accepts connections and never says a word."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def shown(fleet: Fleet) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(next(iter(fleet.documents({}, everything=False))))
    return document


async def test_one_address_is_not_looked_at_before_a_call(fleet: Fleet, right: ScriptedTerminal) -> None:
    assert await fleet.addresses.choose(SERIAL) is None
    assert fleet.addresses.announce(announced("a", right))
    async with counting(right) as connections:
        assert await fleet.addresses.choose(SERIAL) == (right.base_url, "mdns")
        assert connections == []
    assert shown(fleet)["reachable"] is None


async def test_of_several_addresses_a_call_goes_to_one_that_answers(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.addresses.announce(announced("a", right, "127.0.0.99", "127.0.0.1"))
    assert fleet.addresses.base_url(SERIAL) == (f"https://127.0.0.99:{port_of(right)}", "mdns")
    address = await fleet.addresses.choose(SERIAL)
    assert address == (right.base_url, "mdns")
    assert isinstance(await fleet.contact.device(SERIAL).call("GET", f"{address[0]}/x"), Replied)
    assert len(right.requests) == 1
    document = shown(fleet)
    assert (document["base_url"], document["reachable"], document["reason"]) == (right.base_url, True, None)
    (claim,) = document["claims"]
    assert (claim["state"], claim["same_device"]) == ("silent", True)
    assert "nothing listens there" in claim["reason"]
    async with counting(right) as connections:  # it is known for a while which one answers
        assert await fleet.addresses.choose(SERIAL) == address
        assert connections == []


async def test_one_that_did_not_answer_just_now_is_looked_at_again_where_no_other_does(
    fleet: Fleet, right: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posd.terminals.addresses.CHECK_SECONDS", 0.0)
    fleet.addresses.announce(announced("old", right))
    fleet.addresses.announce(announced("new", right, port=1))
    fleet.addresses.reached(SERIAL, False, AT, base_url=right.base_url)
    fleet.addresses.reached(SERIAL, False, AT, base_url="https://127.0.0.1:1")
    assert await fleet.addresses.choose(SERIAL) == (right.base_url, "mdns")


async def test_who_waits_for_an_address_waits_no_longer_when_posd_stops(tmp_path: Path, silent: int) -> None:
    fleet = fleet_of(tmp_path, trustme.CA().cert_pem.bytes().decode())
    fleet.addresses.announce(Announcement("a", SERIAL, ("127.0.0.1", "127.0.0.2"), silent, None, None, AT))
    choosing = asyncio.create_task(fleet.addresses.choose(SERIAL))
    await asyncio.sleep(0)  # it looks now
    fleet.cancel_calls()
    async with asyncio.timeout(30):  # it would take the connect time-out
        assert await choosing is not None
    await fleet.close()


async def test_where_none_answers_the_reason_is_told(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.addresses.announce(announced("a", right, "127.0.0.99", "127.0.0.98"))
    address = await fleet.addresses.choose(SERIAL)
    assert address is not None
    assert isinstance(await fleet.contact.device(SERIAL).call("GET", address[0]), NotSent)
    assert (shown(fleet)["reachable"], "nothing listens there" in shown(fleet)["reason"]) == (False, True)


async def test_where_it_was_trusted_and_answers_no_call_is_kept_waiting_by_what_does_not(
    fleet: Fleet, right: ScriptedTerminal, silent: int
) -> None:
    fleet.addresses.announce(announced("old", right, port=silent))
    fleet.addresses.announce(announced("new", right))
    fleet.addresses.trust(SERIAL, Trusted(right.base_url, Proof.NONE, AT))
    assert await fleet.addresses.choose(SERIAL) == (right.base_url, "mdns")
    assert [url for _, url in fleet.addresses._looks] == [f"https://127.0.0.1:{silent}"], (
        "the other one is still waited for"
    )


async def test_looks_at_one_address_are_joined(fleet: Fleet, right: ScriptedTerminal) -> None:
    fleet.addresses.announce(announced("a", right))
    async with counting(right) as connections:
        await asyncio.gather(*(fleet.addresses.check(SERIAL) for _ in range(20)), fleet.addresses.check_stale(60))
        assert len(connections) == 1
    assert shown(fleet)["checked_at"] is not None


@pytest.mark.parametrize("right_is_newer", [True, False])
async def test_of_two_that_claim_one_serial_the_one_that_is_trusted_wins(
    fleet: Fleet, right: ScriptedTerminal, other: ScriptedTerminal, right_is_newer: bool
) -> None:
    for terminal in (other, right) if right_is_newer else (right, other):
        fleet.addresses.announce(announced(terminal.serial, terminal))
    with capture_logs() as lines:
        assert await fleet.addresses.choose(SERIAL) == (right.base_url, "mdns")
        for _ in range(3):
            await fleet.addresses.check(SERIAL)
    warnings = [line for line in lines if line["event"] == "discovery.claim"]
    assert [(line["log_level"], line["terminal"], line["host"]) for line in warnings] == [
        ("warning", SERIAL, right.base_url)
    ]
    assert other.base_url in warnings[0]["detail"]
    (claim,) = shown(fleet)["claims"]
    assert (claim["base_url"], claim["state"], claim["same_device"]) == (other.base_url, "refused", False)
    assert claim["reason"]
    assert (right.requests, other.requests) == ([], [])

    fleet.addresses.withdraw(other.serial)
    await fleet.addresses.check(SERIAL)
    assert shown(fleet)["claims"] == []
    fleet.addresses.announce(announced(other.serial, other))
    with capture_logs() as lines:
        await fleet.addresses.check(SERIAL)
    assert [line["event"] for line in lines] == ["discovery.claim"], "it is there again: that is told again"


async def test_where_both_are_trusted_and_none_bears_the_serial_none_is_called_and_a_person_is_told(
    trusting_both: Fleet, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = trusting_both
    fleet.addresses.announce(announced("a", right))
    fleet.addresses.announce(announced("b", other))
    with capture_logs() as lines:
        assert await fleet.addresses.choose(SERIAL) is None
        await fleet.addresses.check(SERIAL)
    (warning,) = (line for line in lines if line["log_level"] == "warning")
    assert (warning["event"], warning["kind"]) == ("terminal.identity_conflict", "rivals")
    dispute = fleet.addresses.conflict(SERIAL)
    assert dispute is not None
    assert {item.base_url for item in dispute.claims} == {right.base_url, other.base_url}


async def test_a_terminal_that_reappears_elsewhere_is_called_there(fleet: Fleet, right: ScriptedTerminal) -> None:
    returned: list[str] = []
    fleet.addresses.listen(returned.append)
    fleet.addresses.announce(announced("a", right))
    await fleet.addresses.check(SERIAL)
    await right.unplug()
    returned.clear()
    fleet.addresses.announce(announced("a", right, port=port_of(right, 1)))
    assert returned == [SERIAL]
    async with counting(right) as connections:
        assert await fleet.addresses.choose(SERIAL) == (right.base_urls[1], "mdns")
        await fleet.addresses.check(SERIAL)
        assert connections
    document = shown(fleet)
    assert (document["reachable"], document["claims"]) == (True, [])


async def test_an_announcement_that_is_a_lie_takes_nothing_away(
    fleet: Fleet, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet.addresses.announce(announced("a", right))
    await fleet.addresses.check(SERIAL)
    fleet.addresses.announce(announced("a", other))  # the same name, and not the terminal
    assert await fleet.addresses.choose(SERIAL) == (right.base_url, "mdns")
    assert [claim["state"] for claim in shown(fleet)["claims"]] == ["refused"]


async def test_what_was_announced_before_the_network_changed_counts_for_as_long_as_it_answers(
    fleet: Fleet, right: ScriptedTerminal
) -> None:
    fleet.addresses.announce(announced("a", right))
    fleet.addresses.announce(announced("s", right, serial="SN-STRANGER"))
    fleet.addresses.mark_stale()
    await fleet.addresses.check(SERIAL)
    assert fleet.addresses.base_url(SERIAL) == (right.base_url, "mdns")
    assert [item.serial for item in fleet.documents({}, everything=True)] == [SERIAL]
    await right.unplug()
    await fleet.addresses.check(SERIAL)
    assert fleet.addresses.base_url(SERIAL) is None
    assert "announced" in shown(fleet)["reason"]


async def test_a_configured_address_is_the_one_that_is_looked_at(
    tmp_path: Path, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = fleet_of(tmp_path, trusting(right), f'base_url = "{right.base_url}"')
    news: list[tuple[str, AddressChange]] = []
    fleet.addresses.on_news = lambda serial, item: news.append((serial, item))
    fleet.addresses.announce(announced("b", other))
    assert news == []
    async with counting(other) as connections:
        assert await fleet.addresses.choose(SERIAL) == (right.base_url, "config")
        await fleet.addresses.check(SERIAL)
        assert connections == []
    document = shown(fleet)
    assert (document["reachable"], [claim["base_url"] for claim in document["claims"]]) == (True, [other.base_url])
    await fleet.close()


async def test_a_terminal_in_the_cloud_is_never_looked_at(tmp_path: Path, right: ScriptedTerminal) -> None:
    (tmp_path / "fleet.ca.pem").write_text(trusting(right))
    entry = f'[[terminals]]\nserial = "{SERIAL}"\naccess_mode = "cloud"\nca_file = "fleet.ca.pem"\n'
    entry += f'base_url = "{right.base_url}"\n'
    text = toml(tmp_path, entry).replace("[webhooks]", '[webhooks]\npublic_url = "https://pos.example"')
    (tmp_path / "config.toml").write_text(text)
    fleet = Fleet(load(tmp_path / "config.toml").terminals)
    async with counting(right) as connections:
        await fleet.addresses.check(SERIAL)
        await fleet.addresses.check_stale(60)
        assert not fleet.addresses.can_be_looked_at(SERIAL)
        assert connections == []
    await fleet.close()


async def test_the_device_that_was_sent_a_payment_is_known_again_by_its_certificate(
    trusting_both: Fleet, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet = trusting_both
    fleet.addresses.announce(announced("a", right))
    device, sent_to, elsewhere = fleet.contact.device(SERIAL), right.base_urls[0], right.base_urls[1]
    attempt = await device.call(
        "POST", f"{sent_to}/x", connected=lambda certificate: fleet.contact.note_start(SERIAL, sent_to, certificate)
    )
    fleet.addresses.note_result(SERIAL, sent_to, attempt)
    assert shown(fleet)["reachable"] is True
    assert fleet.contact.same_device(SERIAL, sent_to, elsewhere) == right.fingerprint
    assert fleet.contact.same_device(SERIAL, sent_to, sent_to) == right.fingerprint
    assert fleet.contact.same_device(SERIAL, "https://192.0.2.9:1", elsewhere) is False, "an earlier start, elsewhere"
    assert fleet.contact.was_same_device(SERIAL, sent_to, sent_to, right.fingerprint)
    assert fleet.contact.was_same_device(SERIAL, sent_to, elsewhere, right.fingerprint)
    assert not fleet.contact.was_same_device(SERIAL, sent_to, sent_to, other.fingerprint), "another has its address now"
    assert not fleet.contact.was_same_device(SERIAL, sent_to, sent_to, None)

    asked = [await device.call("GET", f"{url}/abort", same_as=right.fingerprint) for url in (elsewhere, other.base_url)]
    assert isinstance(asked[0], Replied)
    assert isinstance(asked[1], NotSent)
    assert other.fingerprint in asked[1].reason
    assert (right.aborts, other.requests) == (1, [])


@pytest.mark.parametrize(
    ("more", "started", "expected"),
    [
        ("", False, (True, False)),  # a start before posd was restarted: the same address has to do
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
    fleet.addresses.announce(Announcement("a", SERIAL, ("192.0.2.1",), 6869, None, None, AT))
    if started:
        fleet.contact.note_start(SERIAL, here, None)
    assert (fleet.contact.same_device(SERIAL, here, here), fleet.contact.same_device(SERIAL, here, there)) == expected
    assert fleet.contact.was_same_device(SERIAL, here, here, None)
    assert fleet.contact.was_same_device(SERIAL, here, there, None) == expected[1]


def test_a_name_that_belongs_to_another_serial_now_takes_its_claim_along(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, trustme.CA().cert_pem.bytes().decode())
    fleet.addresses.announce(Announcement("a", SERIAL, ("192.0.2.1",), 6869, None, None, AT))
    fleet.addresses.announce(Announcement("a", "SN-2", ("192.0.2.1",), 6869, None, None, AT))
    assert fleet.addresses.base_url(SERIAL) is None
    assert [item.serial for item in fleet.documents({}, everything=True)] == [SERIAL, "SN-2"]
    gone = fleet.addresses.withdraw("a")
    assert gone is not None
    assert gone.serial == "SN-2"


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_newest_announcement_counts_in_the_configured_scheme(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "config.toml").write_text(toml(tmp_path, f'[[terminals]]\nserial = "{SERIAL}"\nscheme = "{scheme}"\n'))
    fleet = Fleet(load(tmp_path / "config.toml").terminals)
    for name, host in (("a", "192.0.2.1"), ("b", "192.0.2.2"), ("a", "192.0.2.3")):
        fleet.addresses.announce(Announcement(name, SERIAL, (host,), 6868, None, None, AT))
        assert fleet.addresses.base_url(SERIAL) == (f"{scheme}://{host}:6868", "mdns")
    fleet.addresses.withdraw("a")
    assert fleet.addresses.base_url(SERIAL) == (f"{scheme}://192.0.2.2:6868", "mdns")


def test_strangers_without_end_are_forgotten_the_oldest_first() -> None:
    fleet = Fleet(())
    for number in range(MAX_STRANGERS + 10):
        fleet.addresses.announce(Announcement(f"n{number}", f"S{number}", ("192.0.2.1",), 6869, None, None, AT))
    known = [item.serial for item in fleet.documents({}, everything=True)]
    assert known == [f"S{number}" for number in range(10, MAX_STRANGERS + 10)]
    assert all(item.in_fleet is False for item in fleet.documents({}, everything=True))


def configured(home: Path, entries: str) -> tuple[TerminalConfig, ...]:
    (home / "config.toml").write_text(toml(home, entries))
    return load(home / "config.toml").terminals


async def test_what_is_known_of_a_terminal_stays_known_when_the_configuration_is_read_anew(
    fleet: Fleet, tmp_path: Path, right: ScriptedTerminal
) -> None:
    fleet.addresses.announce(announced("one", right))
    await fleet.addresses.check(SERIAL)
    fleet.contact.note_start(SERIAL, right.base_url, right.fingerprint)
    before = shown(fleet)
    assert before["reachable"] is True

    fleet.adopt(members.made(load(tmp_path / "config.toml").terminals), EDITIONS)
    assert shown(fleet) == before
    assert fleet.contact.same_device(SERIAL, right.base_url, "https://elsewhere") == right.fingerprint

    # Trusted otherwise now: it is where it was, and has to show anew that it is the right one.
    pinned = f'[[terminals]]\nserial = "{SERIAL}"\nfingerprint_sha256 = "{"0" * 64}"\n{PATIENT}'
    fleet.adopt(members.made(configured(tmp_path, pinned)), EDITIONS)
    assert (shown(fleet)["base_url"], shown(fleet)["reachable"]) == (before["base_url"], None)
    await fleet.addresses.check(SERIAL)
    assert "has fingerprint" in shown(fleet)["reason"]


async def test_one_that_is_added_has_what_was_announced_of_it_and_one_that_goes_is_a_stranger(
    fleet: Fleet, tmp_path: Path, right: ScriptedTerminal, other: ScriptedTerminal
) -> None:
    fleet.addresses.announce(announced("one", right))
    fleet.addresses.announce(announced("two", other, serial="SN-NEW"))
    liveness = Liveness(fleet, 0, lambda _serial: False, random.random)
    entry = f'[[terminals]]\nserial = "SN-NEW"\nca_file = "{other.ca_file}"\n{PATIENT}'
    fleet.adopt(members.made(configured(tmp_path, entry)), EDITIONS)
    assert fleet.serials == ("SN-NEW",)
    documents = list(fleet.documents({}, everything=True))
    assert [(item.serial, item.in_fleet) for item in documents] == [("SN-NEW", msgspec.UNSET), (SERIAL, False)]
    reached, heard = asyncio.Event(), fleet.addresses.on_news

    def hear(serial: str, news: AddressChange) -> None:
        heard(serial, news)
        if news is AddressChange.REACHED:
            reached.set()

    fleet.addresses.on_news = hear
    looking = asyncio.create_task(liveness.run())
    await asyncio.wait_for(reached.wait(), 60)  # announced, so it is looked at by itself
    assert shown(fleet)["reachable"] is True
    looking.cancel()
    await asyncio.wait({looking})
    # Who was about to call the one that has gone still can.
    assert fleet.contact.device(SERIAL) is not None
    assert fleet.access_mode(SERIAL) == "local"
    fleet.adopt(members.made(configured(tmp_path, entry + f'[[terminals]]\nserial = "{SERIAL}"\n')), EDITIONS)
    assert fleet.addresses.base_url(SERIAL) is not None
