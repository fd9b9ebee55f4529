"""`posd list`: payments, the newest first, and what to do about those that a person should look at."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from posd.cli.app import parameters
from posd.cli.app.advice import Advice, attention_advice
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Api, connect, json_option
from posd.cli.app.output import Output, asked, moment
from posd.cli.payments.progress import show_advice
from posd.cli.payments.words import state

MORE = "there are more: --all shows them, --limit more of them"

#: payments for which the commands of one attention are written out: the newest; beyond it they repeat themselves.
COMMANDS_FOR = 5


@click.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only those that are not final.")
@click.option("--phase", type=click.Choice(["starting", "in_doubt", "active", "final"]), help="Only this phase.")
@click.option("--terminal", metavar="SERIAL", shell_complete=serials, help="Only this terminal.")
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
    with connect(ctx) as api:
        transactions, more = read_pages(api, output, "transactions", params, everything=everything)
    if transactions or not output.rich:
        output.table(
            ("created", "transaction", "terminal", "type", "amount", "state"),
            (list_row(transaction, narrow=output.narrow) for transaction in transactions),
            whole="transaction",
            under="terminal",
        )
    else:
        output.line("No payments.")
    if attention:
        show_what_to_do(
            output,
            (
                (item["code"], attention_advice(item["code"], transaction), transaction["client_transaction_id"])
                for transaction in transactions
                for item in transaction["attention"]
            ),
        )
    if more:
        output.note(MORE)


def read_pages(
    api: Api, output: Output, name: str, params: Mapping[str, str], *, everything: bool
) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the items of the list `name`, one page or `everything`, and whether there are more.

    With --json each page is written as it comes.
    """
    items: list[Mapping[str, Any]] = []
    page = dict(params)
    while True:
        reply = api.get(f"/{name.replace('_', '-')}", page)
        if output.as_json:
            output.json(reply.raw)
        items += reply.body[name]
        cursor = reply.body["next_cursor"]
        if cursor is None or not everything:
            return items, cursor is not None
        page["cursor"] = cursor


def list_row(transaction: Mapping[str, Any], *, narrow: bool) -> tuple[str, ...]:
    """Return a transaction's row in the list; attention stands behind its state.

    `narrow` puts the time below the date: the row has a second line anyway, for the terminal.
    """
    marks = " ".join(f"!{attention['code']}" for attention in transaction["attention"])
    return (
        moment(transaction["created_at"], date=True)[5:16].replace(" ", "\n" if narrow else " "),
        transaction["client_transaction_id"],
        transaction["terminal"],
        transaction["type"] or "-",
        asked(transaction["amount"]) or "-",
        f"{state(transaction)} {marks}".strip(),
    )


def show_what_to_do(output: Output, marks: Iterable[tuple[str, Advice, str]]) -> None:
    """Write for each attention, once for those of which the same is true, what to do and to type.

    A mark is an attention's code, its advice, and the id of what it is about.
    """
    concerned: dict[tuple[str, Advice], list[str]] = {}
    for code, advice, identity in marks:
        concerned.setdefault((code, advice), []).append(identity)
    for (code, advice), ids in concerned.items():
        output.line()
        output.line(code, "yellow")
        show_advice(output, advice, ids[:COMMANDS_FOR])
        if len(ids) > COMMANDS_FOR:
            output.line(f"and so for {len(ids) - COMMANDS_FOR} more, with their ids", indent=4)
