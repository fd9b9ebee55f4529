"""What the charts show, as numbers."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from posd.cli.report.sections import Payment, Section
from posd.cli.report.sums import Report, Sum, summed

#: What can have become of a payment, in the order in which it is shown.
RESULTS: Sequence[str] = ("approved", "declined", "rejected", "canceled", "not_started", "open")

#: seconds: where one column of the histogram ends and the next begins; the last one has no end. Narrow where most are.
LIMITS: Sequence[int] = (2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300)


@dataclass(frozen=True, slots=True)
class Results:
    """How the payments of a terminal ended: result -> how many."""

    terminal: str
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Column:
    """How many took so long."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Times:
    """How long it took until the terminal said how a payment ended, in seconds; None without any."""

    count: int
    median: Decimal | None
    p95: Decimal | None
    longest: Decimal | None
    columns: Sequence[Column]


def by_hour(report: Report) -> Sequence[Sum]:
    """Return what was counted in each hour: of one day as they passed, of several by what the clock showed."""
    span = report.span
    if span.first == span.last:
        hours = list(span.hours())
        starts = [hour.start for hour in hours]
        return _spread(report.counted, [hour.label for hour in hours], lambda at: bisect_right(starts, at) - 1)
    return _spread(report.counted, [f"{hour:02}" for hour in range(24)], lambda at: span.local(at).hour)


def by_day(report: Report) -> Sequence[tuple[date, Sum]]:
    """Return what was counted on each day."""
    days = report.span.days
    sums = _spread(
        report.counted,
        [day.isoformat() for day in days],
        lambda at: (report.span.local(at).date() - days[0]).days,
    )
    return list(zip(days, sums, strict=True))


def _spread(payments: Iterable[Payment], labels: Sequence[str], place: Callable[[datetime], int]) -> Sequence[Sum]:
    found: list[list[Payment]] = [[] for _ in labels]
    for payment in payments:
        found[place(payment.facts.at)].append(payment)
    return [summed((label,), items) for label, items in zip(labels, found, strict=True)]


def results(report: Report) -> Sequence[Results]:
    """Return how the payments of each terminal ended."""
    found: dict[str, list[int]] = {}
    for payment in report.payments:
        counts = found.setdefault(payment.facts.terminal, [0] * len(RESULTS))
        counts[RESULTS.index(payment.facts.result or "open")] += 1
    return [Results(terminal, found[terminal]) for terminal in sorted(found)]


def times(report: Report) -> Times:
    """Return how long payments took."""
    ended = [item.facts.seconds for item in report.payments if item.section is not Section.OPEN]
    taken = sorted(seconds for seconds in ended if seconds is not None)
    counts = [0] * (len(LIMITS) + 1)
    for seconds in taken:
        counts[bisect_right(LIMITS, seconds)] += 1
    labels = [f"{low}-{high}" for low, high in zip((0, *LIMITS), LIMITS, strict=False)]
    columns = [Column(label, number) for label, number in zip((*labels, f"{LIMITS[-1]}+"), counts, strict=True)]
    return Times(len(taken), nearest(taken, 50), nearest(taken, 95), taken[-1] if taken else None, columns)


def nearest(ordered: Sequence[Decimal], percent: int) -> Decimal | None:
    """Return the percentile of ordered numbers (nearest rank), None of none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
