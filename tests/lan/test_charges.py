"""Charges on a network with cables and real multicast. posd finds and calls the terminal, which calls back."""

import pytest

from tests.lan.street import POS_6, POS_LINK, SERIAL, TERMINAL, TERMINAL_6, TERMINAL_LINK, net, open_street

pytestmark = [pytest.mark.root, pytest.mark.slow]


async def test_a_terminal_announces_itself_and_withdraws_the_announcement() -> None:
    async with open_street() as street:
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        await street.found_at(TERMINAL)
        await street.paid(terminal)
        known = await street.known()
        assert (known["reachable"], known["model"]) == (True, "SIM-1")
        await terminal.stop()
        known = await street.shown(lambda item: item["base_url"] is None)
        assert (known["source"], known["reachable"]) == (None, None)
        assert known["reason"]


@pytest.mark.usefixtures("avahi")
async def test_a_terminal_is_found_while_avahi_holds_the_mdns_port() -> None:
    async with open_street(start=False) as street:
        await street.avahi(street.pos)
        await street.daemon.start()
        machine = street.switch.machine("terminal", net(TERMINAL), net(TERMINAL_6), net(TERMINAL_LINK))
        terminal = await street.terminal(machine, mdns=None)
        await street.avahi(machine, SERIAL)  # all addresses of the terminal, with the link-local addresses
        await street.found_at(TERMINAL)
        await street.paid(terminal)


async def test_a_charge_works_on_a_network_with_ipv6_only() -> None:
    async with open_street((POS_6,), listen="[::]") as street:
        machine = street.switch.machine("terminal", net(TERMINAL_6))
        terminal = await street.terminal(machine, mdns=(TERMINAL_6,), host="::")
        await street.found_at(TERMINAL_6)
        await street.paid(terminal)


async def test_a_charge_works_on_a_network_without_dhcp() -> None:
    async with open_street((POS_LINK,), discovery=f'interfaces = ["{POS_LINK}"]') as street:
        machine = street.switch.machine("terminal", net(TERMINAL_LINK))
        terminal = await street.terminal(machine, mdns=(TERMINAL_LINK,))
        await street.found_at(TERMINAL_LINK)
        await street.paid(terminal)
