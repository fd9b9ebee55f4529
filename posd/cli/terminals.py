"""`posd terminals`: the terminals that the configuration names, and where they are."""

from collections.abc import Mapping
from typing import Any

import click

from posd.cli.connection import connect, json_option
from posd.cli.output import Output, moment

#: characters of a payment's id in the table on a terminal, which has no room for more.
SHORT_ID = 8


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also those that only announced themselves (not in the fleet).")
@json_option
@click.pass_context
def terminals(ctx: click.Context, output: Output, everything: bool) -> None:
    """List the terminals, their addresses and payments."""
    with connect(ctx) as api:
        reply = api.get("/terminals", {"all": "true"} if everything else None)
    if output.as_json:
        output.json(reply.raw)
        return
    rows = [terminal_row(terminal, short=output.rich) for terminal in reply.body["terminals"]]
    if not rows and output.rich:
        output.line('No terminals: name them in the configuration ([[terminals]] with serial = "...").')
        return
    output.table(("serial", "model", "address", "source", "reachable", "payment"), rows, whole="address")


def terminal_row(terminal: Mapping[str, Any], *, short: bool) -> tuple[str, ...]:
    """Return a terminal's row; one that the configuration does not name is marked."""
    known = terminal.get("in_fleet", True)
    payment = terminal["transaction"] or "-"
    return (
        terminal["serial"] if known else f"{terminal['serial']} (not in the fleet)",
        " ".join(part for part in (terminal["brand"], terminal["model"]) if part) or "-",
        terminal["base_url"] or "no address",
        terminal["source"] or "-",
        reachable_text(terminal["reachable"], terminal["last_seen"]),
        payment[:SHORT_ID] if short else payment,
    )


def reachable_text(reachable: bool | None, last_seen: str | None) -> str:
    """Say whether the terminal answers, and else when it last did."""
    if reachable:
        return "yes"
    word = "not known" if reachable is None else "no"
    return f"{word}, seen {moment(last_seen)}" if last_seen else word
