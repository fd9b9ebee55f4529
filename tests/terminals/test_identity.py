"""An address is not an identity: devices that announce a serial, with real mDNS and a real daemon."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import uuid4

import pytest
import trustme
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from tests.rig.daemon import Daemon, running
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.shop import AMOUNT, acknowledging
from tests.rig.streams import Reply
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.rig.waits import until
from tests.rig.webhooks import attention
from tests.terminals import announcing
from tests.terminals.announcing import DISCOVERY, port_of, shown


@pytest.fixture
def serial() -> str:
    return f"SN-{token_hex(3)}"


@pytest.fixture
async def devices(home: Path, serial: str) -> AsyncIterator[tuple[ScriptedTerminal, ScriptedTerminal]]:
    """Yield two devices with plain HTTP. The first device is the terminal.

    It has a second port to which it can move.
    """
    async with AsyncExitStack() as stack:
        right = await stack.enter_async_context(scripted_terminal(home, serial, ports=2, plain=True))
        other = await stack.enter_async_context(scripted_terminal(home, f"{serial}-other", plain=True))
        right.start = other.start = acknowledging(serial)
        yield right, other


def plain(serial: str) -> str:
    """Return the entry of a discovered terminal with plain HTTP."""
    return f'[[terminals]]\nserial = "{serial}"\nscheme = "http"\nconnect_timeout_seconds = 2\n'


def announcement(instance: str, url: str, serial: str) -> ServiceInfo:
    return announcing.service(f"{instance}-{serial}", port_of(url), {"serial": serial})


async def announce(network: AsyncZeroconf, posd: Daemon, instance: str, url: str, serial: str) -> ServiceInfo:
    """Announce a serial at an address, and wait until the daemon has received it."""
    seen, info = len(posd.lines), announcement(instance, url, serial)
    await network.async_register_service(info, cooperating_responders=True)
    await posd.log_line("discovery.found", after=seen, terminal=serial, port=port_of(url))
    return info


async def charge(posd: Daemon, serial: str) -> Reply:
    return await posd.call("PUT", f"/transactions/{uuid4()}", {"terminal": serial, "amount": AMOUNT})


async def active(posd: Daemon, serial: str) -> str:
    """Start a payment that the terminal accepts. Return its id."""
    reply = await charge(posd, serial)
    assert (reply.status, reply.json["phase"]) == (201, "active"), reply.body
    return str(reply.json["client_transaction_id"])


async def end(posd: Daemon, terminal: ScriptedTerminal, identity: str, serial: str) -> None:
    """Make the terminal report that the payment was canceled."""
    request = next(item for item in terminal.requests if identity.encode() in item.body)
    assert await deliver(request.callback, body(identity, "TERMINAL_CANCELED", None, serial), posd.ca) == 200


async def paid(posd: Daemon, terminal: ScriptedTerminal, serial: str) -> None:
    """Run a complete payment, so that the terminal is trusted at its present address."""
    await end(posd, terminal, await active(posd, serial), serial)


@asynccontextmanager
async def trusting(
    home: Path, network: AsyncZeroconf, terminal: ScriptedTerminal, serial: str
) -> AsyncIterator[tuple[Daemon, ServiceInfo]]:
    """Run a daemon that has found this terminal and made a payment on it. Yield the daemon and the announcement."""
    async with running(home, plain(serial), discovery=DISCOVERY) as posd:
        info = await announce(network, posd, "right", terminal.base_url, serial)
        await paid(posd, terminal, serial)
        yield posd, info


async def known(posd: Daemon, serial: str) -> Any:
    return (await posd.call("GET", f"/terminals/{serial}")).json


async def unreachable(posd: Daemon, serial: str) -> bool:
    return not (await known(posd, serial))["reachable"]


def refused(reply: Reply) -> set[str]:
    """Return the addresses of the claims in the refusal of a call."""
    assert (reply.status, reply.json["code"]) == (503, "identity_conflict"), reply.body
    return {item["base_url"] for item in reply.json["claims"]}


async def decide(posd: Daemon, serial: str, base_url: str) -> Reply:
    said = {"operator": "Ana", "note": "I looked at the terminal", "base_url": base_url}
    return await posd.call("POST", f"/terminals/{serial}/identity", said, socket=posd.admin_socket)


Devices = tuple[ScriptedTerminal, ScriptedTerminal]


async def test_nothing_is_sent_to_a_second_device_with_the_serial_until_an_operator_decides(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with trusting(home, network, right, serial) as (posd, _):
        await announce(network, posd, "other", other.base_url, serial)

        reply = await charge(posd, serial)
        assert refused(reply) == {right.base_url, other.base_url}
        assert {item["proof"] for item in reply.json["claims"]} == {"none"}
        assert (len(right.requests), other.requests) == (1, [])
        found = await known(posd, serial)
        assert (found["base_url"], found["identity"]["conflict"]) == (right.base_url, True)
        health = (await posd.call("GET", "/health")).json
        assert (health["status"], health["checks"]["identity"]["status"]) == ("degraded", "degraded")
        assert "posd terminals identity" in health["checks"]["identity"]["todo"]
        job = {"terminal": serial, "external_reference": "", "document": {"text": "x"}}
        assert refused(await posd.call("PUT", "/print-jobs/one", job)) == {right.base_url, other.base_url}
        line = await posd.log_line("terminal.identity_conflict", terminal=serial)
        assert (line["level"], line["kind"]) == ("warning", "rivals")

        assert (await decide(posd, serial, "http://192.0.2.1:1")).json["code"] == "invalid_request"
        assert (await decide(posd, "SN-NOBODY", right.base_url)).json["code"] == "not_found"
        decided = await decide(posd, serial, right.base_url)
        assert (decided.status, decided.json["identity"]["conflict"]) == (200, False), decided.body
        await paid(posd, right, serial)

        await posd.restart()  # an operator's decision stays, although the other device still replies
        await shown(posd, serial, base_url=right.base_url, reachable=True)
        await paid(posd, right, serial)
        assert (len(right.requests), other.requests, right.prints, other.prints) == (3, [], [], [])


async def test_another_device_does_not_replace_a_terminal_that_is_silent_for_a_moment(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with trusting(home, network, right, serial) as (posd, _):
        await right.unplug()
        await announce(network, posd, "other", other.base_url, serial)
        async with asyncio.TaskGroup() as tasks:
            charging = tasks.create_task(charge(posd, serial))
            await until(lambda: unreachable(posd, serial))
            await right.plug_in()
        assert refused(charging.result()) == {right.base_url, other.base_url}
        assert other.requests == []


async def test_a_terminal_that_moves_without_an_open_payment_is_followed(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, _ = devices
    async with trusting(home, network, right, serial) as (posd, _):
        await right.unplug()
        await network.async_update_service(announcement("right", right.base_urls[1], serial))
        await posd.log_line("discovery.found", terminal=serial, port=port_of(right.base_urls[1]))
        await paid(posd, right, serial)
        found = await known(posd, serial)
        assert (found["base_url"], found["identity"]["conflict"]) == (right.base_urls[1], False)
        assert (await posd.log_line("terminal.moved", terminal=serial))["host"] == right.base_urls[1]


async def test_during_a_payment_nothing_is_sent_to_a_new_address_without_proof(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with running(home, plain(serial), discovery=DISCOVERY) as posd:
        await announce(network, posd, "right", right.base_url, serial)
        identity = await active(posd, serial)
        await right.unplug()
        await announce(network, posd, "other", other.base_url, serial)
        payment = await posd.wait_for(identity, lambda item: "identity_conflict" in attention(item))
        assert payment["outcome"] is None
        reply = await posd.call("POST", f"/transactions/{identity}/reconcile")
        assert reply.json["last_search"]["result"] == "no_answer"
        assert refused(await posd.call("POST", f"/transactions/{identity}/abort")) == {right.base_url, other.base_url}
        assert (other.requests, other.searches) == ([], [])

        await posd.restart()  # the result is the same after a restart, because posd has stored the address of the start
        await posd.log_line("terminal.identity_conflict", terminal=serial)
        await posd.call("POST", f"/transactions/{identity}/reconcile")
        assert (other.requests, other.searches) == ([], [])

        await right.plug_in()
        assert (await network.async_unregister_service(announcement("other", other.base_url, serial))) is not None
        await posd.wait_for(identity, lambda item: "identity_conflict" not in attention(item))
        await right.until(lambda: bool(right.searches))
        assert other.searches == []


async def test_after_a_restart_the_first_device_with_the_serial_is_not_trusted(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with trusting(home, network, right, serial) as (posd, info):
        await posd.kill()
        await (await network.async_unregister_service(info))
        await posd.start()
        await announce(network, posd, "other", other.base_url, serial)
        assert refused(await charge(posd, serial)) == {right.base_url, other.base_url}
        assert other.requests == []


async def test_a_forged_goodbye_does_not_let_another_device_replace_the_terminal(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with trusting(home, network, right, serial) as (posd, info):
        await (await network.async_unregister_service(info))
        await posd.log_line("discovery.gone", terminal=serial)
        await paid(posd, right, serial)  # the terminal replies as before
        await announce(network, posd, "right", other.base_url, serial)
        assert refused(await charge(posd, serial)) == {right.base_url, other.base_url}
        assert other.requests == []


@pytest.mark.slow
async def test_a_conflict_ends_when_the_other_device_stays_away(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with trusting(home, network, right, serial) as (posd, _):
        await announce(network, posd, "other", other.base_url, serial)
        refused(await charge(posd, serial))
        await other.unplug()
        refused(await charge(posd, serial))  # the conflict does not end at once, because the device may return
        await shown(posd, serial, conflict=False)
        await posd.log_line("terminal.identity_settled", terminal=serial)
        await paid(posd, right, serial)
        assert other.requests == []


async def test_of_two_devices_before_the_first_payment_neither_is_chosen(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with running(home, plain(serial), discovery=DISCOVERY) as posd:
        await announce(network, posd, "right", right.base_url, serial)
        await announce(network, posd, "other", other.base_url, serial)
        assert refused(await charge(posd, serial)) == {right.base_url, other.base_url}
        assert (await decide(posd, serial, right.base_url)).status == 200
        await paid(posd, right, serial)
        # posd does not follow a rejected device, even if the right device is away.
        await right.unplug()
        await shown(posd, serial, reachable=False)
        assert refused(await charge(posd, serial)) == {right.base_url, other.base_url}
        assert other.requests == []
        text = await posd.metrics()
        assert f'posd_terminal_identity_conflict{{terminal="{serial}"}} 1' in text


def bearing(serial: str) -> Any:
    """Return a function that issues a certificate with this serial."""

    def issue(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("127.0.0.1", common_name=serial)

    return issue


@pytest.mark.parametrize("proof", ["ca", "pinned"])
async def test_a_terminal_that_proves_its_identity_may_move_during_a_payment(
    home: Path, network: AsyncZeroconf, serial: str, proof: str
) -> None:
    async with (
        scripted_terminal(
            home, serial, bearing(serial) if proof == "ca" else lambda ca: ca.issue_cert("127.0.0.1"), 2
        ) as right,
        scripted_terminal(home, f"{serial}-other") as other,
    ):
        right.start = other.start = acknowledging(serial)
        (home / "fleet.pem").write_text(right.ca_file.read_text() + other.ca_file.read_text())
        trusted = (
            f'fingerprint_sha256 = "{right.fingerprint}"' if proof == "pinned" else f'ca_file = "{home}/fleet.pem"'
        )
        entry = f'[[terminals]]\nserial = "{serial}"\n{trusted}\n'
        async with running(home, entry, discovery=DISCOVERY) as posd:
            await announce(network, posd, "right", right.base_url, serial)
            identity = await active(posd, serial)
            await announce(network, posd, "other", other.base_url, serial)
            await right.unplug()
            await network.async_update_service(announcement("right", right.base_urls[1], serial))
            await posd.log_line("discovery.found", terminal=serial, port=port_of(right.base_urls[1]))
            found = await shown(posd, serial, base_url=right.base_urls[1], reachable=True)
            assert (found["identity"]["proof"], found["identity"]["conflict"]) == (proof, False)
            await posd.call("POST", f"/transactions/{identity}/reconcile")
            assert len(right.searches) >= 1
            assert (other.requests, other.searches) == ([], [])
            # A device that proved its identity before is not trusted without a new proof.
            await end(posd, right, identity, serial)
            await posd.restart()
            await right.unplug(1)
            await posd.log_line("discovery.started")
            await shown(posd, serial, reachable=False)
            if proof == "ca":
                await shown(posd, serial, conflict=True)
            reply = await charge(posd, serial)
            if proof == "ca":
                assert refused(reply) >= {right.base_url, other.base_url}
            else:  # posd connects to the device at the address, and the device shows another certificate
                assert (reply.status, reply.json["phase"]) == (201, "final")
            assert (other.requests, other.searches) == ([], [])


async def test_the_configured_address_of_another_terminal_is_not_used(
    home: Path, devices: Devices, serial: str
) -> None:
    right, _ = devices
    right.start = acknowledging("SN-ANOTHER")
    entry = f'{plain(serial)}base_url = "{right.base_url}"\n'
    async with running(home, entry) as posd:
        identity = await active(posd, serial)
        assert "serial_mismatch" in attention(await posd.transaction(identity))
        released = {"operator": "Ana", "note": "x"}
        assert (await posd.call("POST", f"/transactions/{identity}/release", released)).status == 200
        for _ in range(2):
            reply = await charge(posd, serial)
            assert refused(reply) == {right.base_url}
            assert "SN-ANOTHER" in reply.json["detail"]
            await posd.restart()
        assert len(right.requests) == 1
        assert (await decide(posd, serial, right.base_url)).status == 200
        right.start = acknowledging(serial)
        await active(posd, serial)


async def test_nothing_is_sent_to_another_terminal_that_is_announced_at_a_configured_address(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    """Another terminal has replaced the configured terminal. posd detects the replacement before the first payment."""
    right, _ = devices
    new = f"{serial}-new"
    configured = f"{plain(serial)}base_url = '{right.base_url}'\n"
    async with running(home, configured, discovery=DISCOVERY) as posd:
        waiting = await active(posd, serial)
        seen, info = len(posd.lines), announcement("new", right.base_url, new)
        await network.async_register_service(info, cooperating_responders=True)
        line = await posd.log_line("terminal.identity_conflict", after=seen, terminal=serial)
        assert line["kind"] == "serial"
        assert f"announces itself (mDNS) as terminal {new}, not {serial}" in line["detail"]
        reply = await posd.call("POST", f"/transactions/{waiting}/abort")
        assert (reply.status, reply.json["code"]) == (503, "identity_conflict"), reply.body
        await end(posd, right, waiting, serial)
        assert refused(await charge(posd, serial)) == {right.base_url}
        assert len(right.requests) == 1
        check = (await posd.call("GET", "/health")).json["checks"]["identity"]
        assert f"terminal {new}, not {serial}: no payment is sent there" in check["detail"]
        assert check["reason"] == "serial"
        assert f"write {new} in place of {serial} into [[terminals]]" in check["todo"]
        # The message names the section of the terminal with file and line.
        lines = posd.config_file.read_text().split("\n")
        line = next(number for number, line in enumerate(lines, 1) if line == f'serial = "{serial}"')
        assert check["commands"][0]["command"] == f"sudo editor +{line} {posd.config_file}"
        code, said = await posd_says("--socket", str(posd.admin_socket), "status")
        assert code == 1
        assert "CONFLICT" in said
        assert f"is terminal {new}" in said or f"as terminal {new}" in said

        assert (await decide(posd, serial, right.base_url)).status == 200
        await posd.kill()
        await posd.start()
        await shown(posd, new)
        await paid(posd, right, serial)


async def test_a_conflict_ends_if_the_terminal_is_announced_again_or_the_other_device_withdraws(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    """The conflict ends when the other announcement is withdrawn.

    The conflict also ends when the terminal is announced later than the other device.
    """
    right, other = devices
    configured = f"{plain(serial)}base_url = '{right.base_url}'\n"
    async with running(home, configured, discovery=DISCOVERY) as posd:
        await network.async_register_service(announcement("x", other.base_url, "SN-X"), cooperating_responders=True)
        info = announcement("new", right.base_url, f"{serial}-new")
        await network.async_register_service(info, cooperating_responders=True)
        await posd.log_line("terminal.identity_conflict", terminal=serial)
        await (await network.async_unregister_service(info))
        await posd.log_line("terminal.identity_settled", terminal=serial)
        await paid(posd, right, serial)
        seen = len(posd.lines)
        await network.async_register_service(info, cooperating_responders=True)
        await posd.log_line("terminal.identity_conflict", after=seen, terminal=serial)
        await announce(network, posd, "right", right.base_url, serial)
        await paid(posd, right, serial)


async def test_the_command_shows_the_claims_and_records_the_decision(
    home: Path, network: AsyncZeroconf, devices: Devices, serial: str
) -> None:
    right, other = devices
    async with running(home, plain(serial), discovery=DISCOVERY) as posd:
        await announce(network, posd, "right", right.base_url, serial)
        await announce(network, posd, "other", other.base_url, serial)
        refused(await charge(posd, serial))
        command = ("--socket", str(posd.admin_socket), "terminals", "identity", serial)
        code, said = await posd_says(*command)
        assert (code, right.base_url in said, other.base_url in said) == (1, True, True), said
        assert "--base-url URL --operator NAME" in said
        code, said = await posd_says(*command, "--base-url", right.base_url, "--operator", "Ana", "--note", "looked")
        assert code == 0, said
        await paid(posd, right, serial)
        assert other.requests == []


async def posd_says(*arguments: str) -> tuple[int | None, str]:
    """Run a command. Return the exit code and the whole output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "posd", *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()
