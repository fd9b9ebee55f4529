"""`posd demo --fleet N`: N lanes, and head office with a real NATS server and a real PostgreSQL, on one machine."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from posd.base.money import ZERO
from posd.cli.app.connection import Api
from posd.cli.app.output import Output, money
from posd.cli.app.tables import Number
from posd.cli.app.times import moment
from posd.cli.collect import how_to_get
from posd.client import Paid
from posd.sandbox import LOOPBACK, STOP_SECONDS, OutputSignal, Program, Sandbox, SandboxFailed, temporary_directory

#: Folders of the servers on Debian, which are not in PATH.
PLACES = ("/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)))
INSTALL = "sudo apt-get install nats-server postgresql"
#: Program -> its Debian package.
PROGRAMS = {"nats-server": "nats-server", "initdb": "postgresql", "postgres": "postgresql"}
MERCHANT = "demo"
#: Seconds for a server's start, and until head office has the lanes' payments.
START_SECONDS = 30.0
COMPLETE_SECONDS = 30.0
#: Payments of each lane: before a lane is cut off, during that, and afterwards, as (amount, scenario).
ROUNDS = (2, 2, 1)
WAYS = (
    (Decimal("11.20"), "approve-contactless"),
    (Decimal("4.50"), "approve-contactless"),
    (Decimal("20.00"), "decline"),
    (Decimal("7.35"), "approve-contactless"),
    (Decimal("3.10"), "approve-contactless"),
)
DAYS = ("--day", "yesterday", "--to", "today", "--timezone", "UTC")


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if _find(name) is None]


def play(output: Output, lanes: int) -> None:
    """Show it. Raise SandboxFailed with the reason."""
    if absent := missing():
        raise SandboxFailed(f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing: {INSTALL}")
    if words := how_to_get():
        raise SandboxFailed(f"the collector is missing; {words}")
    with ExitStack() as stack:
        _Fleet(output, stack, lanes).play()


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *PLACES)))


class _Fleet:
    """All processes of the demo. `stack` ends them."""

    def __init__(self, output: Output, stack: ExitStack, lanes: int) -> None:
        self._output = output
        self._stack = stack
        self._directory = temporary_directory()
        stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.chmod(0o711)  # PostgreSQL does not run as root
        self._news = OutputSignal()
        self._lanes = {f"lane-{number}": Sandbox(serial=f"FLEET-{number}") for number in range(1, lanes + 1)}
        self._relays: dict[str, Program] = {}
        self._servers = f"nats://{LOOPBACK}:{_free_port()}"
        self._config = self._directory / "office.toml"

    def play(self) -> None:
        output = self._output
        output.line(f"posd demo: {len(self._lanes)} lanes, and head office, on this machine", "bold")
        output.line()
        self._start_servers()
        with ThreadPoolExecutor(len(self._lanes)) as threads:
            list(threads.map(self._start_lane, self._lanes))
            collector = Program(
                "the collector", ["--config", str(self._config), "collect"], self._log("collect"), self._news
            )
            self._stack.callback(collector.stop)
            output.line(f"  each lane       has its own posd, terminal and relay: {', '.join(self._lanes)}")

            def charge(numbers: Sequence[int]) -> None:
                list(threads.map(lambda lane: self._charge(lane, numbers), self._lanes))

            first, second, third = _numbers()
            output.line()
            output.line("Every lane charges", "bold")
            charge(first)
            self._wait("head office has every payment", lambda: self._complete(self._lanes))
            self._show()
            cut = next(reversed(self._lanes))
            output.line()
            output.line(f"{cut} loses its network; the shop continues to charge", "bold")
            self._relays[cut].process.send_signal(signal.SIGSTOP)
            charge(second)
            self._wait("head office has every payment of the others", lambda: self._complete([*self._lanes][:-1]))
            self._show()
            output.line()
            output.line(f"{cut} has its network again", "bold")
            self._relays[cut].process.send_signal(signal.SIGCONT)
            charge(third)
            self._wait("head office has every payment", lambda: self._complete(self._lanes))
            self._show()
            output.line()
            self._totals()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start_servers(self) -> None:
        port = self._servers.rpartition(":")[2]
        (self._directory / "nats.conf").write_text(
            f'listen: "{LOOPBACK}:{port}"\njetstream {{ store_dir: "{self._directory}/nats", max_file_store: 1GB }}\n'
        )
        self._serve("nats-server", "-c", str(self._directory / "nats.conf"))
        self._output.line(f"  nats-server     listens on {self._servers}")
        files = self._directory / "postgresql"
        files.mkdir()
        user: str | None = None
        if os.geteuid() == 0:
            user = "postgres"
            shutil.chown(files, user, user)
        made = subprocess.run(  # noqa: S603 - a found program, with arguments made here
            [str(_find("initdb")), "-D", str(files / "data"), "-U", "posd", "-E", "UTF8", "-A", "trust", "-N"],
            capture_output=True,
            text=True,
            check=False,
            user=user,
            cwd=files,
        )
        if made.returncode:
            raise SandboxFailed(f"initdb: {made.stderr.strip()}")
        options = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={files}", "-c", "fsync=off")
        self._serve("postgres", "-D", str(files / "data"), *options, user=user, stop=signal.SIGINT)
        self._output.line(f"  PostgreSQL      listens in {files}")
        self._config.write_text(
            f'[collect]\nservers = ["{self._servers}"]\ndsn = "host={files} dbname=postgres user=posd"\n'
        )
        self._wait("head office's tables are made", lambda: self._run("collect", "--init", "--json") is not None)

    def _serve(
        self, name: str, *arguments: str, user: str | None = None, stop: signal.Signals = signal.SIGTERM
    ) -> None:
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [str(_find(name)), *arguments], stdout=log, stderr=log, user=user, cwd="/", start_new_session=True
            )

        def end() -> None:
            process.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()
            process.wait()

        self._stack.callback(end)

    def _start_lane(self, lane: str) -> None:
        sandbox = self._lanes[lane]
        self._stack.callback(sandbox.close)
        sandbox.start()
        config = sandbox.directory / "relay.toml"
        config.write_text(
            f'[merchant]\nid = "{MERCHANT}"\n[local_api]\ndirectory = "{sandbox.directory}/run"\n'
            f'[relay]\nservers = ["{self._servers}"]\nlane = "{lane}"\nstate_seconds = 1\n'
        )
        relay = Program(f"the relay of {lane}", ["--config", str(config), "relay"], self._log(lane), self._news)
        self._relays[lane] = relay
        self._stack.callback(relay.stop)

    def _charge(self, lane: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            amount, scenario = WAYS[number]
            payment = self._lanes[lane].client.charge(uuid.uuid4(), amount, metadata={"scenario": scenario})
            outcome = payment.outcome(timeout=START_SECONDS)
            word = "paid" if outcome.paid is Paid.PAID else outcome.result
            self._output.line(f"  {lane}  {money(amount):>6}  {word}")

    def _run(self, *arguments: str, config: Path | None = None) -> Any:
        """Return the JSON output of a command, or None if it failed."""
        done = subprocess.run(  # noqa: S603 - this program, with arguments made here
            [sys.executable, "-P", "-m", "posd", "--config", str(config or self._config), *arguments],
            capture_output=True,
            check=False,
        )
        return json.loads(done.stdout, parse_float=Decimal) if done.returncode in (0, 1) and done.stdout else None

    def _complete(self, lanes: Sequence[str] | dict[str, Sandbox]) -> bool:
        """Whether head office has everything from these lanes."""
        found = {lane["lane"]: lane["complete_to_seq"] for lane in self._run("collect", "--check", "--json")["lanes"]}
        return all(found.get(lane) == self._newest(lane) for lane in lanes)

    def _newest(self, lane: str) -> int:
        with Api(self._lanes[lane].till_socket) as api:
            newest: int = api.get("/feed", {"limit": "1"}).body["databases"][-1]["last_seq"]
        return newest

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        """Wait until head office has all changes. Raise SandboxFailed."""
        began = time.monotonic()
        with self._output.busy(what):
            while not done():
                if time.monotonic() - began > COMPLETE_SECONDS:
                    raise SandboxFailed(f"it took longer than {COMPLETE_SECONDS:.0f} s until {what}")
                time.sleep(0.1)  # the tables send no notice of a change
        self._output.line(f"  {what}, after {time.monotonic() - began:.1f} s", "green")

    def _show(self) -> None:
        """Show head office's state of each lane."""
        found = self._run("collect", "--check", "--json")
        rows = [
            (
                lane["lane"],
                Number(str(self._newest(lane["lane"]))),
                Number(str(lane["complete_to_seq"])),
                moment(lane["complete_to_at"]),
                "yes" if lane["complete_to_seq"] == self._newest(lane["lane"]) else "no",
            )
            for lane in found["lanes"]
        ]
        self._output.table(("lane", "changes there", "at head office", "complete to", "all of it"), rows)

    def _totals(self) -> None:
        """Show the totals of head office beside those of the lanes' own reports. Raise SandboxFailed."""
        office = dict.fromkeys(self._lanes, (0, ZERO))
        for row in self._run("collect", "totals", *DAYS, "--json")["totals"]:
            payments, total = office[row["lane"]]
            office[row["lane"]] = payments + row["payments"], total + Decimal(row["total"])
        own = {}
        for lane, sandbox in self._lanes.items():
            days = ("--from", "yesterday", "--to", "today", "--timezone", "UTC", "--json")
            found = self._run("report", *days, config=sandbox.config_path)["total"]
            own[lane] = found["payments"] + found["reversals"], Decimal(found["total"])
        rows = [
            (lane, Number(str(office[lane][0])), Number(money(office[lane][1])), Number(money(own[lane][1])))
            for lane in self._lanes
        ]
        self._output.table(("lane", "payments", "head office", "the lane's report"), rows)
        if office != own:
            raise SandboxFailed("the totals differ")
        total = sum((item for _, item in office.values()), Decimal(0))
        self._output.line(f"The totals agree to the cent: {money(total)}.", "green")


def _numbers() -> Iterator[range]:
    """Yield the numbers of the payments of each round."""
    first = 0
    for count in ROUNDS:
        yield range(first, first + count)
        first += count


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
