"""`posd watch`: live view of the shop."""

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
            from posd.cli.watch.app import Watch  # Textual may not be installed
        except ModuleNotFoundError as error:
            raise click.UsageError(chosen("usage")["watch"]["no_textual"]) from error
        shop = look(api, Shop())
    app = Watch(Path(api.socket), shop, ascii_only=sys.stdout.encoding.lower().replace("-", "") != "utf8")
    app.run(mouse=False)
    if app.fault is not None:
        raise app.fault


def is_terminal() -> bool:
    """Return whether there is a keyboard, and a screen with cursor control."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"


def _follow(api: Api, output: Output) -> None:
    """Write each new change of the feed as a line. Raise Unreachable if the daemon does not reply at the start."""
    errors: list[PosdError] = []

    def away(error: PosdError) -> None:
        if not errors:
            output.note(say("watch", "is_away", reason=words(error)))
        errors.append(error)

    def back() -> None:
        api.get("/version")
        if errors:
            output.note(say("watch", "back"))
        errors.clear()

    for _, raw in changes(api, newest(api), away, back):
        output.json(raw.encode())
