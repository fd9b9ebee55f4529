"""What a run found: as a table on a terminal, as a part of a page, and for JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tests.bench.machine import words
from tests.bench.rows import Row

#: Between them stands the measured part of a page.
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEAD = ("figure", "min", "median", "max", "bound", "", "posd", "compared with", "naive receiver")
#: How many columns after the first one are numbers.
_NUMBERS = 4
_HOLDS = {True: "holds", False: "falls short"}


@dataclass
class Part:
    """What one measure found, and how long that took; or why it found nothing."""

    name: str
    seconds: float
    rows: Sequence[Row] = ()
    failure: str | None = None


@dataclass
class Report:
    """One run. `short` is one that shows only that everything works: its figures are not judged."""

    command: str
    began: str
    short: bool
    machine: dict[str, Any]
    parts: list[Part] = field(default_factory=list)

    @property
    def rows(self) -> Iterator[Row]:
        """All rows, in order."""
        for part in self.parts:
            yield from part.rows

    @property
    def good(self) -> bool:
        """Whether everything was measured and, where figures are judged, every bound holds."""
        measured = not any(part.failure for part in self.parts)
        return measured and (self.short or all(row.holds for row in self.rows))

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        rows = [row for row in self.rows if row.limit is not None]
        holding = sum(row.holds for row in rows)
        broken = [part.name for part in self.parts if part.failure]
        said = f"{len(rows)} figures, not judged (--short)" if self.short else f"{holding} of {len(rows)} bounds hold"
        return said + (f"; not measured: {', '.join(broken)}" if broken else "")

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        parts = {
            part.name: {"seconds": part.seconds, "failure": part.failure, "rows": [row.document() for row in part.rows]}
            for part in self.parts
        }
        return {
            "command": self.command,
            "began": self.began,
            "short": self.short,
            "good": self.good,
            "machine": self.machine,
            "measures": parts,
        }


def screen(report: Report) -> Table:
    """Return it for a terminal; a note stands under its figure."""
    table = Table(box=box.SIMPLE_HEAD, caption=report.verdict, caption_justify="left", pad_edge=False)
    for name in HEAD:
        table.add_column(name, justify="right" if name in HEAD[1 : 1 + _NUMBERS] else "left")
    for row in report.rows:
        figure = Text(row.figure)
        if row.note:
            figure.append(f"\n{row.note}", style="dim")
        *numbers, held, ours, reference, naive = (Text(cell) for cell in _cells(row, report.short))
        held.stylize("green" if row.holds else "bold red")
        table.add_row(figure, *numbers, held, ours, reference, naive)
    for part in report.parts:
        if part.failure:
            table.add_row(Text(part.name), "", Text("failed", style="bold red"), "", "", "", Text(part.failure))
    return table


def markdown(report: Report, plots: Mapping[str, str] | None = None) -> str:
    """Return it as a part of a page; `plots`: what each shows, by its file as the page names it."""
    lines = [HEAD, ("---", *["--:"] * _NUMBERS, *["---"] * (len(HEAD) - 1 - _NUMBERS))]
    lines += [(row.figure, *_cells(row, report.short)) for row in report.rows]
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    notes = [f"- *{row.figure}*: {row.note}." for row in report.rows if row.note]
    notes += [f"- **{part.name} failed**: {part.failure}" for part in report.parts if part.failure]
    minutes = sum(part.seconds for part in report.parts) / 60
    return "\n\n".join(
        [
            f"**{report.verdict}**; {report.began}, {minutes:.0f} minutes.",
            f"```sh\n{report.command}\n```",
            table,
            *(f"![{words}]({file})" for file, words in (plots or {}).items()),
            "\n".join(notes),
            *words(report.machine),
        ]
    )


def put_into(page: str, part: str) -> str:
    """Return a page with another measured part; a page without a place for one is replaced."""
    if BEGIN not in page or END not in page:
        return f"# The benchmark\n\n{part}\n"
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def _cells(row: Row, short: bool) -> tuple[str, ...]:
    """Return what stands beside the figure."""
    held = "" if short or row.limit is None else _HOLDS[row.holds]
    least, most = f"{min(row.rounds):.3g}", f"{max(row.rounds):.3g}"
    return least, f"{row.measured:.3g} {row.unit}", most, row.bound, held, row.ours, row.reference, row.naive
