"""Output of commands: tables and colour on a terminal, plain lines in a pipe, the API's JSON with --json."""

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
from posd.cli.explain.catalogue import named
from posd.client.plans import Reply

#: Word of a shell command, including parts in quotes.
_WORD = re.compile(r"(?:'[^']*'|\S)+")


def pasted(command: str, indent: int, width: int) -> list[str]:
    """Return the lines of a command for a screen of that width. A line that continues ends with a backslash."""
    lines = [" " * indent]
    for word in _WORD.findall(command):
        if len(lines[-1]) + len(word) + 2 > width and lines[-1].strip():
            lines[-1] += "\\"
            lines.append(" " * (indent + 2))
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


#: Minimum number of decimal places of a displayed amount, even if the API's number has fewer.
MONEY_PLACES = 2

#: Width of a screen, in columns, that fits a table with two ids in a row.
WIDE_COLUMNS = 120

#: Column of `Output.progress` that shows the present step.
DESCRIPTION = TextColumn("{task.description}", markup=False)

Pair = tuple[str, str]


class Output:
    """Output of a command.

    Text may come from a terminal or a till, so it is never read as markup, and each text stays on one line.

    Only this module writes text, and always escapes it by `posd.base.text`. So no text can begin another line or
    control the screen.

    `stream`: stdout, or stderr for the text around a question.
    """

    def __init__(self, *, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self.stdout = Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
        self.stderr = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)

    @property
    def rich(self) -> bool:
        """Whether the output goes to a terminal, without --json."""
        return self.stdout.is_terminal and not self.as_json

    @property
    def narrow(self) -> bool:
        """Whether the output goes to a terminal that is too narrow for wide tables."""
        return self.rich and self.stdout.width < WIDE_COLUMNS

    def moment(self, at: str) -> str:
        """Return the text of a time at the start of a line: 14:03:12 UTC-05 on a terminal, ISO 8601 in a pipe."""
        return times.moment(at) if self.rich else times.for_programs(at)

    def line(self, text: str = "", style: str = "", *, indent: int = 0) -> None:
        """Write a text for people, in their language. With --json write nothing.

        Text in a pipe is not wrapped or coloured.
        """
        text = named(text)
        if self.rich and not text:
            self.stdout.print()
        elif self.rich:
            self.stdout.print(Padding(_text(text, style), (0, 0, 0, indent), expand=False), width=READABLE_COLUMNS)
        elif not self.as_json:
            click.echo(" " * indent + shown(text), file=self.stdout.file)

    def verbatim(self, *lines: str, style: str = "") -> None:
        """Write lines to copy, such as the content of a file, without added line breaks."""
        for text in () if self.as_json else lines:
            if self.rich:
                self.stdout.print(_text(text, style), soft_wrap=True)
            else:
                click.echo(shown(text), file=self.stdout.file)

    def cells(self, row: Cells) -> None:
        """Write a row for programs, with tabs between the cells."""
        if not self.as_json:
            click.echo("\t".join(" ".join(_shown(cell)) for cell in row), file=self.stdout.file)

    def note(self, text: Lines, style: str = "") -> None:
        """Write lines to stderr, in the user's language."""
        text = [named(line) for line in lines_of(text)]
        if self.stderr.is_terminal:
            self.stderr.print(_text(text, style))
        else:
            click.echo("\n".join(_shown(text)), err=True)

    def json(self, raw: bytes) -> None:
        """With --json, write JSON as received. On a terminal it is indented and escaped, with unchanged values."""
        if self.as_json:
            click.echo(escaped(msgspec.json.format(raw, indent=2).decode()) if self.stdout.is_terminal else raw)

    def reply(self, reply: Reply, show: Callable[["Output", Any], None]) -> None:
        """With --json, write a response of posd as received. Otherwise call `show` to write its content."""
        if self.as_json:
            self.json(reply.raw)
        else:
            show(self, reply.body)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """On a terminal, show the step `what` and its time until the block ends."""
        with self.progress(named(what), self.spinner(), DESCRIPTION):
            yield

    @contextmanager
    def progress(
        self, what: str, *columns: ProgressColumn, total: float | None = None
    ) -> Iterator[Callable[..., None]]:
        """On a terminal, show the progress in `columns` and its time until the block ends.

        Yield a function that updates `completed`, `total` or `description`.
        """
        drawn = (*columns, TimeElapsedColumn())
        with Progress(*drawn, console=self.stderr, transient=True, disable=not self.stderr.is_terminal) as progress:
            yield partial(progress.update, progress.add_task(what, total=total))

    def spinner(self) -> SpinnerColumn:
        """Return the column of `progress` with an animation."""
        return SpinnerColumn("line" if self.stderr.options.ascii_only else "dots")

    def table(self, columns: Sequence[str], rows: Iterable[Cells], layout: Layout = EVEN) -> None:
        """Write rows: as a table on a terminal, as a line of names and lines with tabs in a pipe.

        In a pipe all columns are written, even empty ones. Ids are whole, and times have their offset.
        """
        if self.rich:
            whole, under, cut, extra = layout
            translated = Layout(named(whole), named(under), named(cut), tuple(map(named, extra)))
            glyphs = ASCII if self.stdout.options.ascii_only else UNICODE
            table = laid_out([*map(named, columns)], rows, self.stdout.width, translated, glyphs=glyphs)
            head, body = Text("\n".join(table.head), "bold"), "\n".join(table.body)
            text = Text.assemble(head, "\n", (table.rule, "dim"), f"\n{body}" * bool(body), no_wrap=True)
            self.stdout.print(text, soft_wrap=True)
            return
        for row in (columns, *rows):
            self.cells(row)

    def panel(self, title: str, pairs: Iterable[Pair], style: str) -> None:
        """Write labelled values: in a frame on a terminal, as `label: value` lines in a pipe."""
        title = named(title)
        if not self.rich:
            self.line(title)
            for label, value in pairs:
                self.line(f"{named(label)}: {value}" if label else value)
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold", max_width=READABLE_COLUMNS)
        for label, value in pairs:
            grid.add_row(_text(named(label)), _text(value))
        head = _text(f" {title} ", f"bold {style}")
        self.stdout.print(Panel(grid, title=head, title_align="left", border_style=style, expand=False))


