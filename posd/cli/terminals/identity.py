"""`posd terminals identity`: who claims to be a terminal, and a person's word about which device it is."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import click

from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Problem, connect, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.app.tables import Layout
from posd.cli.app.times import TimeCell
from posd.cli.explain.catalogue import say
from posd.cli.tls.settings import fail

COLUMNS = ("address", "source", "since", "proof", "used")


@click.command()
@click.argument("serial", shell_complete=serials)
@click.option("--base-url", metavar="URL", help="The address of the device that is the terminal: you have looked.")
@click.option("--operator", metavar="NAME", help="Who says so; it is kept.")
@click.option("--note", metavar="TEXT", help="Why; it is kept.")
@json_option
@click.pass_context
def identity(
    ctx: click.Context, output: Output, serial: str, base_url: str | None, operator: str | None, note: str | None
) -> None:
    """Show who claims to be a terminal, and what proves it; or say which of them it is.

    With --base-url posd calls the terminal at that address from then on. Compare the address with the one that the
    terminal itself shows before you say so: payments go there. Exit code 1: it is not sure which device is the
    terminal.
    """
    path = f"/terminals/{quote(serial, safe='')}"
    given = (base_url, operator, note)
    if any(given) and not all(given):
        fail(output, "nothing was decided: give --base-url, --operator and --note together", ExitCode.USAGE)
    with connect(ctx) as api:
        if base_url:
            said = {"operator": operator, "note": note, "base_url": base_url}
            try:
                reply = api.post(f"{path}/identity", said)
            except Problem as problem:
                fail(output, problem.detail)
        else:
            api.get("/terminals", {"check": "true"})  # each is looked at first
            reply = api.get(path)
        terminal = reply.body
        conflict = terminal["identity"]["conflict"]
        # Of several terminals it says each; the document of one does not say why.
        check = api.get("/health", also={503}).body["checks"].get("identity", {}) if conflict else {}
    output.reply(reply, partial(_show, check=check))
    sys.exit(ExitCode.NOT_DONE if conflict else ExitCode.DONE)


def _show(output: Output, terminal: Mapping[str, Any], check: Mapping[str, Any]) -> None:
    serial, found = terminal["serial"], terminal["identity"]
    if not found["claims"]:
        output.line(say("identity", "nothing", serial=serial), "yellow")
        return
    rows = [
        (
            claim["base_url"],
            claim["source"],
            TimeCell(claim["since"]),
            claim["proof"],
            "yes" if claim["base_url"] == terminal["base_url"] and not found["conflict"] else "-",
        )
        for claim in found["claims"]
    ]
    output.table(COLUMNS, rows, Layout(whole="address"))
    if found["conflict"]:
        if check.get("status") == "degraded":
            output.line(f"{check['detail']}. {check['todo']}", "yellow")
        output.line(say("identity", "conflict", serial=serial), "yellow")
        output.line(say("identity", "decide", serial=serial))
    else:
        output.line(f"Terminal {serial}: {say('identity', found['proof'], serial=serial)}")
