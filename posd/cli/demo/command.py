"""`posd demo`: real charges and a receipt on one machine, with nothing to configure."""

import shlex
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import msgspec

from posd.cli.app.connection import Api, Problem, Unreachable, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.outcome import TimedOut
from posd.cli.app.output import Output, money
from posd.cli.demo.charges import PRINTED, Charge, Plan, Receipt, Step, make_charge, print_receipt
from posd.cli.demo.machine import DISCOVERY_SECONDS, DemoFailed, Machine
from posd.cli.payments.words import RESULTS

#: what the demo charges: one payment for each way in which a payment usually ends.
PLANS = (
    Plan("approved", "approve-contactless", {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20")}),
    Plan("declined", "decline", {"subtotal_iva": Decimal("0.2"), "iva": Decimal("0.1")}),
    Plan("canceled", "cancel-by-cardholder", {"subtotal_iva0": Decimal("10.10")}),
)

#: a payment with a person takes 8 to 33 s (terminal API, Lifecycle); this makes it 1 to 3.
DEFAULT_SPEED = 10.0
#: seconds at speed 1: the longest that a simulated payment can take, with a margin; by then something is wrong.
LONGEST_CHARGE_SECONDS = 60.0
#: seconds: what the machine itself may need for a charge, however fast the customer is.
CHARGE_MARGIN_SECONDS = 15.0

#: stands before each line of what came out on paper.
PAPER_MARGIN = " " * 33 + "| "

#: what else than Ctrl-C stops the demo: a service manager, a closed window.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--keep", is_flag=True, help="Leave it running afterwards, to try things; Ctrl-C stops it.")
@click.option(
    "--speed",
    type=click.FloatRange(min=1, max=1000),
    default=DEFAULT_SPEED,
    show_default=True,
    help="How much faster than a person the simulated customer is.",
)
@click.option("--no-mdns", is_flag=True, help="Do not announce the terminal: as on a network without multicast.")
@json_option
def demo(output: Output, keep: bool, speed: float, no_mdns: bool) -> None:
    """Watch a till that charges and prints: one machine, nothing to configure.

    Starts the daemon and a simulated terminal in a temporary directory, finds the terminal over mDNS, talks to it
    over TLS, and makes three charges: one approved, whose receipt the terminal prints, one declined, one canceled.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        with ExitStack() as stack:
            machine = stack.enter_context(Machine(speed=speed, announce=not no_mdns))
            # Stopping takes seconds at most; a second Ctrl-C must not leave processes behind.
            stack.callback(_ignore_signals)
            try:
                _play(output, machine, speed)
            except (DemoFailed, Problem, Unreachable, TimedOut, TimeoutError) as error:
                _fail(output, machine, error)
            if keep:
                _keep(output, machine)
    except KeyboardInterrupt:
        output.note(("", "stopped; nothing is left behind"))
        sys.exit(ExitCode.DONE if keep else ExitCode.NOT_DONE)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)


def _play(output: Output, machine: Machine, speed: float) -> None:
    began = time.monotonic()
    output.line("posd demo: a till, posd and a card terminal on this machine", "bold")
    output.line()
    machine.start()
    output.line(f"  posd       listens on {machine.till_socket}")
    output.line(f"             and for terminals on https://{machine.webhook_address}")
    output.line(f"  terminal   {machine.serial}, simulated, on {machine.base_url}")
    found = machine.address_by_mdns()
    if found is not None:
        output.line(f"  discovery  posd found {machine.serial} over mDNS at {found}", "green")
    else:
        for line in (
            f"  discovery  posd heard no announcement within {DISCOVERY_SECONDS:.0f} s: multicast does not work here",
            "             (as in some containers). Going on with the terminal's address in",
            "             the configuration.",
        ):
            output.line(line, "yellow")
        machine.use_address()
    with Api(machine.till_socket) as api:
        charges: list[Charge] = []
        receipts: dict[int, Receipt] = {}
        for number, plan in enumerate(PLANS, 1):
            charges.append(_charge(output, machine, api, plan, speed, number))
            if charges[-1].result == "approved":
                receipts[number] = _receipt(output, machine, api, charges[-1], speed, number)
    ended: list[Charge | Receipt] = [*charges, *receipts.values()]
    faults = [fault for each in ended if (fault := each.fault())]
    took = time.monotonic() - began
    _summarise(output, charges, receipts, took, "mdns" if found else "config", faults)
    if faults:
        raise DemoFailed("; ".join(faults))


def _charge(output: Output, machine: Machine, api: Api, plan: Plan, speed: float, number: int) -> Charge:
    def show(step: Step) -> None:
        _show(output, step, RESULTS[plan.result][0] if step.what.startswith("outcome") else "")

    parts = ", ".join(f"{name} {value}" for name, value in plan.amount.items())
    output.line()
    output.line(f"Charge {number} of {len(PLANS)}: {money(plan.total)} ({parts}), {plan.scenario}", "bold")
    return make_charge(api, plan, machine.serial, deadline=_deadline(speed), show=show, check=machine.check)


def _receipt(output: Output, machine: Machine, api: Api, charge: Charge, speed: float, number: int) -> Receipt:
    output.line()
    output.line(f"Receipt of charge {number}, on the printer of the terminal", "bold")
    receipt = print_receipt(
        api,
        charge,
        machine.serial,
        deadline=_deadline(speed),
        show=lambda step: _show(output, step, "green" if step.what == PRINTED else ""),
        check=machine.check,
        paper=machine.paper,
    )
    for line in (receipt.paper or "nothing came out on paper").splitlines():
        output.line(f"{PAPER_MARGIN}{line}".rstrip())
    return receipt


def _deadline(speed: float) -> float:
    """Return until when a charge or its receipt is waited for, as a time of `time.monotonic()`."""
    return time.monotonic() + LONGEST_CHARGE_SECONDS / speed + CHARGE_MARGIN_SECONDS


def _show(output: Output, step: Step, style: str = "") -> None:
    output.line(f"  {step.offset:6.2f} s  {step.sender:>8} -> {step.receiver:<8}  {step.what}", style)


def _timeline(steps: list[Step]) -> list[dict[str, object]]:
    return [{"offset_seconds": round(s.offset, 3), "from": s.sender, "to": s.receiver, "what": s.what} for s in steps]


def _summarise(
    output: Output,
    charges: list[Charge],
    receipts: Mapping[int, Receipt],
    took: float,
    discovery: str,
    faults: list[str],
) -> None:
    if output.as_json:
        document = {
            "ok": not faults,
            "discovery": discovery,
            "took_seconds": round(took, 3),
            "charges": [
                {
                    "expected": charge.plan.result,
                    "transaction": charge.transaction,
                    "timeline": _timeline(charge.steps),
                }
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
        }
        output.json(msgspec.json.Encoder(decimal_format="number").encode(document))
        return
    output.line()
    rows = [
        (money(c.plan.total), c.result, c.transaction["outcome"]["transaction_reference"] or "-", f"{c.seconds:.1f} s")
        for c in charges
    ]
    output.table(("amount", "outcome", "reference", "took"), rows)
    if not faults:
        output.line()
        output.line(f"All three ended as they should, and the receipt is printed, in {took:.1f} s.", "green")


def _fail(output: Output, machine: Machine, error: Exception) -> NoReturn:
    reason = "a charge or its receipt did not end in time" if isinstance(error, TimedOut) else str(error)
    output.note([*machine.tails(), "", f"posd demo: {reason}"], style="red")
    sys.exit(ExitCode.NOT_DONE)


def _keep(output: Output, machine: Machine) -> None:
    program = shlex.quote(sys.argv[0]) if Path(sys.argv[0]).name == "posd" else "posd"
    command = f"{program} --config {machine.config_path}"
    words = f"""
It stays running until Ctrl-C. In another shell:

  {command} charge 12.50
  {command} charge --subtotal-iva 10.00 --iva 1.20 --metadata scenario=decline
  echo "Thank you" | {command} print -
  {command} list
  {command} status

  id=$(cat /proc/sys/kernel/random/uuid)
  curl --unix-socket {machine.till_socket} -X PUT \\
    -H 'Content-Type: application/json' -d '{{"amount": {{"subtotal_iva0": 10.10}}}}' \\
    http://posd/v1/transactions/$id
  curl --unix-socket {machine.till_socket} http://posd/v1/transactions/$id/outcome

And for posd.client in Python, and the recipes of docs/recipes, in a shell of its own (posd's commands take it
too, and the till's socket refuses what only operators may decide):

  export POSD_SOCKET={machine.till_socket}
"""
    for line in words.split("\n"):
        output.line(line)
    while True:
        machine.check()
        time.sleep(1)
