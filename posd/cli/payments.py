"""`posd charge`, `await` and `abort`: payments, as a till sees them."""

import sys
import time
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

import click

from posd.cli import parameters
from posd.cli.api import Api, Problem, Reply, Unreachable
from posd.cli.connection import connect, id_argument, json_option
from posd.cli.exit_codes import ExitCode, for_transaction
from posd.cli.output import Output
from posd.cli.progress import Progress, show_attention, show_outcome
from posd.cli.waiting import Snapshot, TimedOut, follow, start
from posd.cli.words import hint

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this long (exit code 4). The payment goes on.",
)


@click.command()
@click.argument("amount", type=parameters.amount, required=False)
@click.option("--terminal", metavar="SERIAL", help="The terminal; may be left out where there is only one.")
@click.option("--subtotal-iva", type=parameters.amount, metavar="AMOUNT", help="What is taxed, without the tax.")
@click.option(
    "--subtotal-iva0", type=parameters.amount, metavar="AMOUNT", help="What is not taxed (the same as AMOUNT)."
)
@click.option("--iva", type=parameters.amount, metavar="AMOUNT", help="The tax.")
@click.option("--tip", type=parameters.amount, metavar="AMOUNT", help="A tip.")
@click.option(
    "--metadata", multiple=True, callback=parameters.pairs, metavar="KEY=VALUE", help="Kept with it. Repeatable."
)
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=parameters.json_pairs,
    metavar="KEY=JSON",
    help="Sent as is. Repeatable.",
)
@click.option("--sale", metavar="KEY", help="What is being paid: a sale with an open or approved payment is refused.")
@click.option("--repeat", is_flag=True, help="One more payment for the same --sale (split payment).")
@click.option("--id", "given_id", type=click.UUID, metavar="UUID", help="The payment's id; made here where left out.")
@click.option("--no-wait", is_flag=True, help="Only start it (exit code 0 once it runs).")
@timeout_option
@json_option
@click.pass_context
def charge(
    ctx: click.Context,
    /,
    output: Output,
    amount: Decimal | None,
    terminal: str | None,
    metadata: Mapping[str, str],
    options: Mapping[str, Any],
    sale: str | None,
    repeat: bool,
    given_id: uuid.UUID | None,
    no_wait: bool,
    timeout: float | None,
    **parts: Decimal | None,
) -> None:
    """Charge a card, and wait for the outcome.

    AMOUNT is a total without tax. With tax: posd charge --subtotal-iva 10.00 --iva 1.20

    Repeating the command with the same --id and amounts never charges twice: it joins the payment.
    """
    request: dict[str, Any] = {"type": "charge", "amount": parameters.amounts(amount, parts)}
    if terminal is not None:
        request["terminal"] = terminal
    if metadata:
        request["metadata"] = metadata
    if options:
        request["options"] = options
    if sale is not None:
        request["sale"] = sale
    if repeat:
        request["repeat"] = True
    transaction_id = str(given_id or uuid.uuid4())
    deadline = None if timeout is None else time.monotonic() + timeout
    with connect(ctx) as api, Progress(output) as progress:
        # Before the call: whatever happens from here on, the id is on the screen.
        write = output.note if output.as_json else output.line
        write(f"transaction {transaction_id}")
        reply = _start(api, progress, transaction_id, request, deadline)
        if reply.body["phase"] != "final" and not no_wait:
            reply = _wait(api, progress, reply, deadline)
    if reply.body["phase"] != "final":
        _show_started(output, reply)
    _finish(output, reply)


def _start(
    api: Api, progress: Progress, transaction_id: str, request: Mapping[str, Any], deadline: float | None
) -> Reply:
    maybe = "The payment may have started, and then it goes on"
    try:
        return start(api, f"/transactions/{transaction_id}", request, deadline=deadline, away=progress.away)
    except (TimedOut, KeyboardInterrupt):
        _leave_open(progress, transaction_id, None, maybe)
    except Unreachable:
        progress.close()
        progress.output.note("Nothing was started.", style="yellow")
        raise
    except Problem as problem:
        # A fault of posd, or an answer that is not posd's, says nothing about whether the payment runs.
        if problem.code and problem.status != 500:
            raise
        _leave_open(progress, transaction_id, None, f"posd: {problem.detail}\n{maybe}")


def _wait(api: Api, progress: Progress, reply: Reply, deadline: float | None) -> Reply:
    """Follow the transaction until it is final; leave the program with OPEN at the deadline or on Ctrl-C."""
    transaction_id = reply.body["client_transaction_id"]
    try:
        for update in follow(api, transaction_id, deadline=deadline):
            progress.show(update)
            if isinstance(update, Snapshot):
                reply = update.reply
    except TimedOut:
        _leave_open(progress, transaction_id, reply, "Still open; the payment goes on")
    except KeyboardInterrupt:
        _leave_open(progress, transaction_id, reply, "Stopped waiting; the payment goes on")
    return reply


def _leave_open(progress: Progress, transaction_id: str, reply: Reply | None, why: str) -> NoReturn:
    progress.close()
    output = progress.output
    if output.as_json and reply is not None:
        output.json(reply.raw)
    output.note(
        f"{why}.\n"
        f"  its outcome:  posd await {transaction_id}\n"
        f"  to stop it:   posd abort {transaction_id}\n"
        "Do not take this payment again before its outcome is known.",
        style="yellow",
    )
    sys.exit(ExitCode.OPEN)


def _show_started(output: Output, reply: Reply) -> NoReturn:
    if output.as_json:
        output.json(reply.raw)
    transaction = reply.body
    output.line(f"started on {transaction['terminal']}: {hint(transaction)}")
    output.line(f"its outcome: posd await {transaction['client_transaction_id']}")
    sys.exit(ExitCode.DONE)


def _finish(output: Output, reply: Reply) -> NoReturn:
    if output.as_json:
        output.json(reply.raw)
    else:
        show_outcome(output, reply.body)
        show_attention(output, reply.body)
    sys.exit(for_transaction(reply.body))


@click.command("await")
@id_argument
@timeout_option
@json_option
@click.pass_context
def await_(ctx: click.Context, output: Output, transaction_id: uuid.UUID, timeout: float | None) -> None:
    """Wait for a payment's outcome.

    A payment that is over answers at once.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    with connect(ctx) as api, Progress(output) as progress:
        reply = api.get(f"/transactions/{transaction_id}")
        if reply.body["phase"] != "final":
            reply = _wait(api, progress, reply, deadline)
    _finish(output, reply)


@click.command()
@id_argument
@json_option
@click.pass_context
def abort(ctx: click.Context, output: Output, transaction_id: uuid.UUID) -> None:
    """Ask the terminal to abort a payment.

    An abort is a request: the customer may have been faster, so the outcome still has to be awaited.
    """
    with connect(ctx) as api:
        reply = api.post(f"/transactions/{transaction_id}/abort")
    if output.as_json:
        output.json(reply.raw)
    output.line("The terminal was asked to abort. It may still approve: wait for the outcome.")
    output.line(f"its outcome: posd await {transaction_id}")
