"""A shop with a real network: posd on one machine, simulated terminals on others."""

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from posd.tls import issue
from posd.tls.files import TlsFiles
from tests.lan.network import Machine, Switch, network
from tests.rig.daemon import ANY_PORT, Daemon, living, toml
from tests.rig.needs import find
from tests.rig.program import PATIENCE_SECONDS, Server
from tests.rig.shop import AMOUNT
from tests.rig.simulated import simulate

#: posd's two addresses, the addresses of two terminals, and the second address of the first terminal.
POS, POS_LATER = "10.77.0.1", "10.77.0.21"
TERMINAL, TERMINAL_LATER, OTHER = "10.77.0.2", "10.77.0.22", "10.77.0.3"
#: Addresses of the same machines on an IPv6 network (unique local), and on a network without DHCP (link-local).
POS_6, TERMINAL_6 = "fd77::1", "fd77::2"
POS_LINK, TERMINAL_LINK = "169.254.77.1", "169.254.77.2"
SERIAL = "SN-LAN-1"
#: Phases in which the terminal cannot have sent its final event, because the terminal sends events one after the other.
BEFORE_THE_ACQUIRER = ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED")

#: posd soon searches for a payment without events. A call on a busy computer does not time out.
SETTINGS = """
[reconcile]
first_event_grace_seconds = 1
stall_seconds = 2
stall_after_request_seconds = 1
[terminal_defaults]
ca_file = "{ca}"
connect_timeout_seconds = 15
"""


#: Factor by which terminals are faster than people. The factor is lower than in other tests, because the network must
#: fail in the middle of a payment. A payment with a chip card and a PIN takes one to three seconds.
SPEED = 10.0
#: Seconds that a terminal waits for a reply. A terminal that is cut off gets no reply.
DELIVERY_SECONDS = 5.0
#: The port of terminals, as in the terminal profile.
PORT = 6869

AVAHI = "avahi-daemon"
AVAHI_CONFIGURATION = "[server]\nhost-name={host}\nallow-interfaces=eth0\nenable-dbus=no\n"
AVAHI_SERVICE = """<service-group><name>{name}</name><service><type>_card-terminal._tcp</type>
<port>{port}</port><txt-record>serial={serial}</txt-record></service></service-group>"""


def net(address: str) -> str:
    """Return an address with its prefix length."""
    return f"{address}/{64 if ':' in address else 24}"


def base_url(address: str) -> str:
    """Return the URL of the terminal with this address."""
    return f"https://{f'[{address}]' if ':' in address else address}:{PORT}"


