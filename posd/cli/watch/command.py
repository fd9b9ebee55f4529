"""`posd watch`: the present state of the shop, live."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import click

from posd.cli.app.connection import Api, connect, json_option
from posd.cli.app.output import Output
from posd.cli.app.parameters import check_usage
from posd.cli.explain.catalogue import chosen, say
from posd.cli.watch.state import Shop, changes, look, newest, words
from posd.client.documents import PosdError


@click.command()
@json_option
@click.pass_context
def watch(ctx: click.Context, output: Output) -> None:
    """Show terminals, open payments and what an operator should check, live.

    Keys: arrows select, s shows all about a row, a aborts a payment (asks first), r asks the terminal about it, ?
    helps, q quits. With --json, it prints each new change on a line, as in the API's feed, until Ctrl-C.
    """
    with connect(ctx) as api:
        if output.as_json:
            with suppress(KeyboardInterrupt):
                _follow(api, output)
            return
        check_usage("watch", no_terminal=not is_terminal())
        try:
            import textual  # noqa: F401
        except ModuleNotFoundError as error:
            raise click.UsageError(chosen("usage")["watch"]["no_textual"]) from error
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


def _follow(api: Api, output: Output) -> None:
    """Write each change from now on as a line. Raise Unreachable if the daemon is missing at the start."""
    is_away = False

    def away(error: PosdError) -> None:
        nonlocal is_away
        if not is_away:
            is_away = True
            output.note(say("watch", "is_away", reason=words(error)))

    def back() -> None:
        nonlocal is_away
        api.get("/version")
        if is_away:
            is_away = False
            output.note("posd is back")

    for _, raw in changes(api, newest(api), away, back):
        output.json_line(raw)
