"""`posd show` and `posd list`: everything about a payment, and payments, the newest first."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from posd.cli.app import parameters
from posd.cli.app.advice import next_step
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Api, Problem, any_id_argument, connect, json_option
from posd.cli.app.output import Output, Pair, asked, inline, moment
from posd.cli.app.subject import show_attention, show_list
from posd.cli.payments.progress import PAYMENT, event_extra, show_outcome
from posd.cli.payments.words import SEARCH_ENTRIES, rows, state

# The chain of a transaction: what it derives from and what was derived from it, as a table.


class Link(NamedTuple):
    """A transaction beside another: what it is to it, its id, and it as the API shows it, or why it cannot be shown."""

    relation: str
    transaction_id: str
    transaction: Mapping[str, Any] | None
    why: str = ""


def links(api: Api, transaction: Mapping[str, Any]) -> list[Link]:
    """Read what a transaction derives from, and what was derived from it, oldest first. One may be missing."""
    named = [("original", transaction["original"])] if transaction["original"] else []
    named += [("derived", each) for each in transaction["derived"]]
    return [_link(api, relation, each) for relation, each in named]


def show_chain(output: Output, chain: Sequence[Link]) -> None:
    """Write the table, if there is one."""
    columns = ("chain", "transaction", "type", "amount", "state", "reference")
    if chain:
        output.table(columns, map(_row, chain), whole="transaction", under="reference")


def _link(api: Api, relation: str, transaction_id: str) -> Link:
    try:
        return Link(relation, transaction_id, api.get(f"/transactions/{transaction_id}").body)
    except Problem as problem:
        return Link(relation, transaction_id, None, "not known here" if problem.code == "not_found" else problem.detail)


def _row(link: Link) -> tuple[str, str, str, str, str, str]:
    if link.transaction is None:
        return link.relation, link.transaction_id, "-", "-", link.why, "-"
    transaction = link.transaction
    outcome = transaction["outcome"] or {}
    return (
        link.relation,
        link.transaction_id,
        transaction["type"] or "-",
        asked(transaction["amount"]) or "-",
        state(transaction),
        outcome.get("transaction_reference") or "-",
    )


@click.command()
@any_id_argument
@click.option("--history", "only_history", is_flag=True, help="Only what happened, in order.")
@json_option
@click.pass_context
def show(ctx: click.Context, output: Output, transaction_id: uuid.UUID, only_history: bool) -> None:
    """Show everything about a payment.

    That is its request and state, what it derives from and what was derived from it, its outcome and what proves it,
    its attention with what to do, and all that happened, with who did it. With --json it is the payment alone, or its
    history alone with --history.
    """
    path = f"/transactions/{transaction_id}"
    with connect(ctx) as api:
        if output.as_json:
            output.json(api.get(f"{path}/history" if only_history else path).raw)
            return
        transaction = None if only_history else api.get(path).body
        chain = links(api, transaction) if transaction else []
        happened = api.get(f"{path}/history").body["history"]
        events = api.get(f"{path}/events").body["events"]
    if transaction is not None:
        show_transaction(output, transaction, chain)
    extras = {item["seq"]: event_extra(item["event"]) for item in events}
    output.table(("time", "what", "details"), rows(happened, extras))


def show_transaction(output: Output, transaction: Mapping[str, Any], chain: Sequence[Link]) -> None:
    """Write a transaction's fields, its chain, its outcome, and what a person should look at."""
    output.panel("transaction", transaction_pairs(transaction), "cyan")
    show_chain(output, chain)
    if transaction["outcome"] is not None:
        show_outcome(output, transaction)
    show_attention(output, PAYMENT, transaction)


def transaction_pairs(transaction: Mapping[str, Any]) -> list[Pair]:
    """Return the fields of a transaction but its chain, outcome and attention, label and text, empty ones left out."""
    result: list[Pair] = []
    for name, value in transaction.items():
        match name:
            case "outcome" | "attention" | "original" | "derived":
                continue
            case "amount" if value:
                text = f"{asked(value)}  ({inline(value)})"
            case "last_search" if value:
                words = SEARCH_ENTRIES.get(value["result"], value["result"])
                text = f"{moment(value['at'], date=True)}  {words}"
            case "next_step":
                text = f"{value}: {next_step(transaction).words}"
            case "created_at" | "updated_at":
                text = moment(value, date=True)
            case _:
                text = inline(value)
        if text:
            result.append((name, text))
    return result


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
    filters = {"limit": limit, "open": only_open, "attention": attention, **given}
    show_list(ctx, output, PAYMENT, filters, everything=everything)
