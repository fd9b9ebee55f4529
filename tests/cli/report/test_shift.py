"""What a shift counts, for any course of payments: each once, and what changes later as a difference."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from posd.cli.report import closed as closed_shifts
from posd.cli.report import exports, page, shift, standing, sums
from posd.cli.report.closed import Closed, Line, Shift
from posd.cli.report.facts import Span, read
from posd.cli.report.standing import Payment, Section, Standing
from tests.cli.report.shopday import identity, payment
from tests.support.slow import examples

AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
SPAN = Span(date(2026, 11, 20), date(2026, 11, 20), ZoneInfo("America/Guayaquil"))
ZERO = Decimal(0)

#: How a payment can stand at a moment: what the local API says of it.
STATES: tuple[dict[str, Any], ...] = (
    {"result": None},
    {"result": None, "phase": "in_doubt"},
    {"result": "declined"},
    {"result": "not_started", "evidence": "operator"},
    {"authorized": Decimal("11.20")},
    {"authorized": Decimal("8.2000")},
    {"evidence": "operator"},
    {"amount": {}},
    {"type": "pre-auth"},
    {"type": "void", "amount": {}, "authorized": Decimal("3.00"), "original": identity(99)},
)
ORIGINAL = {identity(99): read(payment(99, AT))}
#: Steps: a payment stands so from now on, or (None) the shift is closed.
steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(STATES)) | st.none(), max_size=25)


def stands(number: int, state: dict[str, Any]) -> Payment:
    return standing.count(read(payment(number, AT, **state)), ORIGINAL)


def counted(item: Payment) -> Decimal:
    return (item.counted or ZERO) if item.facts.result is not None else ZERO


def total(rows: list[Payment]) -> Decimal:
    return sums.sectioned(SPAN, rows, AT).total.total


@settings(max_examples=examples(50, 300))
@given(steps, st.integers(0, 3))
def test_all_shifts_together_are_what_was_charged(course: list[Any], looked_at_besides: int) -> None:
    now: dict[str, Payment] = {}
    changed: set[str] = set()
    closed: list[Closed] = []  # the newest first, as the local API gives them
    for step in [*course, None]:
        if step is not None:
            now[identity(step[0])] = stands(*step)
            changed.add(identity(step[0]))
            continue
        # Those that have changed, those that were open, and any others: it does not matter how many are looked at.
        carried = closed[0].open if closed else {}
        others = sorted(now)[:looked_at_besides]
        looked_at = [now[name] for name in sorted({*changed, *carried, *others})]
        rows, lines = shift.account(looked_at, closed_shifts.earlier(closed))
        again = [row for line in lines for row in shift.printed_again(now[line.id], line)]
        assert total(again) == total(rows)
        counting = [row for row in rows if row.correction is None]
        assert len({row.facts.id for row in counting}) == len(counting)
        assert {row.facts.id for row in counting if row.open_at} <= carried.keys()
        opened = {row.facts.id for row in rows if row.section is Section.OPEN}
        assert opened == {line.id for line in lines if line.counted is None}
        closed.insert(0, Closed(len(closed) + 1, AT, "Ana", "", 0, 0, "x", total(rows), {}, lines))
        changed.clear()
        assert sum((item.total for item in closed), ZERO) == sum((counted(item) for item in now.values()), ZERO)
        assert closed[0].open.keys() >= {name for name, item in now.items() if item.facts.result is None}
    decided = [line.id for item in closed for line in item.lines if line.counted is not None and line.was is None]
    # A payment is counted for the first time once, unless it was open again in between.
    reopened = {line.id for item in closed for line in item.lines if line.was is not None and line.counted is None}
    assert [name for name in decided if decided.count(name) > 1 and name not in reopened] == []


@settings(max_examples=examples(30, 200))
@given(
    st.sampled_from(STATES),
    st.sampled_from(STATES),
    st.none() | st.sampled_from([ZERO, Decimal("11.20"), Decimal("-3.00")]),
)
def test_a_closed_shift_is_printed_as_it_was_counted(then: Any, now: Any, was: Decimal | None) -> None:
    before = stands(1, then)
    open_then = before.facts.result is None
    line = Line(before.facts.id, None if open_then else counted(before), was, None if was is None else 1)
    rows = shift.printed_again(stands(1, now), line)
    assert total(rows) == counted(before) - (was or ZERO)
    assert any(row.section is Section.OPEN for row in rows) == open_then
    report = sums.sectioned(SPAN, rows, AT, shift=Shift(None, None))
    assert ("corrected here" in page.write(report)) == (was is not None)
    assert ("correction," in exports.write_csv(report)) == (was is not None)
    assert closed_shifts.read(
        {
            "number": 2,
            "closed_at": "2026-11-20T22:03:11.402Z",
            "operator": "Ana",
            "note": "",
            "after": 1,
            "up_to": 2,
            "database_id": "x",
            "total": Decimal(1),
            "totals": {},
            "payments": [closed_shifts.document(line)],
        }
    ).lines == [line]


def test_of_what_was_removed_the_amount_stays_with_terminal_and_type() -> None:
    lines = [Line(identity(1), Decimal("11.20")), Line(identity(2), Decimal("-3.00")), Line(identity(3), ZERO)]
    kept = [{"standing": "in_doubt", "number": 1, "amount": Decimal("5.00"), "unknown": 0}]
    closed = Closed(
        2, AT, "Ana", "<late>", 1, 2, "x", Decimal("8.20"), {"currencies": ["USD"], "sureness": kept}, lines
    )
    left = {"terminal": "SN-0007", "transaction_type": "charge", "result": "approved"}
    rows = [shift.removed(line, closed, left if line is lines[0] else {}) for line in lines]
    report = sums.sectioned(SPAN, rows, AT, shift=Shift(closed, None, removed=3))
    assert report.total.total == closed.total
    assert [item.name[0] for item in report.by(sums.terminal_of)] == ["SN-0007", "removed"]
    assert (report.currency, [(item.standing, item.amount) for item in report.sureness]) == (
        "USD",
        [(Standing.IN_DOUBT, Decimal("5.00"))],
    )
    for wrong in ({}, {"sureness": 7}, {"sureness": [{"standing": "in_doubt"}], "currencies": [7]}):
        other = replace(report, shift=Shift(replace(closed, totals=wrong), None))
        assert (other.currency, [item.standing for item in other.sureness]) == (
            "",
            [Standing.CERTAIN, Standing.BY_PERSON],
        )
    text = page.write(report)
    assert "hift 2, closed by Ana" in text
    assert "Note: &lt;late&gt;" in text
    assert "the record was removed" in text
    assert b'"removed":3' in exports.write_json(report)
    assert exports.write_csv(report).count("\r\n") == 4
