"""The chain of a transaction: what it derives from and what was derived from it, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from posd.cli.app.api import Api, Problem
from posd.cli.app.output import Output, asked
from posd.cli.payments.words import state


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
