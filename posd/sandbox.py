"""Sandbox with the daemon and a simulated terminal as processes, in a temporary directory.

`posd demo` shows payments in a sandbox, and `posd.testing` provides a sandbox for a till's tests. Several sandboxes can
run at once.

    with Sandbox() as sandbox:
        sandbox.terminal.choose("decline")
        print(sandbox.client.charge(uuid.uuid4(), "11.20").outcome())
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2

from posd.client import Posd
from posd.tls import issue

LOOPBACK = "127.0.0.1"
#: Names of the two processes.
DAEMON, TERMINAL = "posd", "the simulated terminal"

#: Default speed of the simulated terminal, as a factor. At this speed a payment of 8 to 33 s takes 80 to 330 ms.
SPEED = 100.0
#: Time-out of the start of both processes, in seconds: enough for a slow machine.
START_SECONDS = 20.0
#: Time-out in seconds for a stop. The daemon promises to stop within 3 seconds, and the simulator within 1.
STOP_SECONDS = 5.0
#: Default time-out of a wait for a log line or an entry of the terminal's ledger, in seconds.
WAIT_SECONDS = 10.0
#: Number of lines of each log that are shown after a failure.
LOG_TAIL_LINES = 12
#: Longest path of a Unix socket on Linux, in bytes (sun_path has 108 including its closing zero).
MAX_SOCKET_PATH_BYTES = 107
#: Parent of the sandbox's directory if the path in the usual one is too long for sockets.
SHORT_TEMPORARY_DIRECTORY = "/tmp"  # noqa: S108 - mkdtemp makes a directory of its own in it, mode 0700

#: posd's default waits in seconds, by section of the configuration. A sandbox divides these waits by the terminal's
#: speed, so that a late or missing event has the same effect as at normal speed.
WAITS: Mapping[str, Mapping[str, float]] = {
    "reconcile": {
        "first_event_grace_seconds": 10,
        "stall_seconds": 300,
        "stall_after_request_seconds": 60,
        "settle_seconds": 60,
    },
    "print": {"poll_first_seconds": 2, "poll_max_seconds": 30, "stuck_seconds": 300},
    "terminal_defaults": {"reply_timeout_seconds": 20},
}
#: Minimum of these waits after the division, in seconds, because the machine and its network do not become faster.
LEAST_WAIT_SECONDS = 1.0
#: `poll_first_seconds` in a sandbox with posd's default waits: long enough to print a receipt and report it.
POLL_FIRST_SECONDS = 10

CONFIG = """\
[local_api]
directory = {run}
till_group = ""
admin_group = ""
feed_group = ""

[webhooks]
listen = "{loopback}:{port}"
advertise_host = "{loopback}"

[database]
path = {database}

[discovery]
enabled = {discovery}
interfaces = ["{loopback}"]

[reconcile]
{reconcile}

[print]
{print}

[terminal_defaults]
ca_file = {terminal_ca}
{terminal_defaults}

