"""`posd demo`: real charges and a receipt on one machine, without configuration."""

import secrets
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from posd.base.json_types import encode
from posd.cli.app.connection import Api, Problem, Unreachable, json_option
from posd.cli.app.context import ExitCode
from posd.cli.app.outcome import Arrived, CurrentState, Disconnected, TimedOut, follow, follow_print_job, start
from posd.cli.app.output import Output, money, total
from posd.cli.explain.catalogue import say
from posd.cli.payments.show import event_extra
from posd.cli.payments.words import STYLES
from posd.sandbox import Sandbox, SandboxFailed

#: Actors in the timeline.
TILL, POSD, TERMINAL = "till", "posd", "terminal"


@dataclass(frozen=True, slots=True)
class PlannedCharge:
    """Planned charge: its expected end, the behaviour of the simulated customer, and the amount."""

    result: str
    scenario: str
    amount: Mapping[str, Decimal]

    @property
    def total(self) -> Decimal:
        return total(self.amount)


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A line of the timeline; `offset` in seconds since the till's call."""

    offset: float
    sender: str
    receiver: str
    what: str


class Timeline:
    """Timeline of one action, printed as it happens. The time begins when the object is made."""

    def __init__(self, show: Callable[[TimelineStep], None]) -> None:
        self.steps: list[TimelineStep] = []
        self._show = show
        self._began, self._began_at = time.monotonic(), datetime.now(UTC)

    def note(self, sender: str, receiver: str, what: str, *, at: datetime | None = None) -> None:
        """Add a line. `at`: the daemon's time of the step; now by default."""
        offset = time.monotonic() - self._began if at is None else max(0.0, (at - self._began_at).total_seconds())
        self.steps.append(TimelineStep(offset, sender, receiver, what))
        self._show(self.steps[-1])


@dataclass(slots=True)
class Charge:
    """Charge that was made."""

    plan: PlannedCharge
    transaction: Mapping[str, Any]
    steps: list[TimelineStep] = field(default_factory=list)

    @property
    def result(self) -> str:
        return str(self.transaction["outcome"]["result"])

    @property
    def seconds(self) -> float:
        return self.steps[-1].offset

    def fault(self) -> str | None:
        """Return the difference from the plan, or None."""
        if self.result != self.plan.result:
            return f"the charge of {money(self.plan.total)} should be {self.plan.result}, and is {self.result}"
        authorized = self.transaction["outcome"]["authorized_amount"]
        if self.result == "approved" and authorized != self.plan.total:
            return f"asked for {money(self.plan.total)}, and {authorized} was authorized"
        return None


def make_charge(
    api: Api,
    plan: PlannedCharge,
    serial: str,
    *,
    deadline: float,
    show: Callable[[TimelineStep], None],
    check: Callable[[], None],
) -> Charge:
    """Run one charge as a till would: send the PUT, then follow the payment's events until the outcome.

    Each step goes to `show` when it happens. `check` is called repeatedly meanwhile. `deadline` is a time of
    `time.monotonic()`. Raise Problem, Unreachable or TimedOut.
    """
    timeline = Timeline(show)
    transaction_id = str(uuid.uuid4())
    request = {"terminal": serial, "amount": plan.amount, "metadata": {"scenario": plan.scenario}}
    timeline.note(TILL, POSD, f"PUT /v1/transactions/{transaction_id[:8]}...  {money(plan.total)}")
    reply = start(api, f"/transactions/{transaction_id}", request, deadline=deadline, away=lambda _: check())
    timeline.note(POSD, TERMINAL, f"charge, over TLS; answered: {answered(reply.body)}")
    transaction: Mapping[str, Any] = reply.body
    for update in follow(api, transaction_id, deadline=deadline):
        check()
        match update:
            case Arrived(item):
                at = datetime.fromisoformat(item["received_at"])
                event = item["event"]
                what = f"{event['status']}  {event_extra(event)}".rstrip()
                timeline.note(TERMINAL, POSD, what, at=at)
            case CurrentState():
                transaction = update.transaction
            case Disconnected():
                pass
    outcome = transaction["outcome"]
    ticket = f", ticket {outcome['ticket_number']}" if outcome["ticket_number"] else ""
    timeline.note(POSD, TILL, f"outcome: {outcome['result']}{ticket}")
    return Charge(plan, transaction, timeline.steps)


