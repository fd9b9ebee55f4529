"""The announcement, seen by a real browser over loopback multicast."""

import asyncio
import os
from collections.abc import Callable

import pytest
from zeroconf import ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from posd.simulator import Settings, Simulator
from posd.simulator.network import reachable_addresses

TYPE = "_card-terminal._tcp.local."
#: A serial is announced once in a network, and loopback is one for all who test on this machine.
SERIAL = f"SN-MDNS-{os.getpid()}"
NAME = f"{SERIAL}.{TYPE}"


@pytest.mark.slow
async def test_the_terminal_is_announced_and_says_goodbye(settings: Callable[..., Settings]) -> None:
    changes: asyncio.Queue[tuple[str, ServiceStateChange]] = asyncio.Queue()

    def changed(zeroconf: object, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        changes.put_nowait((name, state_change))

    async def until(wanted: ServiceStateChange) -> None:
        async with asyncio.timeout(30):
            while await changes.get() != (NAME, wanted):
                pass

    browser_side = AsyncZeroconf(interfaces=["127.0.0.1"])
    browser = AsyncServiceBrowser(browser_side.zeroconf, TYPE, handlers=[changed])
    try:
        wanted = settings(serial=SERIAL, brand="B", model="M", mdns=True, mdns_interfaces=("127.0.0.1",))
        async with Simulator(wanted) as terminal:
            await until(ServiceStateChange.Added)
            info = AsyncServiceInfo(TYPE, NAME)
            assert await info.async_request(browser_side.zeroconf, 30_000)
            assert info.decoded_properties == {"serial": SERIAL, "brand": "B", "model": "M"}
            assert info.parsed_addresses() == ["127.0.0.1"]
            assert terminal.base_url == f"https://127.0.0.1:{info.port}"
            assert (await terminal.ledger.wait_for("mdns"))["result"] == "announced"
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 15
        await until(ServiceStateChange.Removed)
    finally:
        await browser.async_cancel()
        await browser_side.async_close()


async def test_an_interface_that_is_not_there_is_reported_and_the_terminal_runs(
    settings: Callable[..., Settings],
) -> None:
    async with Simulator(settings(mdns=True, mdns_interfaces=("192.0.2.1",))) as terminal:
        failure = await terminal.ledger.wait_for("mdns")
        assert failure["result"] == "failed"


def test_the_addresses_at_which_a_listener_is_called() -> None:
    assert reachable_addresses("127.0.0.1", ["192.0.2.1"]) == ["127.0.0.1"]
    assert reachable_addresses("0.0.0.0", ["192.0.2.1"]) == ["192.0.2.1"]
    everywhere = reachable_addresses("0.0.0.0", [])
    assert "127.0.0.1" in everywhere
    assert everywhere == sorted(everywhere, key=lambda address: address.startswith("127."))  # loopback last
