"""`posd terminals --watch`: redrawn on a terminal, a line a change in a pipe, a JSON document a line with --json."""

import time
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from posd.cli.app.connection import Api, Reply, Unreachable
from posd.cli.app.output import Output, drawn, escaped
from posd.cli.terminals.rows import COLUMNS, NOTHING, WHY, plain_row, remarks, terminal_row

#: seconds between two looks at the list: the daemon looks at the terminals themselves more rarely.
PAUSE_SECONDS = 0.5

#: What differs from one look to the next without anything having changed.
CLOCKS = ("last_seen", "checked_at")


def follow(api: Api, output: Output, query: Mapping[str, str]) -> None:
    """Show the list until Ctrl-C. Raise Unreachable where the daemon is not there at the start."""
    show = _Screen(output) if output.rich else _Lines(output)
    try:
        reply = api.get("/terminals", query)
        with show:
            show.take(reply)
            while True:
                time.sleep(PAUSE_SECONDS)
                try:
                    show.take(api.get("/terminals", query))
                except Unreachable as error:
                    show.away(str(error))
    except KeyboardInterrupt:
        return


class _Lines:
    """What goes into a pipe: at first a line for each terminal, then one for each that changed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown: dict[str, Any] | None = None
        self._is_away = False

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return

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
            click.echo(reply.raw)
            return
        if before is None:
            self._output.line("\t".join(("time", *COLUMNS, WHY)))
        for serial in (before or {}).keys() - now.keys():
            self._line((serial, *["-"] * (len(COLUMNS) - 1), "gone"))
        for item in items:
            if before is None or before.get(item["serial"]) != now[item["serial"]]:
                self._line(plain_row(item))

    def away(self, reason: str) -> None:
        """Say once that the daemon cannot be reached."""
        if not self._is_away:
            self._is_away = True
            self._output.note(f"{reason}; still watching")

    def _line(self, row: tuple[str, ...]) -> None:
        cells = (time.strftime("%H:%M:%S"), *row)
        self._output.line("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells))


class _Screen:
    """What stands on a terminal: the table as it is now."""

    def __init__(self, output: Output) -> None:
        self._live = Live(console=output.stdout, auto_refresh=False)

    def __enter__(self) -> "_Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def take(self, reply: Reply) -> None:
        items = reply.body["terminals"]
        if not items:
            self._draw(Text(NOTHING))
            return
        table = drawn(COLUMNS, [terminal_row(item, short=True) for item in items], whole="address")
        self._draw(Group(table, *(Text(escaped(line), "yellow") for line in remarks(items))))

    def away(self, reason: str) -> None:
        """Say that the daemon cannot be reached."""
        self._draw(Text(escaped(f"{reason}; still watching"), "yellow"))

    def _draw(self, what: RenderableType) -> None:
        self._live.update(Group(what, Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends it", "dim")), refresh=True)


def _without_clocks(item: Mapping[str, Any]) -> Mapping[str, Any]:
    claims = [{key: value for key, value in claim.items() if key not in CLOCKS} for claim in item.get("claims") or []]
    return {key: value for key, value in item.items() if key not in CLOCKS} | {"claims": claims}
