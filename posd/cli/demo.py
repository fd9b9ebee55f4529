"""`posd demo`: real charges and a receipt on one machine, without configuration.

With `--fleet` it has several lanes, and head office with a real NATS server and a real PostgreSQL.
"""

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from posd.base.json_types import encode
from posd.base.money import ZERO
from posd.cli.app.connection import json_option
from posd.cli.app.context import ExitCode
from posd.cli.app.output import Output, money, total
from posd.cli.app.tables import Number
from posd.cli.app.times import moment
from posd.cli.collect import how_to_get
from posd.cli.explain.catalogue import say
from posd.cli.payments.show import event_extra
from posd.cli.payments.words import STYLES
from posd.client import Change, Paid, PosdError
from posd.client.plans import get
from posd.sandbox import LOOPBACK, STOP_SECONDS, Program, Sandbox, SandboxFailed, temporary_directory

Document = Mapping[str, Any]

#: Senders and receivers in the timeline.
TILL, POSD, TERMINAL = "till", "posd", "terminal"
#: Charges of the demo, one for each usual result: result, scenario, amount.
PLANS: Sequence[tuple[str, str, Mapping[str, Decimal]]] = (
    ("approved", "approve-contactless", {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20")}),
    ("declined", "decline", {"subtotal_iva": Decimal("0.2"), "iva": Decimal("0.1")}),
    ("canceled", "cancel-by-cardholder", {"subtotal_iva0": Decimal("10.10")}),
)
#: Factor by which the terminal is faster than a real one. A real payment takes 8 to 33 s (terminal API, Lifecycle). At
#: this speed a payment takes 1 to 3 s.
DEFAULT_SPEED = 10.0
#: Longest time of a simulated payment at speed 1, in seconds, with a margin. If a payment takes longer, the demo fails.
LONGEST_CHARGE_SECONDS = 60.0
#: Additional seconds for a charge on a slow machine, at any speed.
CHARGE_MARGIN_SECONDS = 15.0
#: Seconds between two checks that both processes run.
CHECK_SECONDS = 0.5
#: Time-out of discovery in seconds. It usually takes about two. If it takes longer, multicast does not work on this
#: machine.
DISCOVERY_SECONDS = 6.0
#: Number of characters of a line on paper, and prefix of the line on the screen.
WIDTH = 32
PAPER_MARGIN = " " * 33 + "| "
#: Members of an amount -> their names on a receipt.
LABELS = {"subtotal_iva": "subtotal", "subtotal_iva0": "subtotal", "iva": "IVA"}
#: Signals besides Ctrl-C that stop the demo: from a service manager, or a closed window.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--keep", is_flag=True, help="Keep it running afterwards; Ctrl-C stops it.")
@click.option(
    "--speed",
    type=click.FloatRange(min=1, max=1000),
    default=DEFAULT_SPEED,
    show_default=True,
    help="How much faster than a person the simulated customer is.",
)
@click.option("--no-mdns", is_flag=True, help="Do not announce the terminal, as on a network without multicast.")
@click.option(
    "--no-charges",
    is_flag=True,
    help="With --keep: make no charges and do not wait for the terminal; ready in about a second, for a till's tests.",
)
@click.option(
    "--fleet",
    type=click.IntRange(1, 20),
    metavar="LANES",
    help="Show this number of lanes and head office, with a real NATS server and PostgreSQL.",
)
@json_option
def demo(output: Output, keep: bool, speed: float, no_mdns: bool, no_charges: bool, fleet: int | None) -> None:
    """Watch a till that charges and prints: one machine, nothing to configure.

    It starts the daemon and a simulated terminal in a temporary directory, finds the terminal over mDNS, and calls it
    over TLS. It makes three charges: one is approved, and the terminal prints its receipt; one is declined; one is
    canceled.

    With --keep it runs until Ctrl-C. Each run has a directory of its own, so several can run at once. posd simulate
    --list shows the scenarios of the simulated terminal and how to select each. --speed also shortens posd's own
    waits, to one second at least. If posd is killed, it is started again, as by systemd. With --json, the
    member `running` has all paths and addresses.
    """
    if fleet is not None and (keep or no_charges or no_mdns or output.as_json):
        raise click.UsageError("--fleet is a demo of its own: use it without the other options")
    if no_charges and not keep:
        raise click.UsageError("--no-charges without --keep leaves nothing to do")
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        with ExitStack() as stack:
            if fleet is not None:
                _Fleet(output, stack, fleet).play()
                return
            sandbox = _sandbox(speed, keep=keep, announce=not no_mdns, charges=not no_charges)
            stack.callback(sandbox.close)
            # The stop takes a few seconds. A second Ctrl-C must not interrupt it, and leave processes behind.
            stack.callback(_ignore_signals)
            try:
                _play(output, sandbox, () if no_charges else PLANS, keep=keep)
                if keep:
                    _keep(output, sandbox)
            except (SandboxFailed, PosdError, TimeoutError):
                output.note([*sandbox.tails(), ""], style="red")
                raise
    except (SandboxFailed, PosdError, TimeoutError) as error:
        output.note(f"posd demo: {error}", style="red")
        sys.exit(ExitCode.NOT_DONE)
    except KeyboardInterrupt:
        output.note(("", "stopped; nothing is left behind"))
        sys.exit(ExitCode.DONE if keep else ExitCode.NOT_DONE)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def _sandbox(speed: float, *, keep: bool, announce: bool, charges: bool) -> Sandbox:
    if not charges:
        return Sandbox(speed=speed)
    # Another demo on this machine may announce a terminal on the same loopback interface, so the serials must differ.
    serial = f"DEMO-{secrets.token_hex(3).upper()}"
    return Sandbox(speed=speed, serial=serial, patient=not keep, announce=announce, address_known=False)


class Timeline:
    """Timeline of one charge or print job, printed step by step. Times are relative to the creation of the object."""

    def __init__(self, output: Output) -> None:
        self.steps: list[dict[str, Any]] = []
        self._output = output
        self._began = datetime.now(UTC)

    def add(self, sender: str, receiver: str, what: str, style: str = "", *, at: datetime | None = None) -> None:
        """Add a step. `at`: time of the step on the daemon's clock; None: now."""
        seconds = max(0.0, ((at or datetime.now(UTC)) - self._began).total_seconds())
        self.steps.append({"offset_seconds": round(seconds, 3), "from": sender, "to": receiver, "what": what})
        self._output.line(f"  {seconds:6.2f} s  {sender:>8} -> {receiver:<8}  {what}", style)


def _play(
    output: Output, sandbox: Sandbox, plans: Sequence[tuple[str, str, Mapping[str, Decimal]]], *, keep: bool
) -> None:
    began = time.monotonic()
    output.line("posd demo: a till, posd and a card terminal on this machine", "bold")
    output.line()
    sandbox.start()
    output.line(f"  posd       listens on {sandbox.till_socket}")
    output.line(f"             and for terminals on https://{sandbox.webhook_address}")
    output.line(f"  terminal   {sandbox.serial}, simulated, on {sandbox.terminal.base_url}")
    discovery = _discover(output, sandbox) if plans else "config"
    charges: list[Document] = []
    receipts: list[Document] = []
    faults: list[str] = []
    for number, (result, scenario, amount) in enumerate(plans, 1):
        output.line()
        parts = ", ".join(f"{name} {value}" for name, value in amount.items())
        output.line(f"Charge {number} of {len(plans)}: {money(total(amount))} ({parts}), {scenario}", "bold")
        timeline = Timeline(output)
        with _watched(sandbox):
            transaction = _charge(sandbox, timeline, scenario, amount)
        charges.append({"expected": result, "transaction": transaction, "timeline": timeline.steps})
        faults += _faults(result, amount, transaction["outcome"])
        if transaction["outcome"]["result"] == "approved":
            output.line()
            output.line(f"Receipt of charge {number}, on the printer of the terminal", "bold")
            timeline = Timeline(output)
            text = _receipt_text(amount, transaction["outcome"])
            with _watched(sandbox):
                job = _print(sandbox, timeline, text, transaction["outcome"]["ticket_number"] or "")
            paper = sandbox.paper(job["print_job_id"])
            for line in (paper or "nothing was printed").splitlines():
                output.line(f"{PAPER_MARGIN}{line}".rstrip())
            receipts.append({"charge": number, "print_job": job, "paper": paper, "timeline": timeline.steps})
            if job["status"] != "COMPLETED":
                faults.append(f"the receipt should be COMPLETED, and is {job['status']}")
            elif paper != text:
                faults.append("the terminal printed something other than the receipt")
    took = time.monotonic() - began
    document = {
        "ok": not faults,
        "discovery": discovery,
        "took_seconds": round(took, 3),
        "charges": charges,
        "receipts": receipts,
        "running": sandbox.document() if keep and not faults else None,
    }
    output.json(encode(document))
    if charges:
        _summarise(output, charges)
    if faults:
        raise SandboxFailed("; ".join(faults))
    if charges:
        output.line()
        output.line(f"All three ended as expected, and the receipt is printed, in {took:.1f} s.", "green")


def _faults(result: str, amount: Mapping[str, Decimal], outcome: Document) -> list[str]:
    """Return the difference between the outcome of a charge and its plan, as a list of one text or an empty list."""
    if outcome["result"] != result:
        return [f"the charge of {money(total(amount))} should be {result}, and is {outcome['result']}"]
    authorized = outcome["authorized_amount"]
    if result == "approved" and authorized != total(amount):
        return [f"asked for {money(total(amount))}, and {authorized} was authorized"]
    return []


def _discover(output: Output, sandbox: Sandbox) -> str:
    """Wait until posd has found the terminal by mDNS. After a time-out, write its address into the configuration.

    Return "mdns" or "config".
    """
    try:
        found = sandbox.wait_for_log("discovery.found", terminal=sandbox.serial, timeout=DISCOVERY_SECONDS)
    except TimeoutError:
        for line in (
            f"  discovery  posd got no announcement within {DISCOVERY_SECONDS:.0f} s: multicast does not work here",
            "             (as in some containers). Going on with the terminal's address in",
            "             the configuration.",
        ):
            output.line(line, "yellow")
        sandbox.use_address()
        return "config"
    address = f"https://{found['host']}:{found['port']}"
    output.line(f"  discovery  posd found {sandbox.serial} over mDNS at {address}", "green")
    return "mdns"


@contextmanager
def _watched(sandbox: Sandbox) -> Iterator[None]:
    """Raise SandboxFailed in the block if a process ends, and TimeoutError if the block takes too long."""
    seconds = LONGEST_CHARGE_SECONDS / sandbox.speed + CHARGE_MARGIN_SECONDS
    end = time.monotonic() + seconds

    def check(_number: int, _frame: FrameType | None) -> None:
        sandbox.check()
        if time.monotonic() > end:
            raise TimeoutError(f"a charge or its receipt did not end within {seconds:g} s")

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, CHECK_SECONDS, CHECK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _charge(sandbox: Sandbox, timeline: Timeline, scenario: str, amount: Mapping[str, Decimal]) -> Document:
    """Charge as a till does: start the payment, then follow it until the outcome. Return the final transaction."""
    identity = str(uuid.uuid4())
    timeline.add(TILL, POSD, f"PUT /v1/transactions/{identity[:8]}...  {money(total(amount))}")
    payment = sandbox.client.charge(identity, amount, terminal=sandbox.serial, metadata={"scenario": scenario})
    started = payment.state()
    phase = "in doubt" if started.phase == "in_doubt" else "acknowledged"
    timeline.add(POSD, TERMINAL, f"charge, over TLS; answered: {started.outcome.result if started.outcome else phase}")
    for item in payment.watch():
        if isinstance(item, Change):
            timeline.add(TERMINAL, POSD, f"{item.status}  {event_extra(item.event)}".rstrip(), at=item.received_at)
    transaction = payment.state().document
    outcome = transaction["outcome"]
    ticket = f", ticket {outcome['ticket_number']}" if outcome["ticket_number"] else ""
    timeline.add(POSD, TILL, f"outcome: {outcome['result']}{ticket}", STYLES.get(outcome["result"], "yellow"))
    return transaction


def _print(sandbox: Sandbox, timeline: Timeline, text: str, reference: str) -> Document:
    """Print a receipt as a till does: start the job, then wait for the end. Return the final print job."""
    identity = str(uuid.uuid4())
    timeline.add(TILL, POSD, f"PUT /v1/print-jobs/{identity[:8]}...  receipt, {len(text.splitlines())} lines")
    printing = sandbox.client.print_job(identity, {"text": text}, terminal=sandbox.serial, external_reference=reference)
    started = printing.state()
    timeline.add(POSD, TERMINAL, f"print job, over TLS; answered: {started.status or started.phase}")
    job = printing.outcome()
    how = {"webhook": "by webhook", "poll": "when it was asked"}.get(job.decided_by or "")
    if how is not None:
        timeline.add(TERMINAL, POSD, f"{job.status}, {how}", at=job.updated_at)
    if job.printed:
        timeline.add(POSD, TILL, "printed", "green")
    else:
        timeline.add(POSD, TILL, f"not printed: {job.status}")
    return job.document


def _receipt_text(amount: Mapping[str, Decimal], outcome: Document) -> str:
    """Return the text of the receipt of an approved charge."""
    details = outcome["receipt"] or {}
    rows = [
        *((LABELS[name], f"{value:.2f}") for name, value in amount.items()),
        ("TOTAL", money(total(amount))),
        ("card", details.get("franchise")),
        ("authorization", details.get("authorization_code")),
        ("ticket", outcome["ticket_number"]),
    ]
    lines = [f"{name}{value!s:>{WIDTH - len(name)}}" for name, value in rows if value]
    return "\n".join(["POSD DEMO".center(WIDTH).rstrip(), "", *lines, "", "Thank you".center(WIDTH).rstrip()])


def _summarise(output: Output, charges: Sequence[Document]) -> None:
    output.line()
    rows = []
    for charge in charges:
        transaction, seconds = charge["transaction"], charge["timeline"][-1]["offset_seconds"]
        outcome = transaction["outcome"]
        reference = outcome["transaction_reference"] or "-"
        rows.append((money(total(transaction["amount"])), outcome["result"], reference, f"{seconds:.1f} s"))
    output.table(("amount", "outcome", "reference", "took"), rows)


def _keep(output: Output, sandbox: Sandbox) -> None:
    program = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "posd" else "posd"
    command = f"{program} --config {sandbox.config_path}"
    words = say(
        "demo",
        "keep",
        program=program,
        command=command,
        socket=sandbox.till_socket,
        control=sandbox.terminal.control_url,
        pid=sandbox.pid_path,
    )
    output.verbatim(*words.split("\n"))
    while (code := sandbox.wait_for_end_of_daemon()) <= 0:
        output.note("posd has ended, and is started again")
        sandbox.start_daemon(wait=False)
    raise SandboxFailed(f"posd ended by itself with exit code {code}")


# `posd demo --fleet`: several lanes and head office.

#: Debian installs the servers in these folders, which are not in PATH.
PLACES = ("/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)))
INSTALL = "sudo apt-get install nats-server postgresql"
PROGRAMS = ("nats-server", "initdb", "postgres")
#: Time-outs in seconds: of a payment, and of the wait until head office has the payments.
START_SECONDS = 30.0
COMPLETE_SECONDS = 30.0
#: Payments of each lane as (amount, scenario): before the last lane is cut off, while it is cut off, and afterwards.
FIRST = ((Decimal("11.20"), "approve-contactless"), (Decimal("4.50"), "approve-contactless"))
SECOND = ((Decimal("20.00"), "decline"), (Decimal("7.35"), "approve-contactless"))
THIRD = ((Decimal("3.10"), "approve-contactless"),)


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *PLACES)))