[[terminals]]
serial = "{serial}"
base_url = "{base_url}"
"""

T = TypeVar("T")


class SandboxFailed(Exception):
    """Failure of the sandbox, or an impossible action. The message has the reason."""


class Program:
    """A posd command as a process. Its output goes to the file `log_path`, and JSON lines also to `lines`.

    `news` is notified of each JSON line, and of the end of the process.
    """

    def __init__(self, name: str, arguments: list[str], log_path: Path, news: threading.Condition) -> None:
        self.name = name
        self.log_path = log_path
        self.lines: list[dict[str, Any]] = []
        self._news = news
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POSD_")}
        # With -P, Python imports nothing from the current directory, where a till may have its own modules. The process
        # has its own session. So Ctrl-C reaches only the caller, which then stops its processes in order.
        self.process = subprocess.Popen(  # noqa: S603 - this program, with arguments made here
            [sys.executable, "-P", "-m", "posd", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"log of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        with self.process.stdout as output, self.log_path.open("ab", buffering=0) as kept:
            for line in output:
                kept.write(line)
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line, parse_float=Decimal))
                    self._notify()
        self.process.wait()
        self._notify()

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()

    def check(self) -> None:
        """Raise SandboxFailed if the process has ended."""
        code = self.process.poll()
        if code is not None:
            error = SandboxFailed(f"{self.name} ended by itself with exit code {code}")
            error.add_note("\n".join(self.tail()))
            raise error

    def stop(self) -> None:
        """Stop the process by SIGTERM, and after a time-out by SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self.process.kill()
        self._reader.join()

    def tail(self) -> list[str]:
        """Return the last lines of the log, under a heading."""
        lines = self.log_path.read_text("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
        return [f"--- the end of {self.name}'s log:", *lines]


class SimulatedTerminal:
    """The simulated terminal of a sandbox.

    The methods use the control API of `posd simulate` (docs/guides/simulator.md).

    If that API refuses a call, the method raises SandboxFailed.
    """

    def __init__(self, serial: str, wait_for: Callable[..., Any]) -> None:
        self.serial = serial
        #: URL for the daemon's calls.
        self.base_url = ""
        #: URL of the control API.
        self.control_url = ""
        self._wait_for = wait_for
        self._http = httpx2.Client(trust_env=False, timeout=START_SECONDS)

    def choose(self, scenario: str | None) -> None:
        """Set the scenario of the next payment, or with `print:NAME` that of the next print job. None: no choice.

        `posd simulate --list` lists the scenarios. This choice overrides a choice by the payment's amount or metadata.
        A scenario that begins before a payment, such as `terminal-away`, has begun when this method returns. It lasts
        until the next choice.
        """
        self.do("scenario", name=scenario)

    def do(self, deed: str, **body: Any) -> dict[str, Any]:
        """Run an action of the control API, such as `present-card`, `unplug` or `paper`.

        Return the terminal's state.
        """
        state: dict[str, Any] = self._call("POST", f"/{deed}", body)
        return state

    def state(self) -> dict[str, Any]:
        """Return the terminal's state: the running payment, power, network and more."""
        state: dict[str, Any] = self._call("GET", "")
        return state

    def ledger(self, kind: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Return entries of the ledger, oldest first: all, or those of a kind with these field values."""
        wanted = ({} if kind is None else {"kind": kind}) | fields
        return [entry for entry in self._call("GET", "/ledger") if wanted.items() <= entry.items()]

    def prints(self) -> list[dict[str, Any]]:
        """Return the printed jobs, oldest first."""
        prints: list[dict[str, Any]] = self._call("GET", "/prints")
        return prints

    def wait_for(self, kind: str, *, timeout: float = WAIT_SECONDS, **fields: Any) -> dict[str, Any]:
        """Return the ledger's first entry of a kind with these field values. Wait for it if needed.

        Raise TimeoutError.
        """
        otherwise = f"the terminal's ledger has no {kind} {fields or ''}"
        entry: dict[str, Any] = self._wait_for(lambda: first(self.ledger(kind), fields), timeout, otherwise)
        return entry

    def close(self) -> None:
        """Close the connections to the terminal."""
        self._http.close()

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = f"{self.control_url}/terminals/{quote(self.serial, safe='')}{path}"
        try:
            reply = self._http.request(method, url, json=body)
        except httpx2.HTTPError as error:
            raise SandboxFailed(f"{TERMINAL} does not answer: {error}") from error
        document = json.loads(reply.content, parse_float=Decimal)
        if reply.is_error:
            raise SandboxFailed(f"{document['code']}: {document['message']}")
        return document


class Sandbox:
    """The daemon and a simulated terminal, as a context manager that removes both and their directory at the end.

    `speed`: factor by which the terminal and its cardholder are faster than real ones. The sandbox divides posd's own
    waits by this factor, down to `LEAST_WAIT_SECONDS`. With `patient` posd's waits keep their defaults. The
    configuration has the terminal's address, unless `address_known` is False. `announce` announces the terminal over
    mDNS, on loopback.
    """

    def __init__(
        self,
        *,
        speed: float = SPEED,
        serial: str = "SN-0001",
        patient: bool = False,
        announce: bool = False,
        address_known: bool = True,
    ) -> None:
        self.serial = serial
        self.speed = speed
        #: Whether a test has used the sandbox; see `posd.testing`.
        self.used = False
        self.terminal = SimulatedTerminal(serial, self.wait_for)
        self._patient = patient
        self._announce = announce
        self._address_known = address_known
        self._programs: dict[str, Program] = {}
        self._news = threading.Condition()
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def config_path(self) -> Path:
        """Configuration file of the daemon. Any command can use it by `posd --config`."""
        return self.directory / "config.toml"

    @property
    def till_socket(self) -> Path:
        """Socket for tills."""
        return self.directory / "run" / "till.sock"

    @property
    def admin_socket(self) -> Path:
        """Socket for operators."""
        return self.directory / "run" / "admin.sock"

    @cached_property
    def client(self) -> Posd:
        """Client on the till socket."""
        return self._closing.enter_context(Posd(self.till_socket))

    @cached_property
    def admin(self) -> Posd:
        """Client on the admin socket."""
        return self._closing.enter_context(Posd(self.admin_socket))

    @property
    def webhook_address(self) -> str:
        """Address at which the daemon listens for callbacks."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid_path(self) -> Path:
        """File with the process id of the running daemon."""
        return self.directory / "posd.pid"

    @property
    def log(self) -> list[dict[str, Any]]:
        """Log lines of the running daemon, oldest first (docs/reference/logs.md)."""
        return list(self._programs[DAEMON].lines)

    def start(self) -> None:
        """Create the directory and both certificates, start both processes, and wait until both reply."""
        self.directory = temporary_directory()
        self._closing.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._closing.callback(self.terminal.close)
        for name in ("run", "terminal"):
            (self.directory / name).mkdir()
        self._own = issue.init(self.directory / "posd" / "tls", names=["localhost"], addresses=[LOOPBACK])
        self._theirs = issue.init(self.directory / "terminal" / "tls", names=["localhost"], addresses=[LOOPBACK])
        self._port, terminal_port = self._hold_port(), self._hold_port()
        self.terminal.base_url = f"https://{LOOPBACK}:{terminal_port}"
        self._write_config()
        self._begin()

    def _begin(self) -> None:
        self._programs[TERMINAL] = Program(TERMINAL, self._simulate(), self.directory / "terminal.log", self._news)
        self._programs[DAEMON] = self._daemon()
        lines = self._programs[TERMINAL].lines
        ready = self.wait_for(lambda: first(lines, {"ready": True}), START_SECONDS, f"{TERMINAL} did not start")
        self.terminal.control_url = ready["control"]
        self.wait_for_log("posd.started", timeout=START_SECONDS)

    def renew(self) -> None:
        """Reset the sandbox to an empty database and a new terminal, at the same addresses. It takes half a second."""
        for program in self._programs.values():
            program.kill()
            program.log_path.unlink()
        for name in ("posd", "terminal"):
            for path in (self.directory / name).iterdir():
                if path.is_dir() and path.name != "tls":
                    shutil.rmtree(path)
                elif path.is_file():
                    path.unlink()
        self._begin()

    def close(self) -> None:
        """Stop both processes, and remove the directory."""
        for program in self._programs.values():
            program.stop()
        self._closing.close()

    def start_daemon(self, *, wait: bool = True) -> None:
        """Start the daemon. With `wait`, return when it replies."""
        self._programs[DAEMON] = self._daemon()
        if wait:
            self.wait_for_log("posd.started", timeout=START_SECONDS)

    def stop_daemon(self) -> None:
        """Stop the daemon by SIGTERM. The terminal and all files stay."""
        self._programs[DAEMON].stop()

    def kill_daemon(self) -> None:
        """Kill the daemon by SIGKILL, as a power cut would. The terminal and all files stay."""
        self._programs[DAEMON].kill()

    def restart_daemon(self) -> None:
        """Kill the daemon, and start it again."""
        self.kill_daemon()
        self.start_daemon()

    def use_address(self) -> None:
        """Write the terminal's address into the configuration, and restart the daemon with it."""
        self.stop_daemon()
        self._address_known = True
        self._write_config()
        self.start_daemon()

    def wait_for_log(self, event: str, *, timeout: float = WAIT_SECONDS, **fields: Any) -> dict[str, Any]:
        """Return the running daemon's first log line with this event and these field values. Wait for it if needed.

        Raise TimeoutError.
        """
        wanted = {"event": event, **fields}
        return self.wait_for(lambda: first(self.log, wanted), timeout, f"posd has logged no {event} {fields or ''}")

    def wait_for(self, look: Callable[[], T | None], seconds: float, otherwise: str) -> T:
        """Return the first result of `look` that is not None. `look` is called again after each JSON line of a process.

        Raise TimeoutError with the text `otherwise` after `seconds`, or SandboxFailed if a process ends. The notes of
        these errors contain the last lines of the logs.
        """

        def look_and_check() -> T | None:
            found = look()
            if found is None:
                self.check()
            return found

        with self._news:
            found = self._news.wait_for(look_and_check, seconds)
        if found is None:
            error = TimeoutError(f"{otherwise} within {seconds:g} s")
            error.add_note("\n".join(self.tails()))
            raise error
        return found

    def check(self) -> None:
        """Raise SandboxFailed if a process has ended by itself."""
        for program in self._programs.values():
            program.check()

    def wait_for_end_of_daemon(self) -> int:
        """Wait until the daemon has ended. Return its exit code, which is negative for a signal.

        Raise SandboxFailed if the terminal has ended.
        """

        def ended() -> bool:
            self._programs[TERMINAL].check()
            return self._programs[DAEMON].process.poll() is not None

        with self._news:
            self._news.wait_for(ended)
        return self._programs[DAEMON].process.wait()

    def tails(self) -> list[str]:
        """Return the last lines of both logs."""
        return [line for program in self._programs.values() for line in program.tail()]

    def paper(self, print_job_id: str) -> str | None:
        """Return the text that the terminal printed for an ended job, or None."""
        return next((entry["text"] for entry in self.terminal.ledger("printed", print_job_id=print_job_id)), None)

    def document(self) -> dict[str, Any]:
        """Return the addresses and paths of the sandbox as JSON, for other programs."""
        return {
            "directory": str(self.directory),
            "config": str(self.config_path),
            "till_socket": str(self.till_socket),
            "admin_socket": str(self.admin_socket),
            "pid_file": str(self.pid_path),
            "log": str(self._programs[DAEMON].log_path),
            "control": self.terminal.control_url,
            "terminal": {"serial": self.serial, "base_url": self.terminal.base_url},
            "speed": self.speed,
        }

    def _hold_port(self) -> int:
        """Reserve a loopback port for one of the sandbox's processes, and return it.

        The sandbox keeps a socket bound to the port. Linux lets two sockets share a port if both set SO_REUSEADDR and
        at most one of them listens.
        """
        held = self._closing.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, 0))
        port: int = held.getsockname()[1]
        return port

    def _simulate(self) -> list[str]:
        arguments = {
            "--serial": self.serial,
            "--listen": self.terminal.base_url.removeprefix("https://"),
            "--control": f"{LOOPBACK}:0",
            "--cert": self._theirs.certificate,
            "--key": self._theirs.private_key,
            "--state": self.directory / "terminal",
            "--trust": self._own.ca_certificate,
            "--speed": self.speed,
            # In the scenario wait-for-abort the customer waits without limit for the till's abort.
            "--set": "wait-seconds=0",
        }
        flags = ["--json", *(["--mdns-interface", LOOPBACK] if self._announce else [])]
        return ["simulate", *flags, *(str(word) for pair in arguments.items() for word in pair)]

    def _daemon(self) -> Program:
        daemon = Program(DAEMON, ["--config", str(self.config_path), "run"], self.directory / "posd.log", self._news)
        self.pid_path.write_text(f"{daemon.process.pid}\n", "ascii")
        return daemon

    def _write_config(self) -> None:
        text = CONFIG.format(
            run=json.dumps(str(self.directory / "run")),
            database=json.dumps(str(self.directory / "posd" / "posd.db")),
            terminal_ca=json.dumps(str(self._theirs.ca_certificate)),
            loopback=LOOPBACK,
            port=self._port,
            discovery=str(not self._address_known or self._announce).lower(),
            serial=self.serial,
            base_url=self.terminal.base_url if self._address_known else "",
            **{section: self._waits(waits) for section, waits in WAITS.items()},
        )
        self.config_path.write_text(text, "utf-8")

    def _waits(self, waits: Mapping[str, float]) -> str:
        if self._patient:
            return "\n".join(f"{name} = {POLL_FIRST_SECONDS}" for name in waits if name == "poll_first_seconds")
        return "\n".join(f"{name} = {max(LEAST_WAIT_SECONDS, wait / self.speed):g}" for name, wait in waits.items())


def first(entries: Iterable[dict[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first of the entries with these fields, or None."""
    return next((entry for entry in entries if fields.items() <= entry.items()), None)


def temporary_directory() -> Path:
    """Create a temporary directory whose path is short enough for sockets."""
    directory = tempfile.mkdtemp(prefix="posd-sandbox-")
    if len(os.fsencode(f"{directory}/run/admin.sock")) > MAX_SOCKET_PATH_BYTES:
        Path(directory).rmdir()
        directory = tempfile.mkdtemp(prefix="posd-sandbox-", dir=SHORT_TEMPORARY_DIRECTORY)
    return Path(directory)
