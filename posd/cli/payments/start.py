"""`posd charge`, `preauth`, `reauth`, `capture`, `tip`, `void` and `refund`, made from one table, and `posd await`."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import click

from posd.cli.app import parameters
from posd.cli.app.completion_words import Complete, payments
from posd.cli.app.connection import id_argument, json_option
from posd.cli.app.find_id import LEAST_FOR_MONEY, find
from posd.cli.app.output import Output
from posd.cli.app.subject import await_end, deadline_in, run, terminal_option, timeout_option
from posd.cli.payments.show import PAYMENT
from posd.cli.payments.words import operation

#: parts of the amount that have an option of their own -> its help.
PARTS: Mapping[str, str] = {
    "subtotal_iva": "What is taxed, without the tax.",
    "subtotal_iva0": "What is not taxed (the same as AMOUNT).",
    "iva": "The tax.",
    "tip": "A tip.",
}

#: type -> what a shell offers for ORIGINAL.
ORIGINALS: Mapping[str, Complete] = {
    "re-auth": payments("phase=final", "pre-auth", approved=True),
    "capture": payments("phase=final", "pre-auth", approved=True),
    "post-tip": payments("phase=final", "charge", "capture", approved=True),
    "refund": payments("phase=final", "charge", "capture", approved=True),
    "void": payments("phase=final", "charge", "capture", "pre-auth", approved=True),
}

#: paragraphs of the help.
WAITS = (
    "The command waits for the outcome. Repeated with the same --id and all else the same it never starts it a second "
    "time: it joins the first."
)
BY_REFERENCE = (
    "One that posd does not know is named by --reference instead, with the reference that the acquirer gave it."
)
UNTAXED = "AMOUNT is a total without tax; with tax it is, for example, --subtotal-iva 10.00 --iva 1.20."


class StartCommand(NamedTuple):
    """A command that starts something: its name, the `type` of its request, and the paragraphs of its help.

    `original` says what ORIGINAL is; empty where it begins a chain.
    """

    name: str
    type: str
    does: str
    original: str = ""
    amount: str = UNTAXED
    needs_amount: bool = True

    @property
    def help(self) -> str:
        """The text of --help."""
        original = f"ORIGINAL is the id of {self.original}. {BY_REFERENCE}" if self.original else ""
        return "\n\n".join(filter(None, (self.does, original, self.amount, WAITS)))


#: What the amount of a re-authorization or a tip means to the terminal is not published: it goes as given.
#: Source: terminal API, Calls to a terminal.
STARTS = (
    StartCommand("charge", "charge", "Charge a card."),
    StartCommand("preauth", "pre-auth", "Reserve an amount on a card, to capture it later."),
    StartCommand(
        "reauth",
        "re-auth",
        "Change what a pre-authorization reserves.",
        original="the approved pre-authorization",
        amount=f"{UNTAXED} Whether that is the new total or what is added is for the terminal to say.",
    ),
    StartCommand(
        "capture",
        "capture",
        "Charge what a pre-authorization reserves.",
        original="the approved pre-authorization, whether or not it was re-authorized since",
    ),
    StartCommand(
        "tip",
        "post-tip",
        "Add a tip to an approved charge or capture.",
        original="the approved charge or capture",
        amount="AMOUNT is the tip, and is sent as an amount without tax; with --tip it is sent as a tip instead.",
    ),
    StartCommand(
        "void",
        "void",
        "Reverse a charge, a capture or a pre-authorization.",
        original="what is to be reversed: an approved charge, capture or pre-authorization",
        amount="No amount is needed; one that is given has to be all that was charged.",
        needs_amount=False,
    ),
    StartCommand(
        "refund",
        "refund",
        "Give back a charge or a capture, or a part of it.",
        original="what is to be given back: an approved charge or capture",
        amount="Without an amount all of it is given back. Several refunds (--additional) are together at most that.",
        needs_amount=False,
    ),
)
TYPES = tuple(row.type for row in STARTS)


def _command(row: StartCommand) -> click.Command:
    """Make the command of a row."""

    def start(
        ctx: click.Context,
        /,
        output: Output,
        given_id: uuid.UUID | None,
        no_wait: bool,
        timeout: float | None,
        **given: Any,
    ) -> None:
        request = _request(row, given)
        if request.get("original"):
            request["original"] = find(ctx, output, request["original"], PAYMENT, least=LEAST_FOR_MONEY)[1]
        draft = {"client_transaction_id": str(given_id or uuid.uuid4()), "type": row.type}
        deadline = deadline_in(timeout)
        run(ctx, output, PAYMENT, draft, request, deadline=deadline, no_wait=no_wait, fresh=given_id is None)

    command: Callable[..., None] = click.pass_context(start)
    for parameter in reversed(list(_parameters(row))):
        command = parameter(command)
    return click.command(row.name, help=row.help)(command)


def _parameters(row: StartCommand) -> Iterator[Callable[[Callable[..., None]], Callable[..., None]]]:
    another = "Although the --sale has another (split payment)."
    if row.original:
        yield click.argument("original", required=False, shell_complete=ORIGINALS[row.type])
        yield click.option("--reference", type=click.UUID, metavar="UUID", help="Instead of ORIGINAL: its reference.")
        another = f"Although ORIGINAL has another {operation(row.type).noun}, or the --sale has one."
    yield click.argument("amount", required=False)
    yield terminal_option
    for name, words in PARTS.items():
        yield click.option(f"--{name.replace('_', '-')}", type=parameters.amount, metavar="AMOUNT", help=words)
    yield click.option(
        "--metadata", multiple=True, callback=parameters.pairs, metavar="KEY=VALUE", help="Kept with it. Repeatable."
    )
    yield click.option(
        "--option",
        "options",
        multiple=True,
        callback=parameters.json_pairs,
        metavar="KEY=JSON",
        help="Sent as is. Repeatable.",
    )
    yield click.option(
        "--sale", metavar="KEY", help="What is being paid; refused while it has another open or approved payment."
    )
    yield click.option("--additional", "--repeat", is_flag=True, help=f"{another} --repeat is its old name.")
    yield click.option("--id", "given_id", type=click.UUID, metavar="UUID", help="Its id; made here where left out.")
    yield click.option("--no-wait", is_flag=True, help="Only start it (exit code 0 once it runs).")
    yield timeout_option
    yield json_option


def _request(row: StartCommand, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the request. Raise UsageError or BadParameter."""
    reference = given.get("reference")
    words = [word for word in (given.get("original"), given["amount"]) if word is not None]
    if row.original:
        original, total = parameters.original_and_amount(words, reference)
    else:
        original, total = None, parameters.amount(words[0]) if words else None
    fields = {
        "type": row.type,
        "amount": _amounts(row, total, {name: given[name] for name in PARTS}),
        "original": original,
        "transaction_reference": reference and str(reference),
        **{name: given[name] for name in ("terminal", "metadata", "options", "sale", "additional")},
    }
    return {name: value for name, value in fields.items() if value not in (None, False, {})}


def _amounts(row: StartCommand, total: Decimal | None, parts: Mapping[str, Decimal | None]) -> dict[str, Decimal]:
    if not row.needs_amount and total is None and not any(part is not None for part in parts.values()):
        return {}
    return parameters.amounts(total, parts)


charge, preauth, reauth, capture, tip, void, refund = map(_command, STARTS)


@click.command("await")
@id_argument
@timeout_option
@json_option
@click.pass_context
def await_(ctx: click.Context, output: Output, given_id: str, timeout: float | None) -> None:
    """Wait for a payment's outcome.

    That of a charge, a pre-authorization or whatever else was started. One that is over answers at once.
    """
    _, transaction_id = find(ctx, output, given_id, PAYMENT)
    draft = {"client_transaction_id": transaction_id, "type": None}
    await_end(ctx, output, PAYMENT, draft, deadline_in(timeout))
