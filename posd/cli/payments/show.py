"""`posd show`: everything about a payment."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import click

from posd.cli.app.advice import next_step
from posd.cli.app.connection import any_id_argument, connect, json_option
from posd.cli.app.output import Output, Pair, asked, inline, moment
from posd.cli.payments import history
from posd.cli.payments.chain import Link, links, show_chain
from posd.cli.payments.progress import event_extra, show_attention, show_outcome
from posd.cli.payments.words import SEARCH_ENTRIES


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
    output.table(("time", "what", "details"), history.rows(happened, extras))


def show_transaction(output: Output, transaction: Mapping[str, Any], chain: Sequence[Link]) -> None:
    """Write a transaction's fields, its chain, its outcome, and what a person should look at."""
    output.panel("transaction", transaction_pairs(transaction), "cyan")
    show_chain(output, chain)
    if transaction["outcome"] is not None:
        show_outcome(output, transaction)
    show_attention(output, transaction)


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
