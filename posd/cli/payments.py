"""`posd charge`, `await`, `abort`, `show` and `list`: payments, as a till sees them."""

import sys
import time
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

import click

from posd.cli import parameters
from posd.cli.api import Api, Problem, Reply, Unreachable
from posd.cli.connection import connect, json_option
from posd.cli.exit_codes import ExitCode, for_transaction
from posd.cli.output import Output, Pair, moment, money, total
from posd.cli.progress import Progress, event_extra, show_attention, show_outcome
from posd.cli.waiting import Snapshot, TimedOut, follow, start
from posd.cli.words import NEXT_STEPS, advice, hint, state

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this long (exit code 4). The payment goes on.",
)
id_argument = click.argument("transaction_id", metavar="ID", type=click.UUID)


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


@click.command()
@id_argument
@json_option
@click.pass_context
def show(ctx: click.Context, output: Output, transaction_id: uuid.UUID) -> None:
    """Show everything about a payment.

    That is its request, state, outcome, attention and events.
    """
    with connect(ctx) as api:
        reply = api.get(f"/transactions/{transaction_id}")
        if output.as_json:
            output.json(reply.raw)
            return
        events = api.get(f"/transactions/{transaction_id}/events").body["events"]
    transaction = reply.body
    output.panel("transaction", transaction_pairs(transaction), "cyan")
    if transaction["outcome"] is not None:
        show_outcome(output, transaction)
    if events:
        rows = [
            (str(item["seq"]), moment(item["received_at"]), item["verdict"], item["event"]["status"],
             event_extra(item["event"]))
            for item in events
        ]  # fmt: skip
        output.table(("seq", "received", "verdict", "status", "detail"), rows)


def transaction_pairs(transaction: Mapping[str, Any]) -> list[Pair]:
    """Return all fields of a transaction but its outcome, label and text, empty ones left out."""
    result: list[Pair] = []
    for name, value in transaction.items():
        match name:
            case "outcome":
                continue
            case "amount" if value:
                text = f"{money(total(value))}  ({_inline(value)})"
            case "attention":
                result += [(f"attention {a['code']}", f"{a.get('detail') or ''}; {advice(a['code'])}") for a in value]
                continue
            case "next_step":
                text = f"{value}: {NEXT_STEPS.get(value, '')}"
            case "created_at" | "updated_at":
                text = moment(value, date=True)
            case _:
                text = _inline(value)
        if text:
            result.append((name, text))
    return result


def _inline(value: object) -> str:
    """Write a JSON value in a line for people; empty for null, {} and []."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_inline(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(_inline(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@click.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those that are not final.")
@click.option("--phase", type=click.Choice(["starting", "in_doubt", "active", "final"]), help="Only this phase.")
@click.option("--terminal", metavar="SERIAL", help="Only this terminal.")
@click.option("--attention", is_flag=True, help="Only those that a person should look at.")
@click.option("--since", type=parameters.moment, metavar="TIME", help="From this time on.")
@click.option("--until", type=parameters.moment, metavar="TIME", help="Before this time.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at a time.")
@click.option("--all", "everything", is_flag=True, help="All of them, not only the newest (--json: a page a line).")
@json_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    output: Output,
    only_open: bool,
    attention: bool,
    limit: int,
    everything: bool,
    **given: str | None,
) -> None:
    """List payments, the newest first."""
    params = {"limit": str(limit)} | {name: value for name, value in given.items() if value is not None}
    if only_open:
        params["open"] = "true"
    if attention:
        params["attention"] = "true"
    transactions: list[Mapping[str, Any]] = []
    with connect(ctx) as api:
        while True:
            reply = api.get("/transactions", params)
            if output.as_json:
                output.json(reply.raw)
            transactions += reply.body["transactions"]
            cursor = reply.body["next_cursor"]
            if cursor is None or not everything:
                break
            params["cursor"] = cursor
    if transactions or not output.rich:
        output.table(
            ("created", "transaction", "terminal", "amount", "state"), map(list_row, transactions), whole="transaction"
        )
    else:
        output.line("No payments.")
    if cursor is not None:
        output.note("there are more: --all shows them, --limit more of them")


def list_row(transaction: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a transaction's row in the list; attention stands behind its state."""
    marks = " ".join(f"!{attention['code']}" for attention in transaction["attention"])
    return (
        moment(transaction["created_at"], date=True)[5:16],
        transaction["client_transaction_id"],
        transaction["terminal"],
        money(total(transaction["amount"] or {})),
        f"{state(transaction)} {marks}".strip(),
    )
