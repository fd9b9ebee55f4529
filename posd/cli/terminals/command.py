"""`posd terminals`: the terminals that the configuration names, where they are, and why one is not reachable."""

import click

from posd.cli.app.connection import connect, json_option
from posd.cli.app.lazy import LazyGroup, Targets
from posd.cli.app.output import Output
from posd.cli.terminals.rows import COLUMNS, NOTHING, WHY, plain_row, remarks, terminal_row

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
