"""A whole shop on one machine: the daemon and a simulated terminal as processes, in a directory that goes away."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import posd.tls
from posd.cli.app.connection import Api, Problem, Unreachable

LOOPBACK = "127.0.0.1"
#: how the demo names the process of the simulator.
TERMINAL = "the simulated terminal"

#: seconds: a cold start of the daemon and the simulator on a slow machine.
START_SECONDS = 20.0
#: seconds: announcing and hearing takes about two; by now multicast does not work here.
DISCOVERY_SECONDS = 6.0
#: seconds: the daemon promises to stop within 3, the simulator within 1.
STOP_SECONDS = 5.0
#: seconds between two looks at a process that starts.
POLL_SECONDS = 0.05
#: lines of each log that are shown when something goes wrong.
LOG_TAIL_LINES = 12
#: bytes: the longest path of a Unix socket on Linux (sun_path holds 108 with its closing zero).
MAX_SOCKET_PATH_BYTES = 107
#: where the directory goes if the usual temporary directory has too long a path for sockets.
SHORT_TEMPORARY_DIRECTORY = "/tmp"  # noqa: S108 - mkdtemp makes a directory of its own in it, mode 0700

#: below the ports that Linux gives out by itself (from 32768), above what services are known to use.
DEMO_PORTS = range(20_000, 32_000)

#: seconds: by then a receipt of the demo is long printed, and told by the terminal, on the slowest machine.
POLL_FIRST_SECONDS = 10

CONFIG = """\
[local_api]
directory = {run}
till_group = ""
admin_group = ""

[webhooks]
listen = "{loopback}:{port}"
advertise_host = "{loopback}"

[database]
path = {database}

[discovery]
interfaces = ["{loopback}"]

[print]
poll_first_seconds = {poll_first_seconds}

[terminal_defaults]
ca_file = {terminal_ca}

