"""Where a command's words go: tables and colour on a terminal, plain lines in a pipe, the API's JSON with --json."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

#: decimal places that people expect of an amount, even where the API's number has fewer.
MONEY_PLACES = 2

Pair = tuple[str, str]


class Output:
    """What a command writes to. Text is never read as markup: it may come from a terminal or a till."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.stdout = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self.stderr = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)

    @property
    def rich(self) -> bool:
        """Whether a person looks at a terminal."""
        return self.stdout.is_terminal and not self.as_json

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line for people; nothing with --json. A line is never wrapped or coloured in a pipe."""
        if self.rich:
            self.stdout.print(_text(text, style))
        elif not self.as_json:
            click.echo(_clean(text))

    def note(self, text: str, style: str = "") -> None:
        """Write a line beside the result: to stderr."""
        if self.stderr.is_terminal:
            self.stderr.print(_text(text, style))
        else:
            click.echo(_clean(text), err=True)

    def json(self, raw: bytes) -> None:
        """Write JSON as it came; on a terminal indented, which leaves every number as it is."""
        document = msgspec.json.format(raw, indent=2) if self.stdout.is_terminal else raw
        click.echo(document)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: str = "") -> None:
        """Write rows: a table on a terminal, lines separated by tabs (the first names the columns) in a pipe.

        `whole` names a column that is never broken over lines, so that its values can be copied.
        """
        if not self.rich:
            for row in (columns, *rows):
                self.line("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
            return
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column == whole)
        for row in rows:
            table.add_row(*(_text(cell) for cell in row))
        self.stdout.print(table)

    def panel(self, title: str, pairs: Iterable[Pair], style: str) -> None:
        """Write labelled values: in a frame on a terminal, as `label: value` lines in a pipe."""
        if not self.rich:
            self.line(title)
            for label, value in pairs:
                self.line(f"{label}: {value}" if label else value)
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in pairs:
            grid.add_row(_text(label), _text(value))
        head = _text(f" {title} ", f"bold {style}")
        self.stdout.print(Panel(grid, title=head, title_align="left", border_style=style, expand=False))


def _clean(text: str) -> str:
    """Make control characters harmless: a terminal's message must not steer the screen."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _text(text: str, style: str = "") -> Text:
    return Text(_clean(text), style=style)


def money(amount: Decimal | int) -> str:
    """Write an amount with at least two decimal places and never an exponent: 11.2 -> 11.20, 0.1234 as it is."""
    value = Decimal(amount)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > -MONEY_PLACES:
        value = value.quantize(Decimal(1).scaleb(-MONEY_PLACES))
    return f"{value:f}"


def total(amount: Mapping[str, Any]) -> Decimal:
    """Add the parts of a request's amount: its numbers, and those of `extra_taxes`."""
    parts: Decimal = Decimal(0)
    for value in amount.values():
        if isinstance(value, Mapping):
            parts += total(value)
        elif isinstance(value, int | Decimal):
            parts += value
    return parts


def moment(iso: str | None, *, date: bool = False) -> str:
    """Write an ISO 8601 time of the API in this machine's local time; a dash where there is none."""
    if not iso:
        return "-"
    local = datetime.fromisoformat(iso).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}" if date else f"{local:%H:%M:%S}"
