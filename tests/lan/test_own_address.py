"""The address of this machine changes during payments on a real network, while posd runs or does not run."""

import re
import sys

import pytest

from tests.lan.network import network
from tests.lan.street import POS, POS_LATER, TERMINAL, Street, net, open_street, started
from tests.rig.shop import nothing_to_correct
from tests.rig.webhooks import attention

pytestmark = [pytest.mark.root, pytest.mark.slow]


async def kinds(street: Street, identity: str) -> list[str]:
    """Return the addresses in the history of a payment."""
    reply = await street.daemon.call("GET", f"/transactions/{identity}/history")
    return [item["kind"] for item in reply.json["history"] if item["kind"].startswith("address")]


async def test_a_payment_ends_although_the_address_changes_while_posd_does_not_run() -> None:
    async with open_street() as street:
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        await street.found_at(TERMINAL)
        identity = await street.under_way(terminal)
        await street.daemon.kill()
        street.pos.move(net(POS), net(POS_LATER))
        await street.daemon.start()
        await street.daemon.wait_for(identity, lambda item: "address_changed" in attention(item))
        terminal.thaw()
        outcome = await street.approved(identity)
        assert {item["kind"] for item in outcome["evidence"]} == {"search"}
        assert started(identity, terminal) == [1]
        assert (await street.daemon.transaction(identity))["attention"] == []
        assert await kinds(street, identity) == ["address_changed"]
        await nothing_to_correct(street.daemon)
        later = await street.paid(terminal)
        assert await kinds(street, later) == []


async def test_events_arrive_after_the_address_is_lost_and_returns() -> None:
    async with open_street() as street:
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        await street.found_at(TERMINAL)
        identity = await street.under_way(terminal)
        street.pos.remove(net(POS))
        await street.daemon.wait_for(identity, lambda item: "address_changed" in attention(item))
        street.pos.add(net(POS))
        await street.daemon.wait_for(identity, lambda item: "address_changed" not in attention(item))
        terminal.thaw()
        await street.approved(identity)
        assert await kinds(street, identity) == ["address_changed", "address_back"]
        await nothing_to_correct(street.daemon)


async def test_with_a_configured_advertise_host_no_change_of_address_is_recorded() -> None:
    async with open_street(start=False) as street:
        street.daemon.config = street.daemon.config.replace("[webhooks]", f'[webhooks]\nadvertise_host = "{POS_LATER}"')
        await street.daemon.start()
        terminal = await street.terminal(street.switch.machine("terminal", net(TERMINAL)))
        await street.found_at(TERMINAL)
        identity = await street.under_way(terminal)
        street.pos.move(net(POS), net(POS_LATER))
        terminal.thaw()
        await street.approved(identity)
        assert await kinds(street, identity) == []


#: Program that prints the callback address for a terminal at each URL, or the problem's code without a route.
TOLD = """
import asyncio, sys
from urllib.parse import urlsplit
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.records.callback_urls import CallbackUrls
async def told(url):
    try:
        callback, host = await CallbackUrls((bytes(32),), "", 8443).url_and_host(Channel.TRANSACTION, "id", url)
    except Problem as problem:
        return problem.code
    return f"{urlsplit(callback).netloc} {host}"
for url in sys.argv[1:]:
    print(asyncio.run(told(url)))
"""


def test_each_terminal_gets_the_address_that_it_can_reach() -> None:
    with network() as switch:
        pos = switch.machine("pos", "10.77.0.1/24", "10.88.0.1/24", "fd77::1/64")
        expected = {
            "https://10.77.0.2:6869": "10.77.0.1:8443 10.77.0.1",
            "https://10.88.0.2:6869": "10.88.0.1:8443 10.88.0.1",
            "https://[fd77::2]:6869": "[fd77::1]:8443 fd77::1",
            "https://10.99.0.2:6869": "terminal_offline",
            "https://[fd99::2]:6869": "terminal_offline",
            "https://terminal.invalid:6869": "terminal_offline",
        }
        *said, scoped = pos.run(sys.executable, "-c", TOLD, *expected, "https://[fe80::2%25eth0]:6869").splitlines()
    assert dict(zip(expected, said, strict=True)) == expected
    # The link-local address has no name of this machine's network card. The terminal cannot use this name.
    assert re.fullmatch(r"\[(fe80::[0-9a-f:]+)\]:8443 \1", scoped)
