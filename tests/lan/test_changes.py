"""Networks that change in the middle of payments. Addresses change, links fail and return, and other devices announce a
serial.
"""

from collections.abc import Callable, Mapping

import pytest

from posd.tls import issue
from tests.lan.network import Machine
from tests.lan.street import (
    OTHER,
    POS,
    POS_LATER,
    SERIAL,
    TERMINAL,
    TERMINAL_LATER,
    Street,
    base_url,
    net,
    open_street,
    started,
)
from tests.rig.webhooks import attention

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.mark.usefixtures("avahi")
async def test_a_payment_ends_although_its_terminal_moves_and_another_gets_the_old_address() -> None:
    async with open_street() as street:
        machine = street.switch.machine("terminal", net(TERMINAL))
        shown = street.certified("another", OTHER, TERMINAL)
        beside = street.switch.machine("other", net(OTHER))
        other = await street.terminal(beside, serial="SN-LAN-2", mdns=None, certificates=shown)
        terminal = await street.terminal(machine, mdns=None)
        await street.avahi(machine, SERIAL)
        await street.found_at(TERMINAL)

        identity = await street.under_way(terminal)
        machine.move(net(TERMINAL), net(TERMINAL_LATER))
        beside.move(net(OTHER), net(TERMINAL))
        terminal.thaw()
        await street.approved(identity)
        await street.found_at(TERMINAL_LATER)
        await street.paid(terminal, other)
        assert started(identity, terminal, other) == [1, 0]
        assert other.of(kind="start") == []


@pytest.mark.parametrize("certified", [True, False], ids=["certified for both", "certificate renewed"])
async def test_a_payment_ends_although_this_machine_gets_another_address(certified: bool) -> None:
    async with open_street(certified=(POS, POS_LATER) if certified else (POS,)) as street:
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        await street.found_at(TERMINAL)

        identity = await street.under_way(terminal)
        street.pos.move(net(POS), net(POS_LATER))
        await street.daemon.wait_for(identity, lambda item: "address_changed" in attention(item))
        terminal.thaw()
        outcome = await street.approved(identity)
        assert {item["kind"] for item in outcome["evidence"]} == {"search"}  # no device can reach the old address
        assert started(identity, terminal) == [1]
        if not certified:
            await street.daemon.log_line("certificate.renewed")
        await street.paid(terminal)


#: Kind of failure -> function that breaks or restores the link (down, up).
LINKS: Mapping[str, Callable[[Street, Machine, str], None]] = {
    "card of this machine": lambda street, _, state: street.pos.card(state),
    "cable of this machine": lambda street, _, state: street.pos.port(state),
    "cable of the terminal": lambda _, machine, state: machine.port(state),
}


async def test_payments_survive_links_that_fail_and_return() -> None:
    async with open_street() as street:
        machine = street.switch.machine("terminal", net(TERMINAL))
        terminal = await street.terminal(machine)
        for link, change in LINKS.items():
            await street.found_at(TERMINAL)
            identity = await street.under_way(terminal)
            change(street, machine, "down")
            terminal.thaw()
            await terminal.record(kind="final", client_transaction_id=identity)
            assert (await street.daemon.transaction(identity))["outcome"] is None, link
            change(street, machine, "up")
            await street.approved(identity)
            assert started(identity, terminal) == [1], link
        await street.paid(terminal)


async def test_a_terminal_without_a_goodbye_packet_is_shown_as_lost_until_it_returns() -> None:
    async with open_street(discovery="check_seconds = 1") as street:
        machine = street.switch.machine("terminal", net(TERMINAL))
        terminal = await street.terminal(machine)
        await street.found_at(TERMINAL)
        await street.shown(lambda item: item["reachable"] is True)
        machine.port("nomaster")
        known = await street.shown(lambda item: item["reachable"] is False)
        assert known["reason"], known
        machine.port("master", "switch")
        known = await street.shown(lambda item: item["reachable"] is True)
        assert (known["reason"], known["base_url"]) == (None, base_url(TERMINAL))
        await street.paid(terminal)


async def test_posd_uses_a_network_that_appears_long_after_the_start() -> None:
    async with open_street(()) as street:
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        assert (await street.known())["base_url"] is None
        street.pos.plug_in(net(POS))
        await street.found_at(TERMINAL)
        await street.paid(terminal)


@pytest.mark.usefixtures("avahi")
@pytest.mark.parametrize("first", ["the real one first", "the false one first"])
async def test_of_two_devices_with_one_announced_serial_the_proven_device_is_called(first: str) -> None:
    async with open_street() as street:
        false = issue.init(street.home / "false", names=["terminal.local"], addresses=[OTHER])
        machines = {
            TERMINAL: (street.switch.machine("terminal", net(TERMINAL)), street.certificates),
            OTHER: (street.switch.machine("other", net(OTHER)), false),
        }
        order = (TERMINAL, OTHER) if first == "the real one first" else (OTHER, TERMINAL)
        terminals = {}
        for address in order:
            machine, certificates = machines[address]
            terminals[address] = await street.terminal(machine, mdns=None, certificates=certificates)
            await street.avahi(machine, SERIAL, f"Terminal at {address}")
            await street.shown(lambda item, address=address: address in str((item["base_url"], item.get("claims"))))
        await street.found_at(TERMINAL)
        await street.paid(terminals[TERMINAL], terminals[OTHER])
        assert OTHER in str((await street.known())["claims"])
