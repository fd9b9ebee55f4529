"""`posd watch`: the shop as it is now, and goes on."""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from posd.cli.app.connection import Api, Problem, Unreachable, connect, json_option
from posd.cli.app.outcome import as_away
from posd.cli.app.output import Output
from posd.cli.watch import source
from posd.cli.watch.render import View, once
from posd.cli.watch.screen import ASCII, UNICODE, Glyphs, styled
from posd.cli.watch.source import FIRST_PAUSE, LONGEST_PAUSE, look
from posd.cli.watch.state import WINDOW, Shop, State, Ui

NEEDS_A_TERMINAL = (
    "posd watch draws on a terminal, and this is none. Use posd watch --once (the same as text), posd watch --json (a "
    "JSON line for each change), posd list --open or posd status"
)


@click.command()
@click.option("--once", "only_once", is_flag=True, help="Write everything once, as text, and end.")
@json_option
@click.pass_context
def watch(ctx: click.Context, output: Output, only_once: bool) -> None:
    """Show terminals, open payments and what needs a person, live.

    Keys: arrows select, s shows all about a row, a aborts a payment (asks first), r asks the terminal how it stands,
    ? helps, q quits. With --json, a line for each change from now on, as in the API's feed, until Ctrl-C.
    """
    if only_once and output.as_json:
        raise click.UsageError("--once and --json exclude each other: for JSON of the moment use posd status --json")
    if not (only_once or output.as_json or is_terminal()):
        raise click.UsageError(NEEDS_A_TERMINAL)
    with connect(ctx) as api:
        try:
            if output.as_json:
                _follow(api, output)
                return
            shop = look(api, Shop())
            if only_once:
                _write(api, output, shop)
                return
        except KeyboardInterrupt:
            return
    asyncio.run(_live(Path(api.socket), shop))


def is_terminal() -> bool:
    """Whether there are keys, and a screen that lines can be put anywhere on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def glyphs() -> Glyphs:
    """Return what the locale can write."""
    return UNICODE if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else ASCII


async def _live(socket: Path, shop: Shop) -> None:
    # Here, because it knows terminals, which not every system that reads --json has.
    from posd.cli.watch.app import App

    await App(socket, shop, glyphs(), colour=not os.environ.get("NO_COLOR")).run()


def _write(api: Api, output: Output, shop: Shop) -> None:
    now = datetime.now(UTC)
    state = State(shop)
    for page in source.past(api, source.begin(api, now - WINDOW)):
        for change in page:
            state.rates.take(change)
    colour = output.rich and not os.environ.get("NO_COLOR")
    for line in once(View(state, Ui(), now, glyphs()), output.stdout.width):
        click.echo(styled(line, colour=colour).rstrip() if output.rich else "".join(text for text, _ in line).rstrip())


def _follow(api: Api, output: Output) -> None:
    """Write each change from now on in a line. Raise Unreachable where the daemon is not there at the start."""
    place, pause, away = source.newest(api), FIRST_PAUSE, False
    while True:
        try:
            if not source.holds(api, place):
                place = source.newest(api)
            if away:
                output.note("posd is back")
            pause, away = FIRST_PAUSE, False
            for change, raw in source.live(api, place):
                output.json_line(raw)
                place = change["seq"]
        except (Unreachable, Problem) as error:
            gone = as_away(error)
            if gone is None:
                raise
            if not away:
                away = True
                output.note(f"posd is away: {gone.reason}; still watching")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