def aside() -> Output:
    """Return an Output to stderr, for text around a question and beside a result."""
    return Output(as_json=False, stream=sys.stderr)


def _shown(text: Lines) -> list[str]:
    """Return the escaped lines of a text."""
    return [times.for_programs(text)] if isinstance(text, TimeCell) else [shown(line) for line in lines_of(text)]


def _text(text: Lines, style: str = "") -> Text:
    return Text("\n".join(_shown(text)), style=style)


def money(amount: Decimal | int) -> str:
    """Return the text of an amount with at least two decimals and no exponent: 11.2 -> 11.20, 0.1234 -> 0.1234."""
    value = Decimal(amount)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > -MONEY_PLACES:
        value = value.quantize(Decimal(1).scaleb(-MONEY_PLACES), context=EXACT)
    return f"{value:f}"


def total(amount: Mapping[str, Any]) -> Decimal:
    """Return the sum of a request's amount: of its numbers, and of those in `extra_taxes`."""
    parts: Decimal = Decimal(0)
    for value in amount.values():
        if isinstance(value, Mapping):
            parts += total(value)
        elif isinstance(value, int | Decimal):
            parts += value
    return parts


def asked(amount: Mapping[str, Any] | None) -> str:
    """Return the text of the sum of a request's amount.

    It is empty without an amount, as for a void or a lost record.
    """
    return money(total(amount)) if amount else ""


def counted(count: int, noun: str) -> str:
    """Return the text of a number of things: 1 payment, 2 payments. In Spanish a noun may end in -ón: 2 impresiones."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun.removesuffix('ón')}ones" if noun.endswith("ón") else f"{count} {noun}s"


def size(count: int) -> str:
    """Return the text of a number of bytes: 4.0 MiB."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "bytes" else f"{count} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def inline(value: object) -> str:
    """Return the text of a JSON value on one line. It is empty for null, {} and []."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {inline(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(inline(item) for item in value)
    if isinstance(value, bool):
        return named("yes" if value else "no")
    return "" if value is None else str(value)