[[terminals]]
serial = "{serial}"
base_url = "{base_url}"
"""

T = TypeVar("T")


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


class Child:
    """A process of the demo with its log file."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POSD_")}
        with log.open("ab") as stream:
            # A session of its own: Ctrl-C reaches the demo alone, which then stops its children in order.
            self.process = subprocess.Popen(  # noqa: S603 - this program, with arguments made here
                [sys.executable, "-m", "posd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise DemoFailed where the process is gone."""
        code = self.process.poll()
        if code is not None:
            raise DemoFailed(f"{self.name} ended by itself with exit code {code}")

    def stop(self) -> None:
        """End the process: politely, then by force."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def tail(self) -> list[str]:
        """Return the end of its log, in lines."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
        return [f"--- the end of {self.name}'s log:", *lines]


class Machine:
    """Context manager: on leaving it, also by an exception, processes and directory are gone."""

    def __init__(self, *, speed: float, announce: bool) -> None:
        self._speed = speed
        self._announce = announce
        self._children: dict[str, Child] = {}
        self._base_url = ""
        self._port = 0
        # Another demo on this machine announces its terminal on the same loopback interface.
        self.serial = f"DEMO-{secrets.token_hex(3).upper()}"

    def __enter__(self) -> Self:
        self.directory = temporary_directory()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for child in self._children.values():
            child.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def config_path(self) -> Path:
        return self.directory / "config.toml"

    @property
    def till_socket(self) -> Path:
        return self.directory / "run" / "till.sock"

    @property
    def admin_socket(self) -> Path:
        return self.directory / "run" / "admin.sock"

    @property
    def base_url(self) -> str:
        """The simulated terminal's address; empty before it is ready."""
        return self._base_url

    @property
    def webhook_address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Make the certificates of both sides, start both processes, and wait until both answer."""
        for name in ("run", "terminal"):
            (self.directory / name).mkdir()
        own = posd.tls.init(self.directory / "posd" / "tls", names=["localhost"], addresses=[LOOPBACK])
        terminal = posd.tls.init(self.directory / "terminal" / "tls", names=["localhost"], addresses=[LOOPBACK])
        arguments = {
            "--serial": self.serial,
            "--listen": f"{LOOPBACK}:0",
            "--cert": terminal.certificate,
            "--key": terminal.private_key,
            "--state": self.directory / "terminal",
            "--trust": own.ca_certificate,
            "--speed": self._speed,
            "--mdns-interface": LOOPBACK,
            # With wait-for-abort the customer waits until the person at the demo has called posd abort.
            "--wait-seconds": 0,
        }
        flags = ["--json"] if self._announce else ["--json", "--no-mdns"]
        simulate = ["simulate", *flags, *(str(word) for pair in arguments.items() for word in pair)]
        self._start_child(TERMINAL, simulate, "terminal.log")
        self._port = free_port()
        self._write_config(terminal.ca_certificate, base_url="")
        self._terminal_ca = terminal.ca_certificate
        self.start_daemon()
        ready = self.wait_for(self._simulator_ready, START_SECONDS, f"{TERMINAL} did not start")
        self._base_url = ready["base_url"]

    def address_by_mdns(self) -> str | None:
        """Wait until posd heard the terminal's announcement; return its address, or None where it does not come."""

        def known() -> str | None:
            with Api(self.till_socket) as api:
                terminals = api.get("/terminals").body["terminals"]
            return next(
                (t["base_url"] for t in terminals if t["serial"] == self.serial and t["source"] == "mdns"), None
            )

        return self._found(known, DISCOVERY_SECONDS)

    def use_address(self) -> None:
        """Write the terminal's address into the configuration, and restart the daemon with it."""
        self.stop_daemon()
        self._write_config(self._terminal_ca, base_url=self._base_url)
        self.start_daemon()

    def start_daemon(self) -> None:
        """Start the daemon and wait until it answers."""
        self._start_child("posd", ["--config", str(self.config_path), "run"], "posd.log")
        self.wait_for(self._daemon_answers, START_SECONDS, "posd did not start")

    def stop_daemon(self) -> None:
        """Stop the daemon, and leave everything else as it is."""
        self._children.pop("posd").stop()

    def check(self) -> None:
        """Raise DemoFailed where a process is gone."""
        for child in self._children.values():
            child.check()

    def tails(self) -> list[str]:
        """Return the ends of the logs, in lines."""
        return [line for child in self._children.values() for line in child.tail()]

    def wait_for(self, look: Callable[[], T | None], seconds: float, otherwise: str) -> T:
        """Return what `look` returns once it is not None. Raise TimeoutError, or DemoFailed where a process ends."""
        found = self._found(look, seconds)
        if found is None:
            raise TimeoutError(f"{otherwise} within {seconds:.0f} s")
        return found

    def _found(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """Return what `look` returns once it is not None; None after so many seconds. Raise DemoFailed, see above."""
        deadline = time.monotonic() + seconds
        while (found := look()) is None:
            self.check()
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
        return found

    def _start_child(self, name: str, arguments: list[str], log: str) -> None:
        self._children[name] = Child(name, arguments, self.directory / log)

    def _write_config(self, terminal_ca: Path, *, base_url: str) -> None:
        text = CONFIG.format(
            run=json.dumps(str(self.directory / "run")),
            database=json.dumps(str(self.directory / "posd" / "posd.db")),
            terminal_ca=json.dumps(str(terminal_ca)),
            loopback=LOOPBACK,
            poll_first_seconds=POLL_FIRST_SECONDS,
            port=self._port,
            serial=self.serial,
            base_url=base_url,
        )
        self.config_path.write_text(text, "utf-8")

    def _daemon_answers(self) -> bool | None:
        try:
            with Api(self.till_socket) as api:
                api.get("/version")
        except (Unreachable, Problem):
            return None
        return True

    def _simulator_ready(self) -> dict[str, Any] | None:
        return next((line for line in self._terminal_lines() if "ready" in line), None)

    def paper(self, print_job_id: str) -> str | None:
        """Return what the simulated terminal says that it printed for a job; wait for it to say so.

        None where nothing came out, or nothing was said.
        """

        def printed() -> dict[str, Any] | None:
            wanted = {"kind": "printed", "print_job_id": print_job_id}.items()
            return next((line for line in self._terminal_lines() if wanted <= line.items()), None)

        line = self._found(printed, START_SECONDS)
        return None if line is None else line["text"]

    def _terminal_lines(self) -> Iterator[dict[str, Any]]:
        """Give what the simulated terminal has said so far."""
        text = self._children[TERMINAL].log.read_text("utf-8", "replace")
        for line in text.splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                yield json.loads(line)


def temporary_directory() -> Path:
    """Make a directory with a path short enough for the sockets in it."""
    directory = tempfile.mkdtemp(prefix="posd-demo-")
    if len(os.fsencode(f"{directory}/run/admin.sock")) > MAX_SOCKET_PATH_BYTES:
        Path(directory).rmdir()
        directory = tempfile.mkdtemp(prefix="posd-demo-", dir=SHORT_TEMPORARY_DIRECTORY)
    return Path(directory)


def free_port() -> int:
    """Return a loopback port that is free right now.

    It is none of those that the kernel gives to a program that asks for any: the daemon binds it later, and again.
    """
    while True:
        port = secrets.choice(DEMO_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
