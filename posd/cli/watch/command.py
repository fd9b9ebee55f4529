"""`posd watch`: the present state of the shop, live."""

import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Group
from rich.live import Live

from posd.cli.app.connection import Api, Problem, Unreachable, connect, json_option
from posd.cli.app.output import Output
from posd.cli.explain.catalogue import say
from posd.cli.watch.state import Shop, WatchState, changes, look, newest, words
from posd.cli.watch.texts import once
from posd.client.documents import PosdError

#: Seconds between two frames of `refresh`.
REFRESH_SECONDS = 2.0


@click.command()
@json_option
@click.pass_context
def watch(ctx: click.Context, output: Output) -> None:
    """Show terminals, open payments and what needs a person, live.

    Keys: arrows select, s shows all about a row, a aborts a payment (asks first), r asks the terminal about it,
    ? helps, q quits. With --json, a line for each change from now on, as in the API's feed, until Ctrl-C.
    """
    with connect(ctx) as api:
        if output.as_json:
            with suppress(KeyboardInterrupt):
                _follow(api, output)
            return
        if not is_terminal():
            raise click.UsageError(say("watch", "needs_a_terminal"))
        try:
            import textual  # noqa: F401
        except ModuleNotFoundError as error:
            raise click.UsageError(say("watch", "needs_textual")) from error
        shop = look(api, Shop())
    _live(Path(api.socket), shop)


def is_terminal() -> bool:
    """Whether there is a keyboard, and a screen with cursor control."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"


def _live(socket: Path, shop: Shop) -> None:
    from posd.cli.watch.app import Watch

    app = Watch(socket, shop, ascii_only=sys.stdout.encoding.lower().replace("-", "") != "utf8")
    app.run(mouse=False)
    if app.fault is not None:
        raise app.fault


def refresh(api: Api, output: Output) -> None:
    """Draw the lists every few seconds until Ctrl-C. Raise Problem or Unreachable without the daemon."""
    if not is_terminal():
        raise click.UsageError(say("watch", "needs_a_terminal"))
    state = WatchState(look(api, Shop()))
    try:
        with Live(console=output.stdout, screen=True, auto_refresh=False) as screen:
            while True:
                now = datetime.now(UTC)
                screen.update(Group(*once(state, now, output.stdout.width)), refresh=True)
                time.sleep(REFRESH_SECONDS)
                try:
                    state.set_shop(look(api, state.shop))
                except (Problem, Unreachable) as error:
                    state.set_unreachable(words(error), datetime.now(UTC), REFRESH_SECONDS)
    except KeyboardInterrupt:
        return


def _follow(api: Api, output: Output) -> None:
    """Write each change from now on as a line. Raise Unreachable if the daemon is missing at the start."""
    is_away = False

    def away(error: PosdError) -> None:
        nonlocal is_away
        if not is_away:
            is_away = True
            output.note(f"posd is away: {words(error)}; still watching")

    def back() -> None:
        nonlocal is_away
        api.get("/version")
        if is_away:
            is_away = False
            output.note("posd is back")

    for _, raw in changes(api, newest(api), away, back):
        output.json_line(raw)
