"""Programs on the machines of a network: simulated terminals, and avahi-daemons that announce them."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from posd.tls.files import TlsFiles
from tests.lan.network import Machine
from tests.support.needs import SEARCH_PATH, find
from tests.support.program import Output

#: Limit of each wait, in seconds. On an idle computer no wait takes more than two seconds.
PATIENCE_SECONDS = 60.0

#: Factor by which terminals are faster than people. The factor is lower than in other tests, because the network must
#: fail in the middle of a payment. A payment with a chip card and a PIN takes one to three seconds.
SPEED = 10.0
#: Seconds that a terminal waits for a reply. A terminal that is cut off gets no reply.
DELIVERY_SECONDS = 5.0
#: The port of terminals, as in the terminal profile.
PORT = 6869

AVAHI = "avahi-daemon"
AVAHI_CONFIGURATION = """
[server]
host-name={host}
allow-interfaces=eth0
use-ipv4=yes
use-ipv6=yes
enable-dbus=no
[wide-area]
enable-wide-area=no
[publish]
publish-hinfo=no
publish-workstation=no
"""
AVAHI_SERVICE = """<?xml version="1.0" standalone='no'?>
<!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<service-group>
  <name>{name}</name>
  <service>
    <type>_card-terminal._tcp</type>
    <port>{port}</port>
    <txt-record>serial={serial}</txt-record>
  </service>
</service-group>
"""

Line = Mapping[str, Any]


class Program(Output):
    """A program on a machine of the network, as an async context manager. The end of the block kills the program."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self._process: asyncio.subprocess.Process | None = None

    @property
    def arguments(self) -> list[str]:
        """Return the program and its arguments."""
        raise NotImplementedError

    def is_ready(self, line: Line) -> bool:
        """Return whether a line says that the program is ready."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(signal.SIGKILL)

    async def start(self) -> None:
        """Start the program and wait until it is ready."""
        assert self._process is None
        begun = len(self.lines)
        self._process = await asyncio.create_subprocess_exec(
            *self.machine.command(*self.arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PATH": SEARCH_PATH},
        )
        self.read(self._process.stdout)
        await self.line(self.is_ready, begun)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the program if it runs. SIGTERM ends the program in order. SIGKILL is like a power cut."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with suppress(ProcessLookupError):
            process.send_signal(number)
        await process.wait()
        await self.whole()

    def freeze(self) -> None:
        """Stop the program (SIGSTOP). Its callers wait."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the program."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Terminal(Program):
    """A simulated terminal as a process. The terminal listens on all addresses of its machine. `mdns`: addresses of the
    cards on which the terminal announces itself. An empty list means all cards, and None means no announcement.
    `certificates`: the terminal's certificate. `trust`: CA of the webhook receivers. The lines of the program's output
    are the ledger.
    """

    def __init__(
        self,
        machine: Machine,
        serial: str,
        state: Path,
        certificates: TlsFiles,
        trust: Path,
        *,
        mdns: tuple[str, ...] | None,
        host: str = "0.0.0.0",
    ) -> None:
        super().__init__(machine)
        self.serial = serial
        announcing = [] if mdns is None else ["--mdns", *(f"--mdns-interface={address}" for address in mdns)]
        self._arguments = [
            *(sys.executable, "-m", "posd", "simulate", "--json", "--serial", serial, "--state", str(state)),
            *("--listen", f"{f'[{host}]' if ':' in host else host}:{PORT}", *announcing),
            *("--cert", str(certificates.certificate), "--key", str(certificates.private_key), "--trust", str(trust)),
            *("--speed", str(SPEED), "--set", f"delivery-timeout={DELIVERY_SECONDS}"),
        ]

    @property
    def arguments(self) -> list[str]:
        return self._arguments

    def is_ready(self, line: Line) -> bool:
        return "ready" in line

    def happened(self, kind: str, identity: str | None = None) -> list[Line]:
        """Return the lines of this kind in the ledger, of one payment or of all payments."""
        entries = [line for line in self.lines if line.get("kind") == kind]
        return [line for line in entries if identity in (None, line.get("client_transaction_id"))]

    async def happens(self, kind: str, identity: str, **fields: Any) -> Line:
        """Wait until the ledger has a line of this kind for a payment."""
        wanted = {"kind": kind, "client_transaction_id": identity} | fields
        return await self.line(lambda line: wanted.items() <= line.items())


class Avahi(Program):
    """The avahi-daemon of a machine. The daemon announces a terminal with the current addresses of the machine. Without
    a serial the daemon announces only the machine, as on most Linux machines, and uses port 5353.
    """

    def __init__(self, machine: Machine, directory: Path, serial: str | None = None, name: str | None = None) -> None:
        """Create the daemon. The files of the program are in `directory`. `name`: instance name, by default the
        serial.
        """
        super().__init__(machine)
        self._named = name or serial
        self._home = directory / f"avahi-{machine.name}"
        services = self._home / "services"
        services.mkdir(parents=True)
        (self._home / "avahi-daemon.conf").write_text(AVAHI_CONFIGURATION.format(host=machine.name))
        if serial is not None:
            service = AVAHI_SERVICE.format(name=self._named, serial=serial, port=PORT)
            (services / "terminal.service").write_text(service)
        # The path of the services directory is compiled into avahi. Only this machine has these files at the path.
        machine.run("mount", "--bind", str(self._home), "/etc/avahi")

    @property
    def arguments(self) -> list[str]:
        configuration = str(self._home / "avahi-daemon.conf")
        return [find(AVAHI) or AVAHI, "--no-drop-root", "--no-chroot", "--no-rlimits", "--file", configuration]

    def is_ready(self, line: Line) -> bool:
        text = line.get("text", "")
        return f'Service "{self._named}"' in text if self._named else "Server startup complete" in text
