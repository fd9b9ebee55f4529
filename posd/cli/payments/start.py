"""Commands that start a payment (`posd charge`, …), built from the table of operations, and `posd await`."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import click

from posd.base.operations import OPERATIONS, OperationType
from posd.cli.app import parameters
from posd.cli.app.completion_words import payments
from posd.cli.app.connection import json_option
from posd.cli.app.output import Output
from posd.cli.app.subject import LEAST_FOR_MONEY, await_end, deadline_in, find, run, terminal_option, timeout_option
from posd.cli.explain.catalogue import chosen, say
from posd.cli.payments.show import PAYMENT
from posd.cli.payments.words import operation
from posd.cli.printing import PRINT_JOB

#: Parts of the amount that have an option -> help of the option.
PARTS: Mapping[str, str] = {
    "subtotal_iva": "Taxed amount, without the tax.",
    "subtotal_iva0": "Untaxed amount (the same as AMOUNT).",
    "iva": "The tax.",
    "tip": "A tip.",
}


def _help(kind: OperationType) -> str:
    """Return the help of the command for an operation type."""
    words = chosen("start")[kind]
    original = say("start", "original", original=words["original"]) if OPERATIONS[kind].originals else ""
    return "\n\n".join(filter(None, (f"{OPERATIONS[kind].purpose}.", original, words["amount"], say("start", "waits"))))


def _command(kind: OperationType) -> click.Command:
    """Return the click command that starts an operation of a type."""

    def start(
        ctx: click.Context,
        /,
        output: Output,
        given_id: uuid.UUID | None,
        no_wait: bool,
        timeout: float | None,
        **given: Any,
    ) -> None:
        request = _request(kind, given)
        if request.get("original"):
            request["original"] = find(ctx, output, request["original"], PAYMENT, least=LEAST_FOR_MONEY)[1]
        draft = {"client_transaction_id": str(given_id or uuid.uuid4()), "type": kind.value}
        deadline = deadline_in(timeout)
        run(ctx, output, PAYMENT, draft, request, deadline=deadline, no_wait=no_wait, fresh=given_id is None)

    command: Callable[..., None] = click.pass_context(start)
    for parameter in reversed(list(_parameters(kind))):
        command = parameter(command)
    return click.command(OPERATIONS[kind].command, help=_help(kind))(command)


def _parameters(kind: OperationType) -> Iterator[Callable[[Callable[..., None]], Callable[..., None]]]:
    another = "Allow the payment although the --sale has another one (split payment)."
    if originals := OPERATIONS[kind].originals:
        offered = payments("phase=final", *sorted(originals), approved=True)
        yield click.argument("original", required=False, shell_complete=offered)
        yield click.option("--reference", type=click.UUID, metavar="UUID", help="Acquirer's reference of ORIGINAL.")
        another = f"Allow the operation although ORIGINAL has another {operation(kind).noun}, or the --sale has one."
    yield click.argument("amount", required=False)
    yield terminal_option
    for name, words in PARTS.items():
        yield click.option(f"--{name.replace('_', '-')}", type=parameters.amount, metavar="AMOUNT", help=words)
    yield click.option(
        "--metadata", multiple=True, callback=parameters.pairs, metavar="KEY=VALUE", help="Till's data. Repeatable."
    )
    yield click.option(
        "--option",
        "options",
        multiple=True,
        callback=parameters.json_pairs,
        metavar="KEY=JSON",
        help="Field of the request to the terminal. Repeatable.",
    )
    yield click.option(
        "--sale", metavar="KEY", help="Key of the sale. posd refuses a second open or approved payment of a sale."
    )
    yield click.option("--additional", "--repeat", is_flag=True, help=f"{another} --repeat is its old name.")
    yield click.option("--id", "given_id", type=click.UUID, metavar="UUID", help="Its id; if omitted, a new one.")
    yield click.option("--no-wait", is_flag=True, help="Only start it (exit code 0 once it runs).")
    yield timeout_option
    yield json_option


def _request(kind: OperationType, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the request. Raise UsageError or BadParameter."""
    reference = given.get("reference")
    words = [word for word in (given.get("original"), given["amount"]) if word is not None]
    if OPERATIONS[kind].originals:
        original, total = parameters.original_and_amount(words, reference)
    else:
        original, total = None, parameters.amount(words[0]) if words else None
    fields = {
        "type": kind.value,
        "amount": _amounts(total, {name: given[name] for name in PARTS}, needed=OPERATIONS[kind].needs_amount),
        "original": original,
        "transaction_reference": reference and str(reference),
        **{name: given[name] for name in ("terminal", "metadata", "options", "sale", "additional")},
    }
    return {name: value for name, value in fields.items() if value not in (None, False, {})}


def _amounts(total: Decimal | None, parts: Mapping[str, Decimal | None], *, needed: bool) -> dict[str, Decimal]:
    if not needed and total is None and not any(part is not None for part in parts.values()):
        return {}
    return parameters.amounts(total, parts)


#: Name -> click command. The meaning of the amount of a re-authorization or a tip is not published. So posd sends it as
#: given. Source: terminal API, Calls to a terminal.
STARTS: Mapping[str, click.Command] = {row.command: _command(kind) for kind, row in OPERATIONS.items()}


@click.command("await")
@click.argument("given_id", metavar="ID", shell_complete=payments("open=true", jobs="open=true"))
@timeout_option
@json_option
@click.pass_context
def await_(ctx: click.Context, output: Output, given_id: str, timeout: float | None) -> None:
    """Wait for the end of a payment or a print job.

    The payment may be a charge, a pre-authorization or any other operation. If it has ended, the command returns at
    once.
    """
    subject, identity = find(ctx, output, given_id, PAYMENT, PRINT_JOB)
    await_end(ctx, output, subject, {subject.key: identity, "type": None}, deadline_in(timeout))
