"""`posd charge`, `preauth`, `reauth`, `capture`, `tip`, `void` and `refund`, made from one table, and `posd await`."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import click

from posd.base.operations import OPERATIONS, OperationType
from posd.cli.app import parameters
from posd.cli.app.completion_words import payments
from posd.cli.app.connection import id_argument, json_option
from posd.cli.app.output import Output
from posd.cli.app.subject import LEAST_FOR_MONEY, await_end, deadline_in, find, run, terminal_option, timeout_option
from posd.cli.explain.catalogue import chosen, say
from posd.cli.payments.show import PAYMENT
from posd.cli.payments.words import operation

#: Parts of the amount with an option of their own -> its help.
PARTS: Mapping[str, str] = {
    "subtotal_iva": "Taxed amount, without the tax.",
    "subtotal_iva0": "Untaxed amount (the same as AMOUNT).",
    "iva": "The tax.",
    "tip": "A tip.",
}


class StartCommand(NamedTuple):
    """Command that starts something: its name, and the `type` of its request."""

    name: str
    type: str
    needs_amount: bool

    @property
    def words(self) -> Mapping[str, str]:
        """Texts of the catalogue about the operation: what it does, and what ORIGINAL and AMOUNT mean."""
        found: Mapping[str, str] = chosen("start")[self.type]
        return found

    @property
    def original(self) -> str:
        """Meaning of ORIGINAL; empty if it begins a chain."""
        return self.words.get("original", "")

    @property
    def help(self) -> str:
        """The text of --help."""
        original = say("start", "original", original=self.original) if self.original else ""
        return "\n\n".join(filter(None, (self.words["does"], original, self.words["amount"], say("start", "waits"))))


#: type -> its command, if that has another name.
NAMES = {"pre-auth": "preauth", "re-auth": "reauth", "post-tip": "tip"}
#: The meaning of a re-authorization's or a tip's amount is not published, so it is sent as given. Source: terminal API,
#: Calls to a terminal.
STARTS = tuple(
    StartCommand(NAMES.get(kind, kind.value), kind.value, OPERATIONS[kind].needs_amount) for kind in OperationType
)
TYPES = tuple(row.type for row in STARTS)


def _command(row: StartCommand) -> click.Command:
    """Make the click command of one row of the table."""

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
    another = "Allow it although the --sale has another payment (split payment)."
    if row.original:
        offered = payments("phase=final", *sorted(OPERATIONS[OperationType(row.type)].originals), approved=True)
        yield click.argument("original", required=False, shell_complete=offered)
        yield click.option("--reference", type=click.UUID, metavar="UUID", help="Instead of ORIGINAL: its reference.")
        another = f"Allow it although ORIGINAL has another {operation(row.type).noun}, or the --sale has one."
    yield click.argument("amount", required=False)
    yield terminal_option
    for name, words in PARTS.items():
        yield click.option(f"--{name.replace('_', '-')}", type=parameters.amount, metavar="AMOUNT", help=words)
    yield click.option(
        "--metadata", multiple=True, callback=parameters.pairs, metavar="KEY=VALUE", help="Data to store. Repeatable."
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
        "--sale", metavar="KEY", help="Key of the sale; refused while it has another open or approved payment."
    )
    yield click.option("--additional", "--repeat", is_flag=True, help=f"{another} --repeat is its old name.")
    yield click.option("--id", "given_id", type=click.UUID, metavar="UUID", help="Its id; if omitted, a new one.")
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

    The payment may be a charge, a pre-authorization or any other operation. For an ended payment the command returns at
    once.
    """
    _, transaction_id = find(ctx, output, given_id, PAYMENT)
    draft = {"client_transaction_id": transaction_id, "type": None}
    await_end(ctx, output, PAYMENT, draft, deadline_in(timeout))
