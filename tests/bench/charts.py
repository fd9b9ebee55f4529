"""The plots of a run: ratios against their bounds, memory, and the processor time of a payment before and after."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench.plot import Bar, bars
from tests.bench.rows import Row
from tests.bench.table import Report


def write(directory: Path, report: Report) -> dict[Path, str]:
    """Write those for which the run has figures; return what each shows, by its file.

    The plot of the growth is written by part stored; it is among them.
    """
    told = f"{report.began[:10]}: {report.command}"
    rows = list(report.rows)
    drawn = {
        "ratios": (
            "Medians of the rounds, as parts of their bounds",
            "bar: median, line: least and most of the rounds; left of 1.0 a bound holds",
            list(_by_bound(row for row in rows if row.unit == "×" and row.limit is not None)),
            1.0,
        ),
        "memory": (
            "Resident memory, MB",
            "bar: median, line: least and most of the rounds; dashed: bound of each",
            [_plain(row) for row in rows if row.unit == "MB" and row.limit is not None],
            None,
        ),
        "payment": (
            "Processor time of a whole payment, ms",
            "bar: median, line: least and most of the rounds",
            list(_payment(rows)),
            None,
        ),
    }
    found = {}
    for name, (title, subtitle, figures, bound) in drawn.items():
        if figures:
            file = directory / f"{name}.svg"
            file.write_text(bars(title, subtitle, told, figures, bound))
            found[file] = title
    if any(part.name == "stored" and part.rows for part in report.parts):
        found[directory / "growth.svg"] = "How figures grow with what is stored"
    return found


def _by_bound(rows: Iterator[Row]) -> Iterator[Bar]:
    """Yield each figure by its bound so that less is better, also where more of it is."""
    for row in rows:
        assert row.limit is not None
        parts = [row.limit / value if row.at_least else value / row.limit for value in row.rounds]
        words = f"{row.measured:.3g} × ({row.bound})"
        yield Bar(row.figure, median(parts), min(parts), max(parts), words, good=row.holds)


def _plain(row: Row) -> Bar:
    words = f"{row.measured:.1f} MB ({row.bound})"
    return Bar(row.figure, row.measured, min(row.rounds), max(row.rounds), words, good=row.holds, bound=row.limit)


def _payment(rows: Sequence[Row]) -> Iterator[Bar]:
    """Yield each flavour, this version's and the earlier one's."""
    details: Mapping[str, Mapping[str, Sequence[float]]] = next(
        (row.details for row in rows if "ms_before" in row.details), {}
    )
    for flavour in details.get("ms", {}):
        for name, values in (("earlier version", details["ms_before"]), ("this version", details["ms"])):
            if flavour in values:
                each = values[flavour]
                words = f"{median(each):.1f} ms"
                yield Bar(f"{flavour}: {name}", median(each), min(each), max(each), words, good=name == "this version")
