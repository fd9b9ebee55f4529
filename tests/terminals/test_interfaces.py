"""Addresses of this machine that come and go, as the kernel reports them, and the interfaces for mDNS."""

import asyncio
import json
import sys
from typing import Any

import pytest

from posd.terminals.discovery import InterfaceSelection, select
from posd.terminals.interfaces import Interface, Interfaces, addresses_of, snapshot
from tests.rig.needs import needs

PATIENCE_SECONDS = 60.0


def test_the_loopback_interface_is_always_listed() -> None:
    assert "127.0.0.1" in addresses_of(snapshot())
    (loopback,) = (item for item in Interfaces().state if "127.0.0.1" in item.addresses)
    assert loopback.running


#: A change of the interfaces, and the report after the change: a present address, an absent address, the interfaces
#: that run.
STEPS: list[tuple[str, str | None, str | None, set[str]]] = [
    ("link set lo up", "127.0.0.1", None, {"lo"}),
    ("address add 192.0.2.7/32 dev lo", "192.0.2.7", None, {"lo"}),
    ("address del 192.0.2.7/32 dev lo", None, "192.0.2.7", {"lo"}),
    ("link add near address 02:00:00:00:00:07 type veth peer name far", None, None, {"lo"}),
    ("address add 198.51.100.7/24 dev near", "198.51.100.7", None, {"lo"}),
    ("link set near up", None, None, {"lo"}),
    ("link set far up", "fe80::ff:fe00:7%near", None, {"lo", "near", "far"}),
    ("link set far down", "198.51.100.7", None, {"lo"}),  # an unplugged cable removes no address
    ("link del near", None, "198.51.100.7", {"lo"}),
]


@pytest.mark.quick(1)
@pytest.mark.root
@needs("ip", "unshare")
@pytest.mark.parametrize("how", ["reported", "polled"])
async def test_every_change_of_the_interfaces_is_reported(how: str) -> None:
    child = await asyncio.create_subprocess_exec(
        *("unshare", "--net", sys.executable, "-m", "tests.terminals.interfaces_child", how),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert json.loads(await child.stdout.readline())["running"] == []
    state: dict[str, Any] = {"addresses": [], "running": []}
    for command, there, gone, running in STEPS:
        child.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (
                set(state["running"]) != running
                or (there is not None and there not in state["addresses"])
                or gone in state["addresses"]
            ):
                state = json.loads(await child.stdout.readline())
    child.stdin.close()
    assert await child.wait() == 0


def interface(name: str, index: int, *addresses: str, running: bool = True) -> Interface:
    return Interface(name, index, frozenset(addresses), running)


LO = interface("lo", 1, "127.0.0.1", "::1")
WIRE = interface("eth0", 2, "192.0.2.1", "192.0.2.9", "2001:db8::1", "fe80::1%eth0")
AIR = interface("wlan0", 3, "198.51.100.1")
BARE = interface("eth1", 4)
SIX = interface("eth2", 5, "fe80::1%eth2")
DOWN = interface("eth3", 6, "203.0.113.1", running=False)

#: Existing interfaces, configured interfaces, used interfaces, missing interfaces.
SELECTIONS: dict[str, tuple[tuple[Interface, ...], tuple[str, ...], list[tuple[str, str | int]], tuple[str, ...]]] = {
    "all but loopback": ((LO, WIRE, AIR), (), [("eth0", "192.0.2.1"), ("eth0", 2), ("wlan0", "198.51.100.1")], ()),
    "no network yet": ((LO, BARE), (), [], ()),
    "IPv6 alone": ((LO, SIX), (), [("eth2", 5)], ()),
    "without a carrier": ((LO, DOWN), (), [], ()),
    "chosen": ((LO, WIRE, AIR), ("198.51.100.1",), [("wlan0", "198.51.100.1")], ()),
    "loopback chosen": ((LO, WIRE), ("127.0.0.1",), [("lo", "127.0.0.1")], ()),
    "chosen IPv6": ((LO, WIRE), ("2001:db8::1",), [("eth0", 2)], ()),
    "chosen both": ((LO, WIRE), ("192.0.2.9", "2001:db8::1"), [("eth0", "192.0.2.9"), ("eth0", 2)], ()),
    "chosen link-local": ((WIRE, SIX), ("fe80::1%eth2",), [("eth2", 5)], ()),
    "chosen link-local without scope": ((WIRE, SIX), ("fe80::1",), [("eth0", 2), ("eth2", 5)], ()),
    "chosen, not present yet": ((LO, BARE), ("192.0.2.1",), [], ("192.0.2.1",)),
    "chosen, without a carrier": ((LO, DOWN), ("203.0.113.1",), [], ("203.0.113.1",)),
    "two chosen, one present": (
        (LO, AIR),
        ("192.0.2.1", "198.51.100.1"),
        [("wlan0", "198.51.100.1")],
        ("192.0.2.1",),
    ),
}


@pytest.mark.parametrize("case", SELECTIONS, ids=str)
def test_mdns_uses_the_configured_interfaces(case: str) -> None:
    there, chosen, spoken, missing = SELECTIONS[case]
    assert select(there, chosen) == InterfaceSelection(tuple(spoken), missing)
