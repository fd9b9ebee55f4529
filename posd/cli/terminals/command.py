"""`posd terminals`: the terminals that the configuration names, where they are, and why one is not reachable."""

from collections.abc import Mapping
from typing import Any

import click

from posd.cli.app.connection import connect, json_option
from posd.cli.app.lazy import LazyGroup, Targets
from posd.cli.app.output import Output, moment

#: characters of a payment's id in the table on a terminal, which has no room for more.
SHORT_ID = 8

COLUMNS = ("serial", "model", "address", "source", "reachable", "payment", "seen")
#: A further column in a pipe; on a terminal these words stand below the table.
WHY = "why"

REACHABLE = {True: "yes", False: "no", None: "not known"}

#: state of another address under the serial -> what it means.
CLAIM_STATES: Mapping[str, str] = {
    "answers": "which answers and is trusted as well",
    "unchecked": "where nobody has looked yet",
    "silent": "which does not answer",
    "refused": "which is not trusted",
}

NOTHING = 'No terminals: name them in the configuration ([[terminals]] with serial = "...").'

#: What can be done beside listing: one file a command.
SUBCOMMANDS: Targets = {
    "find": "posd.cli.terminals.find:find",
    "pin": "posd.cli.terminals.pin:pin",
}


@click.group(cls=LazyGroup, targets=SUBCOMMANDS, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Also those that only announced themselves (not in the fleet).")
@click.option("--watch", is_flag=True, help="Go on showing them as they change, until Ctrl-C.")
@json_option
@click.pass_context
def terminals(ctx: click.Context, output: Output, everything: bool, watch: bool) -> None:
    """List the terminals, their addresses and payments.

    Each is looked at first: posd connects to it and closes again, no request is sent. Where it cannot be reached, the
    list says why.
    """
    if ctx.invoked_subcommand is not None:
        return
    query = {"all": "true"} if everything else {}
    with connect(ctx) as api:
        if watch:
            from posd.cli.terminals.watch import follow

            follow(api, output, query)
            return
        with output.busy("looking at the terminals"):
            reply = api.get("/terminals", query | {"check": "true"})
    if output.as_json:
        output.json(reply.raw)
        return
    items = reply.body["terminals"]
    if not items and output.rich:
        output.line(NOTHING)
        return
    if not output.rich:
        output.table((*COLUMNS, WHY), [plain_row(item) for item in items])
        return
    output.table(COLUMNS, [terminal_row(item, short=True) for item in items], whole="address")
    for line in remarks(items):
        output.line(line, "yellow")


def plain_row(terminal: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a terminal's row in a pipe: with the words for why it is not reachable, and who else claims to be it."""
    return (*terminal_row(terminal, short=False), "; ".join(why(terminal)) or "-")


def terminal_row(terminal: Mapping[str, Any], *, short: bool) -> tuple[str, ...]:
    """Return a terminal's row; one that the configuration does not name is marked."""
    known = terminal.get("in_fleet", True)
    payment = terminal["transaction"] or "-"
    return (
        terminal["serial"] if known else f"{terminal['serial']} (not in the fleet)",
        " ".join(part for part in (terminal["brand"], terminal["model"]) if part) or "-",
        terminal["base_url"] or "no address",
        terminal["source"] or "-",
        REACHABLE[terminal["reachable"]],
        payment[:SHORT_ID] if short else payment,
        moment(terminal["last_seen"]),
    )


def why(terminal: Mapping[str, Any]) -> list[str]:
    """Say why a terminal is not reachable, and where else something announces itself under its serial."""
    words = [terminal["reason"]] if terminal.get("reason") else []
    for claim in terminal.get("claims") or []:
        if not claim["same_device"]:
            because = f": {claim['reason']}" if claim["reason"] else ""
            words.append(f"also announced at {claim['base_url']}, {CLAIM_STATES[claim['state']]}{because}")
    return words


def remarks(items: list[Mapping[str, Any]]) -> list[str]:
    """Return what stands below the table on a terminal."""
    return [f"{item['serial']}: {words}" for item in items for words in why(item)]
