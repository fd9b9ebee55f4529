"""Shift totals for generated payments. Each payment is counted once.

A later change is counted as a difference, to the cent.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posd.api import shifts
from posd.api.shifts import ReportOptions, Shift, ShiftRequest
from posd.payments.accounting import read_row
from posd.payments.counting import Section
from posd.payments.report_documents import PaymentReport
from posd.payments.rows import PAYMENT, by_rowid
from posd.records.model import Phase, Pruned
from tests.rig.book import Book, book, context, identity, whole
from tests.rig.slow import examples
from tests.rig.tables import there

AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
ZONE = ZoneInfo("America/Guayaquil")
D = Decimal
Sums = Counter[str | None]

#: Possible states of a payment.
STATES: tuple[dict[str, Any], ...] = (
    {"result": None},
    {"result": None, "phase": Phase.IN_DOUBT},
    {"result": "declined"},
    {"result": "not_started", "evidence": "operator"},
    {"authorized": D("11.20")},
    {"authorized": D("8.2000")},
    {"authorized": D("8.20"), "currency": "EUR"},
    {"evidence": "operator"},
    {"amount": {}},
    {"kind": "pre-auth"},
    {"kind": "void", "amount": {}, "authorized": D("3.00"), "original": 99},
)
#: Steps of a day. A step gives a payment a state, or closes the shift (None).
steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(STATES)) | st.none(), max_size=25)


def close(shop: Book, **asked: Any) -> tuple[Shift, bool]:
    shift, fresh = whole(shifts.count(shop.db, ShiftRequest("Ana", **asked), context(AT), 1000))
    return shifts.close(shop.unit, shift) if fresh else (shift, False)


def printed(shop: Book, number: int | None, **changes: Any) -> PaymentReport:
    return whole(shifts.of_closed(shop.db, ReportOptions(context(AT), ZONE, [], **changes), number))


def opened(shop: Book) -> PaymentReport:
    return whole(shifts.of_open(shop.db, ReportOptions(context(AT), ZONE, [])))


def counted_now(shop: Book) -> Sums:
    """Return the present total of all payments."""
    sums: Sums = Counter()
    for _, transaction in by_rowid(shop.db, 0, 100):
        row = read_row(shop.db, transaction, context(AT))
        if row.counted:
            sums[row.currency] += row.counted  # type: ignore[assignment]
    return sums


def added(reports: list[PaymentReport] | list[Any]) -> Sums:
    sums: Sums = Counter()
    for found in reports:
        for item in found.by_currency:
            sums[item.currency] += item.total
    return sums


def same(one: Sums, other: Sums) -> bool:
    return {key: value for key, value in one.items() if value} == {key: value for key, value in other.items() if value}


@settings(max_examples=examples(40, 200), deadline=None)
@given(steps)
@example([(0, {"authorized": Decimal("8.20"), "currency": "EUR"}), None, (0, {"authorized": Decimal("8.2000")})])
def test_all_shifts_together_give_the_charged_amount(course: list[Any]) -> None:
    with book() as shop:
        shop.put(99, AT)
        close(shop)
        closed: list[PaymentReport] = [printed(shop, None)]
        for step in [*course, None]:
            if step is not None:
                shop.put(step[0], AT, **step[1])
                continue
            before = opened(shop)
            shift, fresh = close(shop)
            if not fresh:
                continue
            found = printed(shop, None)
            assert same(added([found]), added([before])), "the closed shift must equal the shown one"
            rows = [row for row in found.payments if not row.correction]
            assert len({row.client_transaction_id for row in rows}) == len(rows)
            listed = {item.client_transaction_id for item in shift.payments if item.counted is None}
            assert {row.client_transaction_id for row in rows if row.section is Section.OPEN} == listed
            closed.append(found)
            assert same(added(closed), counted_now(shop))
        # A later change does not change a counted shift.
        again = [printed(shop, number) for number in range(1, len(closed) + 1)]
        assert [item.by_currency for item in again] == [item.by_currency for item in closed]
        by_rows: Sums = Counter()
        for item in again:
            for row in item.payments:
                by_rows[row.currency] += row.counted or 0  # type: ignore[assignment]
        assert same(by_rows, counted_now(shop)), "the rows of a shift add up to its total"


def test_a_correction_of_the_currency_moves_the_amount_to_the_new_currency() -> None:
    with book() as shop:
        shop.put(1, AT, authorized=D(10))
        close(shop)
        shop.put(1, AT, authorized=D(10), currency="EUR", was="declined")
        shift, _ = close(shop)
        found = printed(shop, None)
        assert {item.currency: item.total for item in found.by_currency} == {"USD": D(-10), "EUR": D(10)}
        assert (found.total, shift.total) == (None, None)
        assert [item.difference for item in there(found.shift).corrections] == [-10, 10]


def test_a_removed_payment_keeps_its_data_in_the_shift() -> None:
    with book() as shop:
        shop.put(1, AT, authorized=D("11.20"), terminal="SN-0007")
        shop.put(2, AT, result="declined")
        close(shop)
        closed = printed(shop, 1)
        for number, result in ((1, "approved"), (2, "declined")):
            shop.remove(identity(number))
            PAYMENT.keep_pruned(shop.db, Pruned(identity(number), "SN-0007", "charge", result, "2026-11-20"))
        found = printed(shop, 1)
        assert (found.by_currency, found.sureness) == (closed.by_currency, closed.sureness)
        assert found.by_type == closed.by_type
        assert (there(found.shift).removed, [row.counted for row in found.payments]) == (2, [D("11.20"), None])
        assert [(row.terminal, row.type, row.at_by) for row in found.payments] == [("SN-0007", "charge", "shift")] * 2
        # The total of one terminal is computed again from the record of each payment.
        (alone,) = printed(shop, 1, terminal="SN-0007").by_terminal
        assert (alone.currency, alone.total) == ("USD", D("11.20"))


def test_a_shift_counted_while_another_was_closed_is_not_stored() -> None:
    with book() as shop:
        shop.put(1, AT, authorized=D("11.20"))
        counts = [whole(shifts.count(shop.db, ShiftRequest(name), context(AT), 1)) for name in ("Ana", "Ben")]
        assert [shifts.close(shop.unit, shift)[1] for shift, _ in counts] == [True, False]
        assert [shift.operator for shift in shifts.page(shop.db, None, 9)] == ["Ana"]


def test_payments_beyond_the_limit_of_a_shift_belong_to_the_next_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifts, "MOST", 2)
    with book() as shop:
        for number in range(5):
            shop.put(number, AT + timedelta(seconds=number), authorized=D("1.10"))
        first = opened(shop)
        assert there(first.shift).more
        assert [close(shop)[0].total for _ in range(4)] == [D("2.20"), D("2.20"), D("1.10"), D("1.10")]
        assert len(shifts.page(shop.db, None, 9)) == 3