class Terminal(Server):
    """A simulated terminal as a process. The lines of its output are the ledger."""

    def of(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines of the ledger with these fields."""
        return [line for line in self.lines if fields.items() <= line.items()]

    def freeze(self) -> None:
        """Stop the program (SIGSTOP). Its callers wait."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the program."""
        self.send(signal.SIGCONT)


@dataclass
class Street:
    """One network with posd. A test adds machines, terminals and avahi-daemons."""

    home: Path
    switch: Switch
    pos: Machine
    daemon: Daemon
    certificates: TlsFiles
    stack: AsyncExitStack

    def certified(self, name: str, *addresses: str) -> TlsFiles:
        """Return a certificate of another terminal from the same CA."""
        directory = self.home / name
        directory.mkdir()
        for file in (self.certificates.ca_certificate, self.certificates.ca_key):
            shutil.copy(file, directory)
        return issue.init(directory, names=["terminal.local"], addresses=addresses)

    async def terminal(
        self,
        machine: Machine,
        *,
        serial: str = SERIAL,
        mdns: tuple[str, ...] | None = (),
        certificates: TlsFiles | None = None,
        host: str = "0.0.0.0",
    ) -> Terminal:
        """Run a simulated terminal on all addresses of a machine. The terminal announces itself on all cards, on the
        cards with the addresses in `mdns`, or not at all (None).
        """
        listen = f"{f'[{host}]' if ':' in host else host}:{PORT}"
        shown, state = certificates or self.certificates, self.home / f"terminal-{machine.name}"
        announcing = [] if mdns is None else ["--mdns", *(f"--mdns-interface={address}" for address in mdns)]
        arguments = simulate(serial, listen, shown, state, self.daemon.ca, SPEED)
        more = (*announcing, "--set", f"delivery-timeout={DELIVERY_SECONDS}")
        terminal = Terminal(self.home)
        self.stack.push_async_callback(terminal.stop, signal.SIGKILL)
        await terminal.run(*machine.command(sys.executable, "-m", "posd", *arguments, *more), ready="ready")
        return terminal

    async def avahi(self, machine: Machine, serial: str | None = None, name: str | None = None) -> None:
        """Run an avahi-daemon on a machine. The daemon announces a terminal with the current addresses of the machine.
        Without a serial it announces only the machine, as on most Linux machines, and uses port 5353. `name`: instance
        name, by default the serial.
        """
        home, named = self.home / f"avahi-{machine.name}", name or serial
        (home / "services").mkdir(parents=True)
        (home / "avahi-daemon.conf").write_text(AVAHI_CONFIGURATION.format(host=machine.name))
        if serial is not None:
            service = AVAHI_SERVICE.format(name=named, serial=serial, port=PORT)
            (home / "services" / "terminal.service").write_text(service)
        # The path of the services directory is compiled into avahi. Only this machine has these files at the path.
        machine.run("mount", "--bind", str(home), "/etc/avahi")
        command = (find(AVAHI) or AVAHI, "--no-drop-root", "--no-chroot", "--no-rlimits", "--file")
        server = Server(home)
        self.stack.push_async_callback(server.stop, signal.SIGKILL)
        await server.run(
            *machine.command(*command, str(home / "avahi-daemon.conf")),
            ready=f'Service "{named}"' if named else "Server startup complete",
        )

    async def known(self) -> Any:
        """Return the terminal from posd's API."""
        return (await self.daemon.call("GET", f"/terminals/{SERIAL}")).json

    async def shown(self, what: Callable[[Any], bool]) -> Any:
        """Wait until posd shows the terminal with these values. Return the terminal."""
        seen = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not what(seen := await self.known()):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # the local API does not show the state, so the test asks the terminal
        except TimeoutError as error:
            raise AssertionError(f"posd does not show this after {PATIENCE_SECONDS:g} s: {seen}") from error
        return seen

    async def found_at(self, address: str) -> None:
        """Wait until posd has found the terminal at an address."""
        await self.shown(lambda item: (item["base_url"], item["source"]) == (base_url(address), "mdns"))

    async def charge(self) -> str:
        """Start a payment. Check that the terminal acknowledges the payment. Return the id."""
        identity = str(uuid4())
        request = {"amount": AMOUNT, "metadata": {"scenario": "approve-chip-pin"}}
        reply = await self.daemon.call("PUT", f"/transactions/{identity}", request)
        assert (reply.status, reply.json.get("phase")) == (201, "active"), reply.body
        return identity

    async def under_way(self, terminal: Terminal) -> str:
        """Start a payment and freeze its terminal in the middle of the payment. Return the payment's id. `thaw`
        continues the terminal.
        """
        while True:
            identity = await self.charge()
            terminal.freeze()
            if (await self.daemon.transaction(identity))["status"] in BEFORE_THE_ACQUIRER:
                return identity
            terminal.thaw()  # on a busy computer the payment can end before the freeze
            await self.approved(identity)

    async def approved(self, identity: str) -> Any:
        """Wait until a payment is approved. Return its outcome."""
        outcome = await self.daemon.outcome(identity, PATIENCE_SECONDS)
        assert outcome is not None, (await self.daemon.transaction(identity), self.daemon.lines)
        assert (outcome["result"], outcome["status"]) == ("approved", "APPROVAL"), outcome
        return outcome

    async def paid(self, *terminals: Terminal) -> str:
        """Make a payment on one of these terminals, from the start to the end. Return the id."""
        identity = await self.charge()
        await self.approved(identity)
        assert started(identity, *terminals) == [1, *(0 for _ in terminals[1:])]
        done = {"kind": "attempt", "client_transaction_id": identity, "status": "APPROVAL", "result": 200}
        await terminals[0].record(**done)
        return identity


def started(identity: str, *terminals: Terminal) -> list[int]:
    """Return the number of start requests that each terminal received."""
    return [len(terminal.of(kind="start", client_transaction_id=identity)) for terminal in terminals]


@asynccontextmanager
async def open_street(
    pos: tuple[str, ...] = (POS,),
    *,
    certified: tuple[str, ...] = (POS, POS_LATER, POS_6, POS_LINK),
    listen: str = "0.0.0.0",
    discovery: str = "",
    start: bool = True,
) -> AsyncIterator[Street]:
    """Run posd on a machine with these addresses for the block. Check at the end that the log has no internal errors.
    Without addresses the machine is not plugged in. Without `start` the test starts posd itself. `certified`: addresses
    in posd's certificate. `discovery`: lines of this section of the configuration.
    """
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="posd-")))  # Unix sockets need a short path
        switch = stack.enter_context(network())
        machine = switch.machine("pos", *(net(address) for address in pos))
        addresses = [TERMINAL, TERMINAL_LATER, TERMINAL_6, TERMINAL_LINK]
        certificates = issue.init(home / "terminals", names=["terminal.local", SERIAL], addresses=addresses)
        settings = SETTINGS.format(ca=certificates.ca_certificate)
        config = toml(home, f'[[terminals]]\nserial = "{SERIAL}"\n', settings, discovery)
        config = config.replace(ANY_PORT, f"{listen}:8443")
        daemon = Daemon(home, config, entering=tuple(machine.command()))
        await stack.enter_async_context(living(daemon, certified, start=start))
        yield Street(home, switch, machine, daemon, certificates, stack)
