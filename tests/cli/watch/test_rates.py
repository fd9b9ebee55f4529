"""What is counted of the feed: each payment once, by its first outcome's time and its last one's result."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from posd.cli.watch.state import Rates, Summary

BEGIN = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def change(identity: str, seconds: float, result: str | None = None, kind: str = "transaction") -> dict[str, Any]:
    at = (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"kind": kind, "id": identity, "at": at, "result": result}


def counted(*changes: dict[str, Any], at: float = 60) -> Summary:
    rates = Rates()
    for each in changes:
        rates.take(each)
    return rates.summary(BEGIN + timedelta(seconds=at))


@pytest.mark.parametrize(
    ("changes", "at", "summary"),
    [
        ((), 0, Summary(0, 0, 0, None, None)),
        ((change("a", 0),), 60, Summary(0, 0, 0, None, None)),
        ((change("a", 0), change("a", 4), change("a", 8, "approved")), 60, Summary(1, 1, 1, 8.0, 8.0)),
        ((change("a", 0), change("a", 8, "approved")), 68, Summary(1, 1, 0, 8.0, 8.0)),
        ((change("a", 0), change("a", 8, "approved")), 3609, Summary(0, 0, 0, None, None)),
        # Corrected, acknowledged: it ended when it ended.
        ((change("a", 0), change("a", 8, "canceled"), change("a", 20, "approved")), 60, Summary(1, 1, 1, 8.0, 8.0)),
        # It ended before the first look.
        ((change("a", 8, "approved"),), 60, Summary(0, 0, 0, None, None)),
        ((change("a", 0, kind="print_job"), change("a", 8, "x", kind="print_job")), 60, Summary(0, 0, 0, None, None)),
    ],
)
def test_what_is_counted(changes: tuple[dict[str, Any], ...], at: float, summary: Summary) -> None:
    assert counted(*changes, at=at) == summary


def test_half_and_95_percent_are_times_that_were_measured() -> None:
    changes = [change(f"{number}", 0) for number in range(1, 101)]
    changes += [change(f"{number}", number, "approved" if number <= 90 else "declined") for number in range(1, 101)]
    assert counted(*changes, at=100) == Summary(100, 90, 60, 50.0, 95.0)


def test_a_payment_that_ends_is_told_once() -> None:
    rates = Rates()
    told = [rates.take(change("a", at, result)) for at, result in ((0, None), (1, "approved"), (2, "approved"))]
    assert told == [False, True, False]
