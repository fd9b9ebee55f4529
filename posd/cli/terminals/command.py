"""`posd terminals`: the terminals that the configuration names, where they are, and why one is not reachable."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from posd.base.text import shown
from posd.base.times import iso
from posd.cli.app import times
from posd.cli.app.connection import Api, Reply, Unreachable, connect, full_ids_option, json_option
from posd.cli.app.lazy import LazyGroup, Targets
from posd.cli.app.output import Output
from posd.cli.app.tables import Id, Layout
from posd.cli.app.times import TimeCell

# Terminals as rows of a table, and what there is to say of each.

COLUMNS = ("serial", "model", "address", "source", "reachable", "payment", "seen")

#: How they are laid out on a terminal.
LAYOUT = Layout(whole="address", cut="serial", extra=("model", "source"))

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

LAPSED = "{serial}: its profile has changed since it was commissioned: posd terminals commission {serial}"

NOTHING = 'No terminals: name them in the configuration ([[terminals]] with serial = "...").'


def plain_row(terminal: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a terminal's row in a pipe: with the words for why it is not reachable, and what else claims to be it."""
    return (*terminal_row(terminal), "; ".join(why(terminal)) or "-")


def terminal_row(terminal: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a terminal's row; one that the configuration does not name is marked."""
    known = terminal.get("in_fleet", True)
    return (
        terminal["serial"] if known else f"{terminal['serial']} (not in the fleet)",
        " ".join(part for part in (terminal["brand"], terminal["model"]) if part) or "-",
        terminal["base_url"] or "no address",
        terminal["source"] or "-",
        REACHABLE[terminal["reachable"]],
        Id(terminal["transaction"] or "-"),
        TimeCell(terminal["last_seen"] or ""),
    )


def why(terminal: Mapping[str, Any]) -> list[str]:
    """Explain why a terminal is not reachable, and where else its serial is announced."""
    words = [terminal["reason"]] if terminal.get("reason") else []
    for claim in terminal.get("claims") or []:
        if not claim["same_device"]:
            because = f": {claim['reason']}" if claim["reason"] else ""
            words.append(f"also announced at {claim['base_url']}, {CLAIM_STATES[claim['state']]}{because}")
    return words


def remarks(items: list[Mapping[str, Any]]) -> list[str]:
    """Return what stands below the table on a terminal."""
    words = [f"{item['serial']}: {words}" for item in items for words in why(item)]
    return [*words, *(LAPSED.format(serial=item["serial"]) for item in items if item.get("commission_lapsed"))]


#: What can be done beside listing: one file a command.
SUBCOMMANDS: Targets = {
    "add": "posd.cli.terminals.pin:add",
    "commission": "posd.cli.terminals.commission:commission",
    "identity": "posd.cli.terminals.identity:identity",
    "pin": "posd.cli.terminals.pin:pin",
}


@click.group(cls=LazyGroup, targets=SUBCOMMANDS, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Also those that only announced themselves (not in the fleet).")
@click.option("--watch", is_flag=True, help="Go on showing them as they change, until Ctrl-C.")
@full_ids_option
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
    output.table(COLUMNS, map(terminal_row, items), LAYOUT)
    for line in remarks(items):
        output.line(line, "yellow")


# `posd terminals --watch`: redrawn on a terminal, a line a change in a pipe, a JSON document a line with --json.

#: seconds between two looks at the list: the daemon looks at the terminals themselves more rarely.
PAUSE_SECONDS = 0.5

#: What differs from one look to the next without anything having changed.
CLOCKS = ("last_seen", "checked_at")


def follow(api: Api, output: Output, query: Mapping[str, str]) -> None:
    """Show the list until Ctrl-C. Raise Unreachable where the daemon is not there at the start."""
    show = _Screen(output) if output.rich else _PipeLines(output)
    try:
        reply = api.get("/terminals", query)
        with show.shown:
            show.take(reply)
            while True:
                time.sleep(PAUSE_SECONDS)
                try:
                    show.take(api.get("/terminals", query))
                except Unreachable as error:
                    show.away(str(error))
    except KeyboardInterrupt:
        return


class _PipeLines:
    """What goes into a pipe: at first a line for each terminal, then one for each that changed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown: dict[str, Any] | None = None
        self._is_away = False
        self.shown = nullcontext()

    def take(self, reply: Reply) -> None:
        if self._is_away:
            self._is_away = False
            self._output.note("posd is back")
        items = reply.body["terminals"]
        now = {item["serial"]: _without_clocks(item) for item in items}
        before, self._shown = self._shown, now
        if before == now:
            return
        if self._output.as_json:
            self._output.json_line(reply.raw.decode())
            return
        if before is None:
            self._output.cells(("time", *COLUMNS, WHY))
        for serial in (before or {}).keys() - now.keys():
            self._line((serial, *["-"] * (len(COLUMNS) - 1), "gone"))
        for item in items:
            if before is None or before.get(item["serial"]) != now[item["serial"]]:
                self._line(plain_row(item))

    def away(self, reason: str) -> None:
        """Print once that the daemon is unreachable."""
        if not self._is_away:
            self._is_away = True
            self._output.note(f"{reason}; still watching")

    def _line(self, row: tuple[str, ...]) -> None:
        self._output.cells((TimeCell(iso(datetime.now(UTC))), *row))


class _Screen:
    """What stands on a terminal: the table as it is now."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.shown = Live(console=output.stdout, auto_refresh=False)

    def take(self, reply: Reply) -> None:
        items = reply.body["terminals"]
        if not items:
            self._draw(Text(NOTHING))
            return
        table = self._output.drawn(COLUMNS, map(terminal_row, items), LAYOUT)
        self._draw(Group(table, *(Text(shown(line), "yellow") for line in remarks(items))))

    def away(self, reason: str) -> None:
        """Print that the daemon is unreachable."""
        self._draw(Text(shown(f"{reason}; still watching"), "yellow"))

    def _draw(self, what: RenderableType) -> None:
        self.shown.update(Group(what, Text(f"{times.moment(datetime.now(UTC))}  Ctrl-C ends it", "dim")), refresh=True)


def _without_clocks(item: Mapping[str, Any]) -> Mapping[str, Any]:
    claims = [{key: value for key, value in claim.items() if key not in CLOCKS} for claim in item.get("claims") or []]
    return {key: value for key, value in item.items() if key not in CLOCKS} | {"claims": claims}