class _Fleet:
    """All processes of `posd demo --fleet`. `stack` ends them."""

    def __init__(self, output: Output, stack: ExitStack, lanes: int) -> None:
        """Raise SandboxFailed if a program is missing."""
        if absent := [name for name in PROGRAMS if _find(name) is None]:
            raise SandboxFailed(f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} missing: {INSTALL}")
        if words := how_to_get():
            raise SandboxFailed(f"the collector is missing; {words}")
        self._output = output
        self._stack = stack
        self._directory = temporary_directory()
        stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.chmod(0o711)  # PostgreSQL runs as another user, and needs access
        self._lanes = {f"lane-{number}": Sandbox(serial=f"FLEET-{number}") for number in range(1, lanes + 1)}
        self._threads = stack.enter_context(ThreadPoolExecutor(lanes))
        self._relays: dict[str, Program] = {}
        self._servers = f"nats://{LOOPBACK}:{_free_port()}"
        self._config = self._directory / "office.toml"

    def play(self) -> None:
        """Run the demo. Raise SandboxFailed with the reason."""
        output, lanes = self._output, list(self._lanes)
        output.line(f"posd demo: {len(lanes)} lanes, and head office, on this machine", "bold")
        output.line()
        self._start_servers()
        list(self._threads.map(self._start_lane, lanes))
        self._start_program("the collector", self._config, "collect")
        output.line(f"  each lane       has its own posd, terminal and relay: {', '.join(lanes)}")
        self._play_round("Every lane charges", FIRST, lanes, "head office has every payment")
        cut = lanes[-1]
        self._relays[cut].process.send_signal(signal.SIGSTOP)
        title = f"{cut} loses its network; the shop continues to charge"
        self._play_round(title, SECOND, lanes[:-1], "head office has every payment of the others")
        self._relays[cut].process.send_signal(signal.SIGCONT)
        self._play_round(f"{cut} has its network again", THIRD, lanes, "head office has every payment")
        output.line()
        self._show_totals()

    def _play_round(
        self, title: str, payments: Sequence[tuple[Decimal, str]], complete: Collection[str], what: str
    ) -> None:
        """Make payments on every lane. Then wait until head office has all payments of the lanes in `complete`.

        `what`: the text of that wait.
        """
        self._output.line()
        self._output.line(title, "bold")
        list(self._threads.map(lambda lane: self._charge(lane, payments), self._lanes))
        self._wait(what, lambda: all(row[-1] == "yes" for row in self._rows() if row[0] in complete))
        columns = ("lane", "changes there", "at head office", "complete to", "all of it")
        self._output.table(columns, self._rows())

    def _rows(self) -> list[tuple[str, Number, Number, str, str]]:
        """Return the row of each lane in the table: its name, its newest change, and what head office has of it."""
        found = {lane["lane"]: lane for lane in self._run("collect", "--check", "--json")["lanes"]}
        rows = []
        for name, sandbox in self._lanes.items():
            feed = sandbox.client.connection.call(get("/feed", {"limit": 1}))
            newest: int = feed.body["databases"][-1]["last_seq"]
            lane = found.get(name, {"complete_to_seq": None, "complete_to_at": None})
            there, at = lane["complete_to_seq"], lane["complete_to_at"]
            complete = "yes" if there == newest else "no"
            rows.append((name, Number(str(newest)), Number(str(there)), moment(at) if at else "-", complete))
        return rows

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
            f'[merchant]\nid = "demo"\n[local_api]\ndirectory = "{sandbox.directory}/run"\n'
            f'[relay]\nservers = ["{self._servers}"]\nlane = "{lane}"\nstate_seconds = 1\n'
        )
        self._relays[lane] = self._start_program(f"the relay of {lane}", config, "relay")

    def _start_program(self, name: str, config: Path, command: str) -> Program:
        program = Program(name, ["--config", str(config), command], self._log(name), threading.Condition())
        self._stack.callback(program.stop)
        return program

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _charge(self, lane: str, payments: Sequence[tuple[Decimal, str]]) -> None:
        for amount, scenario in payments:
            payment = self._lanes[lane].client.charge(uuid.uuid4(), amount, metadata={"scenario": scenario})
            outcome = payment.outcome(timeout=START_SECONDS)
            word = "paid" if outcome.paid is Paid.PAID else outcome.result
            self._output.line(f"  {lane}  {money(amount):>6}  {word}")

    def _run(self, *arguments: str, config: Path | None = None) -> Any:
        """Return the JSON output of a posd command, or None if it failed."""
        done = subprocess.run(  # noqa: S603 - this program, with arguments made here
            [sys.executable, "-P", "-m", "posd", "--config", str(config or self._config), *arguments],
            capture_output=True,
            check=False,
        )
        return json.loads(done.stdout, parse_float=Decimal) if done.returncode in (0, 1) and done.stdout else None

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        """Wait until `done` returns true, and print `what`. Raise SandboxFailed after COMPLETE_SECONDS."""
        began = time.monotonic()
        with self._output.busy(what):
            while not done():
                if time.monotonic() - began > COMPLETE_SECONDS:
                    raise SandboxFailed(f"it took longer than {COMPLETE_SECONDS:.0f} s until {what}")
                time.sleep(0.1)  # PostgreSQL sends no notice when a table changes
        self._output.line(f"  {what}, after {time.monotonic() - began:.1f} s", "green")

    def _show_totals(self) -> None:
        """Show each lane's totals at head office and in its own report. Raise SandboxFailed if they differ."""
        days = ("--to", "today", "--timezone", "UTC", "--json")
        office = dict.fromkeys(self._lanes, (0, ZERO))
        for row in self._run("collect", "totals", "--day", "yesterday", *days)["totals"]:
            payments, amount = office[row["lane"]]
            office[row["lane"]] = payments + row["payments"], amount + Decimal(row["total"])
        own = {}
        for lane, sandbox in self._lanes.items():
            found = self._run("report", "--from", "yesterday", *days, config=sandbox.config_path)["total"]
            own[lane] = found["payments"] + found["reversals"], Decimal(found["total"])
        rows = [
            (lane, Number(str(office[lane][0])), Number(money(office[lane][1])), Number(money(own[lane][1])))
            for lane in self._lanes
        ]
        self._output.table(("lane", "payments", "head office", "the lane's report"), rows)
        if office != own:
            raise SandboxFailed("the totals differ")
        amount = sum((item for _, item in office.values()), Decimal(0))
        self._output.line(f"The totals agree to the cent: {money(amount)}.", "green")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
