"""Where a command's words go: tables and colour on a terminal, plain lines in a pipe, the API's JSON with --json."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Any, TextIO

import click
import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from posd.base.money import EXACT
from posd.base.text import escaped, shown
from posd.cli.app import times
from posd.cli.app.lazy import READABLE_COLUMNS
from posd.cli.app.tables import ASCII, EVEN, UNICODE, Cells, Layout, Lines, laid_out, lines_of
from posd.cli.app.times import TimeCell
from posd.cli.app.times import moment as moment
from posd.client.calls import Reply

#: A word, with what is quoted in it.
_WORD = re.compile(r"(?:'[^']*'|\S)+")


def pasted(command: str, indent: int, width: int) -> list[str]:
    """Return the lines of a command, for a screen of so many columns: it goes on after a backslash."""
    lines = [" " * indent]
    for word in _WORD.findall(command):
        if len(lines[-1]) + len(word) + 2 > width and lines[-1].strip():
            lines[-1] += "\\"
            lines.append(" " * (indent + 2))
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


# Where a command's words go: tables and colour on a terminal, plain lines in a pipe, the API's JSON with --json.

#: decimal places that people expect of an amount, even where the API's number has fewer.
MONEY_PLACES = 2

#: columns of a screen that has room for a table with two ids in a row.
WIDE_COLUMNS = 120

#: Column of `Output.progress`: what is under way.
DESCRIPTION = TextColumn("{task.description}", markup=False)

Pair = tuple[str, str]


class Output:
    """What a command writes to. Text may come from a terminal or a till: it is never markup, and each is one line.

    All that is written goes through `posd.base.text`, here and nowhere else: what a text holds starts no line of its
    own and steers no screen.

    `stream` is where its lines go: stdout, or stderr for what is said around a question.
    """

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self.stdout = Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
        self.stderr = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)

    @property
    def rich(self) -> bool:
        """Whether a person looks at a terminal."""
        return self.stdout.is_terminal and not self.as_json

    @property
    def narrow(self) -> bool:
        """Whether a person looks at a terminal that has no room for wide tables."""
        return self.rich and self.stdout.width < WIDE_COLUMNS

    def moment(self, at: str) -> str:
        """Write a time before a line: 14:03:12 UTC-05 for people, ISO 8601 in a pipe, where it stays one word."""
        return times.moment(at) if self.rich else times.for_programs(at)

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Write a text for people; nothing with --json. It is never wrapped or coloured in a pipe."""
        if self.rich and not text:
            self.stdout.print()
        elif self.rich:
            self.stdout.print(Padding(_text(text, style), (0, 0, 0, indent), expand=False), width=READABLE_COLUMNS)
        elif not self.as_json:
            click.echo(" " * indent + shown(text), file=self.stdout.file)

    def verbatim(self, *lines: str, style: str = "") -> None:
        """Write lines that people copy, as what goes into a file: a narrow terminal gets no line breaks of ours."""
        for text in () if self.as_json else lines:
            if self.rich:
                self.stdout.print(_text(text, style), soft_wrap=True)
            else:
                click.echo(shown(text), file=self.stdout.file)

    def cells(self, row: Cells) -> None:
        """Write a row for programs: cells separated by tabs."""
        if not self.as_json:
            click.echo("\t".join(" ".join(_shown(cell)) for cell in row), file=self.stdout.file)

    def note(self, text: Lines, style: str = "") -> None:
        """Write lines beside the result: to stderr."""
        if self.stderr.is_terminal:
            self.stderr.print(_text(text, style))
        else:
            click.echo("\n".join(_shown(text)), err=True)

    def json(self, raw: bytes) -> None:
        """With --json, write JSON as received; on a terminal indented and escaped, with every value as it is."""
        if self.as_json:
            click.echo(escaped(msgspec.json.format(raw, indent=2).decode()) if self.stdout.is_terminal else raw)

    def reply(self, reply: Reply, show: Callable[["Output", Any], None]) -> None:
        """With --json, write an answer of posd as received, else have `show` write what is in it."""
        if self.as_json:
            self.json(reply.raw)
        else:
            show(self, reply.body)

    def json_line(self, document: str) -> None:
        """With --json, write a document as received, in a line; on a terminal escaped."""
        if self.as_json:
            click.echo(escaped(document) if self.stdout.is_terminal else document.encode())

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show on a terminal that something is under way, and for how long, until the block ends."""
        with self.progress(what, self.spinner(), DESCRIPTION):
            yield

    @contextmanager
    def progress(
        self, what: str, *columns: ProgressColumn, total: float | None = None
    ) -> Iterator[Callable[..., None]]:
        """Show on a terminal how far something is, in these columns, and for how long, until the block ends.

        Yield what is called with `completed`, `total` or `description` where one of them changes.
        """
        drawn = (*columns, TimeElapsedColumn())
        with Progress(*drawn, console=self.stderr, transient=True, disable=not self.stderr.is_terminal) as progress:
            yield partial(progress.update, progress.add_task(what, total=total))

    def spinner(self) -> SpinnerColumn:
        """Return the column of `progress` that shows that something is under way."""
        return SpinnerColumn("line" if self.stderr.options.ascii_only else "dots")

    def table(self, columns: Sequence[str], rows: Iterable[Cells], layout: Layout = EVEN) -> None:
        """Write rows: a table on a terminal, lines separated by tabs (the first names the columns) in a pipe.

        In a pipe all columns are written, also empty ones, with whole ids and times with their offset.
        """
        if self.rich:
            self.stdout.print(self.drawn(columns, rows, layout), soft_wrap=True)
            return
        for row in (columns, *rows):
            self.cells(row)

    def drawn(self, columns: Sequence[str], rows: Iterable[Cells], layout: Layout = EVEN) -> Text:
        """Return a table as it is drawn on a terminal."""
        table = laid_out(
            columns,
            rows,
            self.stdout.width,
            layout,
            glyphs=ASCII if self.stdout.options.ascii_only else UNICODE,
        )
        head, body = Text("\n".join(table.head), "bold"), "\n".join(table.body)
        return Text.assemble(head, "\n", (table.rule, "dim"), f"\n{body}" * bool(body), no_wrap=True)

    def panel(self, title: str, pairs: Iterable[Pair], style: str) -> None:
        """Write labelled values: in a frame on a terminal, as `label: value` lines in a pipe."""
        if not self.rich:
            self.line(title)
            for label, value in pairs:
                self.line(f"{label}: {value}" if label else value)
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold", max_width=READABLE_COLUMNS)
        for label, value in pairs:
            grid.add_row(_text(label), _text(value))
        head = _text(f" {title} ", f"bold {style}")
        self.stdout.print(Panel(grid, title=head, title_align="left", border_style=style, expand=False))


def aside() -> Output:
    """Return the output of what is said around a question and beside a result: stderr."""
    return Output(as_json=False, stream=sys.stderr)


def _shown(text: Lines) -> list[str]:
    """Return the lines of a text as they are shown."""
    return [times.for_programs(text)] if isinstance(text, TimeCell) else [shown(line) for line in lines_of(text)]


def _text(text: Lines, style: str = "") -> Text:
    return Text("\n".join(_shown(text)), style=style)


def money(amount: Decimal | int) -> str:
    """Write an amount with at least two decimal places and never an exponent: 11.2 -> 11.20, 0.1234 as it is."""
    value = Decimal(amount)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > -MONEY_PLACES:
        value = value.quantize(Decimal(1).scaleb(-MONEY_PLACES), context=EXACT)
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


def asked(amount: Mapping[str, Any] | None) -> str:
    """Write what a request's amount adds up to; empty if it has none, as a void and what a database lost."""
    return money(total(amount)) if amount else ""


def counted(count: int, noun: str) -> str:
    """Write a number of things whose plural has an s: 1 payment, 2 payments."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """Write a number of bytes for people: 4.0 MiB."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "bytes" else f"{count} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def inline(value: object) -> str:
    """Write a JSON value in a line for people; empty for null, {} and []."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {inline(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(inline(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
