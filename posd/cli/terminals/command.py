"""`posd terminals`: list of terminals. `posd terminals identity`: which device is the terminal."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import click

from posd.base.problems import RemedyStep
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Problem, connect, json_option
from posd.cli.app.context import ExitCode
from posd.cli.app.errors import fail
from posd.cli.app.lazy import LazyGroup, Targets
from posd.cli.app.output import Output
from posd.cli.app.tables import Id, Layout
from posd.cli.app.times import TimeCell
from posd.cli.explain.catalogue import named, say, translate
from posd.cli.operate.status import step_lines
from posd.cli.payments.words import check_words

# Terminals as rows of a table, and remarks about them.

COLUMNS = ("serial", "model", "address", "source", "reachable", "payment", "seen")

#: Layout of the table on a screen.
LAYOUT = Layout(whole="address", cut="serial", extra=("model", "source"))

#: Further column in a pipe. On a screen its texts are below the table.
WHY = "why"

REACHABLE = {True: "yes", False: "no", None: "not known"}


def terminal_row(terminal: Mapping[str, Any], word: Callable[[str], str] = str) -> tuple[str, ...]:
    """Return a terminal's row. A terminal outside of the fleet is marked. `word`: function that translates a word."""
    known = terminal.get("in_fleet", True)
    return (
        terminal["serial"] if known else f"{terminal['serial']} ({word('not in the fleet')})",
        " ".join(part for part in (terminal["brand"], terminal["model"]) if part) or "-",
        terminal["base_url"] or word("no address"),
        word(terminal["source"] or "-"),
        word(REACHABLE[terminal["reachable"]]),
        Id(terminal["transaction"] or "-"),
        TimeCell(terminal["last_seen"] or ""),
    )


def why(terminal: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a terminal is unreachable, and the other addresses at which its serial is announced."""
    words = [terminal["reason"]] if terminal.get("reason") else []
    for claim in terminal.get("claims") or []:
        if not claim["same_device"]:
            because = f": {claim['reason']}" if claim["reason"] else ""
            words.append(f"also announced at {claim['base_url']}, {say('terminals', claim['state'])}{because}")
    return words


def remarks(items: list[Mapping[str, Any]]) -> list[str]:
    """Return the texts below the table on a screen."""
    words = [f"{item['serial']}: {translate(words)}" for item in items for words in why(item)]
    return [
        *words,
        *(say("terminals", "lapsed", serial=item["serial"]) for item in items if item.get("commission_lapsed")),
    ]


#: Subcommands of `posd terminals`.
SUBCOMMANDS: Targets = {
    "add": "posd.cli.terminals.pin:add",
    "commission": "posd.cli.terminals.commission:commission",
    "identity": "posd.cli.terminals.command:identity",
    "pin": "posd.cli.terminals.pin:pin",
}


@click.group(cls=LazyGroup, targets=SUBCOMMANDS, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="List announced terminals outside the fleet too.")
@json_option
@click.pass_context
def terminals(ctx: click.Context, output: Output, everything: bool) -> None:
    """List the terminals, their addresses and payments.

    posd first connects to each terminal and closes the connection; it sends no request. If a terminal cannot be
    reached, the list shows why.
    """
    if ctx.invoked_subcommand is not None:
        return
    query = {"all": "true"} if everything else {}
    with connect(ctx) as api, output.busy("looking at the terminals"):
        reply = api.get("/terminals", query | {"check": "true"})
    output.reply(reply, _show_list)


def _show_list(output: Output, document: Mapping[str, Any]) -> None:
    items = document["terminals"]
    if not items and output.rich:
        output.line(say("terminals", "nothing"))
        return
    if not output.rich:
        output.table((*COLUMNS, WHY), [(*terminal_row(item), "; ".join(why(item)) or "-") for item in items])
        return
    output.table(COLUMNS, [terminal_row(item, named) for item in items], LAYOUT)
    for line in remarks(items):
        output.line(line, "yellow")


# `posd terminals identity`: devices that claim to be a terminal, and an operator's decision between them.

CLAIM_COLUMNS = ("address", "source", "since", "proof", "used")


@click.command()
@click.argument("serial", shell_complete=serials)
@click.option("--base-url", metavar="URL", help="Address of the device that is the terminal. Check it first.")
@click.option("--operator", metavar="NAME", help="Name of the operator; posd stores it.")
@click.option("--note", metavar="TEXT", help="Reason; posd stores it.")
@json_option
@click.pass_context
def identity(
    ctx: click.Context, output: Output, serial: str, base_url: str | None, operator: str | None, note: str | None
) -> None:
    """Show which devices claim to be a terminal, with their proof, or record which device it is.

    With --base-url posd calls the terminal at that address from then on. First compare the address with the one on the
    terminal's display: payments go there. Exit code 1: it is not certain which device is the terminal.
    """
    path = f"/terminals/{quote(serial, safe='')}"
    if any(given := (base_url, operator, note)) and not all(given):
        fail(output, say("identity", "together"), ExitCode.USAGE)
    with connect(ctx) as api:
        if base_url:
            said = {"operator": operator, "note": note, "base_url": base_url}
            try:
                reply = api.post(f"{path}/identity", said)
            except Problem as problem:
                fail(output, problem.detail)
        else:
            api.get("/terminals", {"check": "true"})  # posd probes each terminal first
            reply = api.get(path)
        conflict = reply.body["identity"]["conflict"]
        # Only posd's health has the reason of the conflict.
        check = api.get("/health", also={503}).body["checks"].get("identity", {}) if conflict else {}
    output.reply(reply, partial(_show, check=check))
    sys.exit(ExitCode.NOT_DONE if conflict else ExitCode.DONE)


def _show(output: Output, terminal: Mapping[str, Any], check: Mapping[str, Any]) -> None:
    serial, found, url = terminal["serial"], terminal["identity"], terminal["base_url"]
    if not found["claims"]:
        output.line(say("identity", "nothing", serial=serial), "yellow")
        return
    word = named if output.rich else str  # a pipe is for programs
    away = terminal["reachable"] is False
    used = {} if found["conflict"] or away else {url: word("yes")}
    rows = [
        (it["base_url"], word(it["source"]), TimeCell(it["since"]), word(it["proof"]), used.get(it["base_url"], "-"))
        for it in found["claims"]
    ]
    output.table(CLAIM_COLUMNS, rows, Layout(whole="address"))
    if found["conflict"]:
        typed, detail = f"posd terminals identity {serial}", say("identity", "conflict", serial=serial)
        steps = [RemedyStep("", typed)]
        if check.get("status") == "degraded":
            detail, steps = check_words("identity", check)
        output.line(detail, "yellow")
        # The user has just typed this command, so show it with the options that decide the conflict.
        for step in steps:
            command = say("identity", "decide", serial=serial) if step.command == typed else step.command
            output.verbatim(*step_lines(RemedyStep(step.does, command), output.stdout.width))
        return
    proof = "no_tls" if found["proof"] == "none" and str(url).startswith("http:") else found["proof"]
    words = translate(terminal["reason"]) if away else say("identity", proof, serial=serial)
    output.line(f"Terminal {serial}: {words}")
