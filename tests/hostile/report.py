"""The report as a table for people."""

from collections.abc import Sequence

from tests.hostile.run import Result, Times

HEAD = (
    "attack",
    "read ms",
    "x",
    "p95",
    "x",
    "paid",
    "pay ms",
    "x",
    "p95",
    "x",
    "+MB peak",
    "end",
    "fds",
    "lines",
    "cpu",
    "retried",
)


def table(results: Sequence[Result]) -> str:
    """Return one line for each attack. `x`: factor of the times compared with the quiet time."""
    rows = [HEAD, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *others]))
    for result in results:
        lines += [f"BROKEN {result.name}: {item[:300]}" for item in result.broken]
    return "\n".join(lines)


def deeds(results: Sequence[Result]) -> str:
    """Return the attackers' counts, one line for each attack."""
    return "\n".join(
        f"{result.name}: {', '.join(f'{count} {what}' for what, count in result.done.items())}" for result in results
    )


def _row(result: Result) -> tuple[str, ...]:
    assert result.quiet is not None
    return (
        result.name,
        *_times(result.quiet.reads, result.attack.reads),
        str(result.attack.payments.count),
        *_times(result.quiet.payments, result.attack.payments),
        f"{result.memory_peak_mb - result.memory_quiet_mb:+.1f}",
        f"{result.memory_end_mb - result.memory_quiet_mb:+.1f}",
        str(result.descriptors_peak),
        str(len(result.lines)),
        f"{result.processor:.0%}",
        str(result.retried),
    )


def _times(quiet: Times, attack: Times) -> tuple[str, str, str, str]:
    pairs = ((quiet.median, attack.median), (quiet.p95, attack.p95))
    cells = [(f"{now:.1f}", f"{now / before:.1f}" if before else "-") for before, now in pairs]
    return cells[0] + cells[1]