def answered(transaction: Mapping[str, Any]) -> str:
    """Return the result of the call to the terminal."""
    if transaction["outcome"] is not None:
        return str(transaction["outcome"]["result"])
    return "in doubt" if transaction["phase"] == "in_doubt" else "acknowledged"


#: Characters of a line on paper.
WIDTH = 32
#: Last line of the timeline after success.
PRINTED = "printed"
#: Members of an amount -> their names on a receipt.
LABELS = {"subtotal_iva": "subtotal", "subtotal_iva0": "subtotal", "iva": "IVA"}


@dataclass(slots=True)
class PrintedReceipt:
    """Receipt that was sent to the printer: its text, its end, and the printed text."""

    text: str
    print_job: Mapping[str, Any]
    steps: list[TimelineStep] = field(default_factory=list)
    paper: str | None = None

    def fault(self) -> str | None:
        """Return the difference from the plan, or None."""
        if self.print_job["status"] != "COMPLETED":
            return f"the receipt should be COMPLETED, and is {self.print_job['status']}"
        if self.paper != self.text:
            return "the terminal printed something other than the receipt"
        return None


def print_receipt(
    api: Api,
    charge: Charge,
    serial: str,
    *,
    deadline: float,
    show: Callable[[TimelineStep], None],
    check: Callable[[], None],
    paper: Callable[[str], str | None],
) -> PrintedReceipt:
    """Print the receipt of an approved charge on its terminal: send the PUT, then wait for the end of the print job.

    `paper` returns what the terminal has printed under an id. See `make_charge` for the other arguments.
    """
    timeline = Timeline(show)
    text = receipt_text(charge)
    identity = str(uuid.uuid4())
    reference = charge.transaction["outcome"]["ticket_number"] or ""
    request = {"terminal": serial, "external_reference": reference, "document": {"text": text}}
    timeline.note(TILL, POSD, f"PUT /v1/print-jobs/{identity[:8]}...  receipt, {len(text.splitlines())} lines")
    reply = start(api, f"/print-jobs/{identity}", request, deadline=deadline, away=lambda _: check())
    job: Mapping[str, Any] = reply.body
    timeline.note(POSD, TERMINAL, f"print job, over TLS; answered: {job['status'] or job['phase']}")
    updates = () if job["phase"] == "final" else follow_print_job(api, f"/print-jobs/{identity}", deadline=deadline)
    for update in updates:
        check()
        if not isinstance(update, Disconnected):
            job = update.transaction
    ended = datetime.fromisoformat(job["updated_at"])
    match job["decided_by"]:
        case "webhook":
            timeline.note(TERMINAL, POSD, f"{job['status']}, by webhook", at=ended)
        case "poll":
            timeline.note(TERMINAL, POSD, f"{job['status']}, when it was asked", at=ended)
    printed = job["status"] == "COMPLETED"
    timeline.note(POSD, TILL, PRINTED if printed else f"not printed: {job['status'] or job['phase']}")
    return PrintedReceipt(text, job, timeline.steps, paper(identity))


def receipt_text(charge: Charge) -> str:
    """Write the receipt of an approved charge."""
    outcome = charge.transaction["outcome"]
    details = outcome["receipt"] or {}
    rows = [
        *((LABELS[name], f"{value:.2f}") for name, value in charge.plan.amount.items()),
        ("TOTAL", money(charge.plan.total)),
        ("card", details.get("franchise")),
        ("authorization", details.get("authorization_code")),
        ("ticket", outcome["ticket_number"]),
    ]
    lines = [f"{name}{value!s:>{WIDTH - len(name)}}" for name, value in rows if value]
    return "\n".join(["POSD DEMO".center(WIDTH).rstrip(), "", *lines, "", "Thank you".center(WIDTH).rstrip()])


