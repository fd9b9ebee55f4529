"""A simulated local network. Machines and the switch are network namespaces, joined by cables.

Each machine has one network card, `eth0`. The card is one end of a veth pair. The other end is a port of the switch (a
bridge). A test can therefore repeat faults of shops: a pulled cable, a terminal that is cut off, a new address of a
machine, a network that appears long after the start of the machine. The rest of the computer does not see these
networks. After the test no network remains, even if the test process is killed. A namespace has no name. A namespace
exists until its holder ends. The holder is a `cat` that ends when its input is closed. The kernel kills the programs of
a namespace together with the test process. Cables disappear with the namespaces that they connect. Every command runs
inside a namespace, so the computer's own interfaces do not change.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.rig.needs import SEARCH_PATH, find, lacking
from tests.rig.tmpfs import CannotMake, held

#: Commands that a network requires.
TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount")
#: The network card of each machine.
CARD = "eth0"
#: Setting that makes the kernel detect an unreachable neighbour within seconds instead of a minute.
_NEIGHBOURS = {"base_reachable_time_ms": 1000, "delay_first_probe_time": 1, "retrans_time_ms": 500}

#: Script that sets up a new namespace, prints that it is ready, and holds it until the input is closed. The namespace
#: has a /sys with its own network, and an empty /run for pid files. IPv6 addresses are usable at once, because no other
#: machine can have the same addresses.
_HOLD = """
set -e
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
ip link set lo up
for setting in all/disable_ipv6 default/disable_ipv6 all/accept_dad default/accept_dad; do
  if [ -e /proc/sys/net/ipv6/conf/$setting ]; then echo 0 > /proc/sys/net/ipv6/conf/$setting; fi
done
echo ready
exec cat
"""


def why_not() -> str | None:
    """Return why this machine cannot make networks, or None. The function makes a network to find out."""
    if missing := lacking(*TOOLS, root=True):
        return missing
    try:
        with network() as switch:
            switch.machine("probe", "10.77.0.1/24")
    except CannotMake as error:
        return str(error)
    return None


class Namespace:
    """A network and mount namespace. `command` and `run` start programs in the namespace."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        """Make the namespace. The network ends with `stack`. Raise CannotMake."""
        self.name = name
        unshare = (find("unshare") or "unshare", "--net", "--mount", "sh", "-c", _HOLD)
        #: The id of the process that holds the namespace.
        self.pid = stack.enter_context(held(*self._deadly(*unshare)))

    def command(self, *command: str) -> list[str]:
        """Return a command that runs another command in the namespace. Both commands run in the same process, so
        signals reach the other command.
        """
        enter = (find("nsenter") or "nsenter", f"--target={self.pid}", "--net", "--mount")
        return [*enter, *self._deadly(*command)]

    def run(self, *command: str) -> str:
        """Run a short command in the namespace. Return its output. Raise CannotMake if the command fails."""
        environment = os.environ | {"PATH": SEARCH_PATH}
        done = subprocess.run(self.command(*command), capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise CannotMake(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @staticmethod
    def _deadly(*command: str) -> Sequence[str]:
        """Return the prefix of a command. With this prefix the kernel kills the command when the test process ends in
        any way.
        """
        return (find("setpriv") or "setpriv", "--pdeathsig", "KILL", "--", *command)


class Machine(Namespace):
    """A machine of the network. At first the machine has no network card, like a machine without a cable."""

    def __init__(self, name: str, switch: "Switch", stack: ExitStack) -> None:
        super().__init__(name, stack)
        self._switch = switch

    def plug_in(self, *addresses: str) -> None:
        """Add a network card with these addresses (`10.0.0.1/24`, `fd00::1/64`) and a cable to the switch."""
        peer = ("type", "veth", "peer", "name", CARD, "netns", str(self.pid))
        self._switch.run("ip", "link", "add", self.name, *peer)
        self.port("master", "switch", "up")
        for address in addresses:
            self.add(address)
        for name, value in _NEIGHBOURS.items():
            self.run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/neigh/{CARD}/{name}")
        self.card("up")

    def add(self, address: str) -> None:
        """Add an address with its prefix length to the card. The address may be link-local."""
        self.run("ip", "address", "add", address, "dev", CARD, *(("nodad",) if ":" in address else ()))

    def remove(self, address: str) -> None:
        """Remove an address (with its prefix length) from the card."""
        self.run("ip", "address", "del", address, "dev", CARD)

    def move(self, old: str, new: str) -> None:
        """Replace an address by another address, as a new lease does. For a moment the card has neither address."""
        self.remove(old)
        self.add(new)

    def card(self, *change: str) -> None:
        """Change the network card. A card that is set down loses its IPv6 addresses."""
        self.run("ip", "link", "set", CARD, *change)

    def port(self, *change: str) -> None:
        """Change the port of the switch. If the port is set down, the card loses its carrier and keeps its addresses,
        as after a pulled cable. With `nomaster` the switch drops all packets, and both ends still have a carrier.
        """
        self._switch.run("ip", "link", "set", self.name, *change)


class Switch(Namespace):
    """The switch that joins the machines."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__("switch", stack)
        self._stack = stack
        # Multicast goes to every port, as on a switch without IGMP snooping.
        bridge = ("type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
        self.run("ip", "link", "add", "switch", *bridge)
        self.run("ip", "link", "set", "switch", "up")

    def machine(self, name: str, *addresses: str) -> Machine:
        """Return a new machine. A machine with addresses is plugged in. Names have up to 15 letters."""
        made = Machine(name, self, self._stack)
        if addresses:
            made.plug_in(*addresses)
        return made


@contextmanager
def network() -> Iterator[Switch]:
    """Make a network for the block. Raise CannotMake."""
    with ExitStack() as stack:
        yield Switch(stack)
