"""`posd watch`: the shop as it is now, and goes on."""

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Group
from rich.live import Live

from posd.cli.app.connection import Api, Problem, Unreachable, connect, json_option
from posd.cli.app.outcome import as_away
from posd.cli.app.output import Output
from posd.cli.watch import source
from posd.cli.watch.source import FIRST_PAUSE, LONGEST_PAUSE, look, words
from posd.cli.watch.state import Shop, State
from posd.cli.watch.texts import once

#: seconds between two frames of `refresh`.
REFRESH_SECONDS = 2.0
NEEDS_A_TERMINAL = (
    "posd watch draws on a terminal, and this is none. Use posd watch --once (the same as text), posd watch --json (a "
    "JSON line for each change), posd list --open or posd status"
)

NEEDS_TEXTUAL = (
    "posd watch needs the package textual: pip install 'posd[watch]'. Without it: posd status --watch (a table that "
    "refreshes) or posd watch --once"
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
    if not (only_once or output.as_json):
        try:
            import textual  # noqa: F401
        except ModuleNotFoundError as error:
            raise click.UsageError(NEEDS_TEXTUAL) from error
    with connect(ctx) as api:
        try:
            if output.as_json:
                _follow(api, output)
                return
            state = State(look(api, Shop()))
            if only_once:
                for line in once(state, datetime.now(UTC), output.stdout.width):
                    output.stdout.print(line, soft_wrap=True) if output.rich else click.echo(line.plain.rstrip())
                return
        except KeyboardInterrupt:
            return
    _live(Path(api.socket), state.shop)


def is_terminal() -> bool:
    """Whether there are keys, and a screen that lines can be put anywhere on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"


def _live(socket: Path, shop: Shop) -> None:
    from posd.cli.watch.app import Watch

    app = Watch(socket, shop, ascii_only=sys.stdout.encoding.lower().replace("-", "") != "utf8")
    app.run(mouse=False)
    if app.fault is not None:
        raise app.fault


def refresh(api: Api, output: Output) -> None:
    """Draw the lists every few seconds until Ctrl-C. Raise Problem or Unreachable where the daemon is not there."""
    if not is_terminal():
        raise click.UsageError(NEEDS_A_TERMINAL)
    state = State(look(api, Shop()))
    try:
        with Live(console=output.stdout, screen=True, auto_refresh=False) as screen:
            while True:
                now = datetime.now(UTC)
                screen.update(Group(*once(state, now, output.stdout.width, brief=True)), refresh=True)
                time.sleep(REFRESH_SECONDS)
                try:
                    state.set_shop(look(api, state.shop))
                except (Problem, Unreachable) as error:
                    state.set_unreachable(words(error), datetime.now(UTC), REFRESH_SECONDS)
    except KeyboardInterrupt:
        return


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