# `posd demo`: real charges and a receipt on one machine, without configuration.

#: Charges of the demo: one payment for each usual end.
PLANS = (
    PlannedCharge("approved", "approve-contactless", {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20")}),
    PlannedCharge("declined", "decline", {"subtotal_iva": Decimal("0.2"), "iva": Decimal("0.1")}),
    PlannedCharge("canceled", "cancel-by-cardholder", {"subtotal_iva0": Decimal("10.10")}),
)

#: A payment with a person takes 8 to 33 s (terminal API, Lifecycle). At this speed a payment takes 1 to 3 s.
DEFAULT_SPEED = 10.0
#: Seconds at speed 1: the longest simulated payment, with a margin. A payment that takes longer shows a fault.
LONGEST_CHARGE_SECONDS = 60.0
#: Seconds that the machine itself may need for a charge, at any speed of the customer.
CHARGE_MARGIN_SECONDS = 15.0

#: Seconds: discovery takes about two. After a longer wait, multicast does not work here.
DISCOVERY_SECONDS = 6.0

#: Prefix of each line on paper.
PAPER_MARGIN = " " * 33 + "| "

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
    --list shows the scenarios of the simulated terminal and how to select each. posd's own waits are shortened by the
    speed of the customer, down to one second. If posd is killed, it is started again, as by systemd. With --json, the
    member `running` has all paths and addresses.
    """
    if fleet is not None and (keep or no_charges or no_mdns or output.as_json):
        raise click.UsageError("--fleet is a demo of its own: use it without the other options")
    if no_charges and not keep:
        raise click.UsageError("--no-charges without --keep leaves nothing to do")
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    if fleet is not None:
        _fleet(output, fleet)
        return
    try:
        with ExitStack() as stack:
            sandbox = _sandbox(speed, keep=keep, announce=not no_mdns, charges=not no_charges)
            stack.callback(sandbox.close)
            # Stopping takes a few seconds. A second Ctrl-C must not leave processes behind.
            stack.callback(_ignore_signals)
            try:
                _play(output, sandbox, () if no_charges else PLANS, keep=keep)
                if keep:
                    _keep(output, sandbox)
            except (SandboxFailed, Problem, Unreachable, TimedOut, TimeoutError) as error:
                _fail(output, sandbox, error)
    except KeyboardInterrupt:
        output.note(("", "stopped; nothing is left behind"))
        sys.exit(ExitCode.DONE if keep else ExitCode.NOT_DONE)


def _fleet(output: Output, lanes: int) -> None:
    from posd.cli.demo.fleet import play  # imports that only this command needs

    try:
        play(output, lanes)
    except (SandboxFailed, Problem, Unreachable) as error:
        output.note(f"posd demo: {error}", style="red")
        sys.exit(ExitCode.NOT_DONE)
    except KeyboardInterrupt:
        output.note(("", "stopped; nothing is left behind"))
        sys.exit(ExitCode.NOT_DONE)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def _sandbox(speed: float, *, keep: bool, announce: bool, charges: bool) -> Sandbox:
    if not charges:
        return Sandbox(speed=speed)
    # Another demo on this machine announces its terminal on the same loopback interface.
    serial = f"DEMO-{secrets.token_hex(3).upper()}"
    return Sandbox(speed=speed, serial=serial, patient=not keep, announce=announce, address_known=False)


def _play(output: Output, sandbox: Sandbox, plans: Sequence[PlannedCharge], *, keep: bool) -> None:
    began = time.monotonic()
    output.line("posd demo: a till, posd and a card terminal on this machine", "bold")
    output.line()
    sandbox.start()
    output.line(f"  posd       listens on {sandbox.till_socket}")
    output.line(f"             and for terminals on https://{sandbox.webhook_address}")
    output.line(f"  terminal   {sandbox.serial}, simulated, on {sandbox.terminal.base_url}")
    discovery = _discover(output, sandbox) if plans else "config"
    charges: list[Charge] = []
    receipts: dict[int, PrintedReceipt] = {}
    with Api(sandbox.till_socket) as api:
        for number, plan in enumerate(plans, 1):
            charges.append(_charge(output, sandbox, api, plan, number))
            if charges[-1].result == "approved":
                receipts[number] = _receipt(output, sandbox, api, charges[-1], number)
    ended: list[Charge | PrintedReceipt] = [*charges, *receipts.values()]
    faults = [fault for each in ended if (fault := each.fault())]
    document = {
        "ok": not faults,
        "discovery": discovery,
        "took_seconds": round(time.monotonic() - began, 3),
        "charges": [
            {"expected": charge.plan.result, "transaction": charge.transaction, "timeline": _timeline(charge.steps)}
            for charge in charges
        ],
        "receipts": [
            {
                "charge": number,
                "print_job": receipt.print_job,
                "paper": receipt.paper,
                "timeline": _timeline(receipt.steps),
            }
            for number, receipt in receipts.items()
        ],
        "running": sandbox.document() if keep and not faults else None,
    }
    output.json(encode(document))
    if charges:
        _summarise(output, charges, time.monotonic() - began, faults)
    if faults:
        raise SandboxFailed("; ".join(faults))


def _discover(output: Output, sandbox: Sandbox) -> str:
    """Wait until posd has found the terminal. Otherwise write the address into the configuration."""
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


def _charge(output: Output, sandbox: Sandbox, api: Api, plan: PlannedCharge, number: int) -> Charge:
    def show(step: TimelineStep) -> None:
        _show_step(output, step, STYLES.get(plan.result, "yellow") if step.what.startswith("outcome") else "")

    parts = ", ".join(f"{name} {value}" for name, value in plan.amount.items())
    output.line()
    output.line(f"Charge {number} of {len(PLANS)}: {money(plan.total)} ({parts}), {plan.scenario}", "bold")
    deadline = _deadline(sandbox.speed)
    return make_charge(api, plan, sandbox.serial, deadline=deadline, show=show, check=sandbox.check)


def _receipt(output: Output, sandbox: Sandbox, api: Api, charge: Charge, number: int) -> PrintedReceipt:
    output.line()
    output.line(f"Receipt of charge {number}, on the printer of the terminal", "bold")
    receipt = print_receipt(
        api,
        charge,
        sandbox.serial,
        deadline=_deadline(sandbox.speed),
        show=lambda step: _show_step(output, step, "green" if step.what == PRINTED else ""),
        check=sandbox.check,
        paper=sandbox.paper,
    )
    for line in (receipt.paper or "nothing was printed").splitlines():
        output.line(f"{PAPER_MARGIN}{line}".rstrip())
    return receipt


def _deadline(speed: float) -> float:
    """Return the deadline for a charge or its receipt, as a time of `time.monotonic()`."""
    return time.monotonic() + LONGEST_CHARGE_SECONDS / speed + CHARGE_MARGIN_SECONDS


def _show_step(output: Output, step: TimelineStep, style: str = "") -> None:
    output.line(f"  {step.offset:6.2f} s  {step.sender:>8} -> {step.receiver:<8}  {step.what}", style)


def _timeline(steps: list[TimelineStep]) -> list[dict[str, object]]:
    return [{"offset_seconds": round(s.offset, 3), "from": s.sender, "to": s.receiver, "what": s.what} for s in steps]


def _summarise(output: Output, charges: list[Charge], took: float, faults: list[str]) -> None:
    output.line()
    rows = [
        (money(c.plan.total), c.result, c.transaction["outcome"]["transaction_reference"] or "-", f"{c.seconds:.1f} s")
        for c in charges
    ]
    output.table(("amount", "outcome", "reference", "took"), rows)
    if not faults:
        output.line()
        output.line(f"All three ended as expected, and the receipt is printed, in {took:.1f} s.", "green")


def _fail(output: Output, sandbox: Sandbox, error: Exception) -> NoReturn:
    reason = "a charge or its receipt did not end in time" if isinstance(error, TimedOut) else str(error)
    output.note([*sandbox.tails(), "", f"posd demo: {reason}"], style="red")
    sys.exit(ExitCode.NOT_DONE)


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
