"""The report on generated payments. The sums are exact in each currency, and each payment is in exactly one place."""

import asyncio
import json
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posd.base.times import iso
from posd.clock.clock import Stretch
from posd.payments import report
from posd.payments.accounting import as_counted
from posd.payments.counting import Section
from posd.payments.report_documents import COUNTED_CERTAINTIES, Certainty, PaymentReport, ReportPayment
from posd.records.model import Phase
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from tests.rig.book import Book, book, context, days_of, fill_trouble, identity, reported
from tests.rig.slow import examples
from tests.rig.tables import every, there

ZONE = ZoneInfo("America/Guayaquil")
MOMENTS: list[dict[str, str | None]] = json.loads((Path(__file__).parents[1] / "vectors" / "moments.json").read_text())
DAY = date(2026, 11, 20)
SPAN = days_of(DAY, DAY, ZONE)
NOON = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
ASKED = {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "extra_taxes": {"ice": Decimal("0.05")}}
D = Decimal

amounts = st.decimals(0, 10**12, places=2) | st.decimals(0, 10, places=4)


@pytest.fixture
def shop() -> Iterator[Book]:
    with book() as made:
        yield made


@st.composite
def payments(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw payments of the day and of the days around it. The payments have every type and end.

    Some payments are derived from others.
    """
    count = draw(st.integers(0, 12))
    found: list[dict[str, Any]] = []
    for number in range(count):
        kind = draw(st.sampled_from(["charge", "capture", "post-tip", "void", "refund", "pre-auth", "re-auth", None]))
        done_to = draw(st.none() | st.integers(0, count)) if kind in ("void", "post-tip", "refund") else None
        result = draw(st.sampled_from(["approved"] * 4 + ["declined", "rejected", "canceled", "not_started", None]))
        found.append(
            {
                "number": number,
                "at": NOON + timedelta(minutes=draw(st.integers(-3000, 3000))),
                "result": result,
                "seconds": draw(st.decimals(0, 90000, places=3)),
                "authorized": draw(st.none() | amounts),
                "occurred_at": draw(st.sampled_from([None, "1970-01-01T00:00:00Z", "no time"])),
                "brand": draw(st.sampled_from([None, "VISA", "=1+1"])),
                "currency": draw(st.sampled_from([None, "USD", "USD", "EUR"])),
                "evidence": "refusal" if result == "not_started" else draw(st.sampled_from(["event", "operator"])),
                "reversal": draw(st.sampled_from([None, "cancellation", "refund"])),
                "terminal": draw(st.sampled_from(["SN-1", "SN-2", "<script>"])),
                "kind": kind,
                "amount": {"subtotal_iva0": draw(amounts), "iva": draw(amounts)} if draw(st.booleans()) else {},
                "original": done_to if done_to != number else None,
                "attention": draw(st.sampled_from([(), ("gap",), ("conflicting_final",)])),
            }
        )
    return found


def made(found: list[dict[str, Any]], span: report.ReportSpan = SPAN) -> PaymentReport:
    with book() as shop:
        for item in found:
            shop.put(**item)
        return reported(shop, span, NOON)


def total_of(found: PaymentReport) -> dict[str | None, Decimal]:
    """Return the sum of the rows for each currency."""
    totals: dict[str | None, Decimal] = defaultdict(Decimal)
    for row in found.payments:
        if row.counted is not None:
            totals[row.currency] += row.counted
    return totals


@settings(max_examples=examples(20, 100))
@given(payments())
def test_every_total_is_the_sum_of_its_rows_in_one_currency(found: list[dict[str, Any]]) -> None:
    whole = made(found)
    totals = total_of(whole)
    groups = ("by_currency", "by_terminal", "by_type", "by_terminal_and_type", "by_brand", "by_day", "by_hour")
    for name in (*groups, "by_part"):
        added: dict[str | None, Decimal] = defaultdict(Decimal)
        for item in getattr(whole, name):
            added[item.currency] += item.total
        assert {key: value for key, value in added.items() if value} == {k: v for k, v in totals.items() if v}, name
    for name in groups:
        listed = getattr(whole, name)
        assert sum(item.payments + item.reversals for item in listed) == whole.counts["counted"]
        assert all(item.charged >= 0 >= item.reversed for item in listed)
    if len(whole.by_currency) < 2:
        assert there(whole.total).total == sum(totals.values())
    else:
        assert whole.total is None


@settings(max_examples=examples(20, 100))
@given(payments())
def test_certain_and_uncertain_sums_add_up_to_the_total(found: list[dict[str, Any]]) -> None:
    whole = made(found)
    added: dict[str | None, Decimal] = defaultdict(Decimal)
    for item in whole.sureness:
        if item.in_total:
            added[item.currency] += item.amount
    assert added == total_of(whole)
    for row in whole.payments:
        # The terminal reported a certain result, so the payment is counted and not in question.
        if row.standing is Certainty.CERTAIN:
            assert (row.section, row.in_question, row.unsure) == (Section.COUNTED, False, False)
        assert (row.standing in COUNTED_CERTAINTIES) == (row.section is Section.COUNTED)
        assert row.counted == (row.amount if row.section is Section.COUNTED else None)


@settings(max_examples=examples(20, 60))
@given(payments())
def test_every_payment_belongs_to_exactly_one_day_and_one_terminal(found: list[dict[str, Any]]) -> None:
    near = [DAY + timedelta(days=number) for number in range(-6, 7)]
    ended = {identity(item["number"]) for item in found if item["result"] is not None}
    days = [made(found, days_of(day, day, ZONE)) for day in near]
    assert sorted(row.client_transaction_id for day in days for row in day.payments if row.result) == sorted(ended)
    whole = days[6]
    parts = [made(found, days_of(DAY, DAY, ZONE, name)) for name in ("SN-1", "SN-2", "<script>")]
    together = sorted(row.client_transaction_id for part in parts for row in part.payments)
    assert together == sorted(row.client_transaction_id for row in whole.payments)


def test_each_kind_of_doubt_has_its_own_sum(shop: Book) -> None:
    shop.put(1, NOON, authorized=D("100.00"))
    fill_trouble(shop, NOON - timedelta(hours=12))
    sums = reported(shop, SPAN, NOON).sureness
    assert [(item.standing, item.number, item.amount, item.in_total) for item in sums if item.currency == "USD"] == [
        (Certainty.CERTAIN, 2, D("108.20"), True),
        (Certainty.BY_PERSON, 1, D("11.20"), True),
        (Certainty.NOT_COUNTED, 1, D("11.20"), False),
    ]
    # The terminal has not reported the currency of these payments.
    assert [(item.standing, item.number, item.amount) for item in sums if item.currency is None] == [
        (Certainty.BY_PERSON, 1, D("11.20")),
        (Certainty.OPEN, 1, D("11.20")),
        (Certainty.IN_DOUBT, 1, D("11.20")),
    ]


@pytest.mark.parametrize(
    ("payment", "standing"),
    [
        ({"attention": ("approval_unlikely",)}, Certainty.QUESTIONED),
        ({"result": "declined", "evidence": "operator"}, Certainty.DENIED),
        ({"kind": "pre-auth"}, None),
        ({"kind": "pre-auth", "result": None}, None),
        ({"result": None, "phase": Phase.IN_DOUBT}, Certainty.IN_DOUBT),
        ({"amount": {}}, Certainty.NOT_COUNTED),
    ],
)
def test_each_payment_has_its_certainty(shop: Book, payment: dict[str, Any], standing: Certainty | None) -> None:
    shop.put(1, NOON, **payment)
    assert one(shop).standing is standing


def one(shop: Book, number: int = 1) -> ReportPayment:
    (found,) = (row for row in reported(shop, SPAN, NOON).payments if row.client_transaction_id == identity(number))
    return found


@pytest.mark.parametrize(
    ("payment", "differs"),
    [
        ({"authorized": D("11.25")}, False),
        ({"authorized": D("11.250")}, False),
        ({"authorized": D("11.24")}, True),
        ({"authorized": D("12.25"), "tip": 1}, False),
        ({}, False),
        ({"kind": "void", "amount": {}, "original": 9, "authorized": D(12)}, False),
        ({"kind": "void", "amount": {}, "original": 9, "authorized": D(11)}, True),
        ({"kind": "refund", "amount": {"iva": 5}, "original": 9, "authorized": D(-5)}, False),
        ({"kind": "post-tip", "original": 9, "authorized": D("23.25")}, False),
        ({"authorized": D("11.24"), "result": "declined"}, False),
    ],
)
def test_a_difference_from_the_requested_amount_is_reported(shop: Book, payment: dict[str, Any], differs: bool) -> None:
    shop.put(9, NOON, amount=ASKED, authorized=D("12.00"))
    shop.put(1, NOON, **({"amount": ASKED} | payment))
    assert one(shop).differs == differs


@pytest.mark.parametrize(
    ("word", "by"),
    [
        (timedelta(0), "terminal"),
        (timedelta(minutes=-59), "terminal"),
        (timedelta(hours=-2), "posd"),
        (timedelta(minutes=59), "terminal"),
        (timedelta(hours=2), "posd"),
        (timedelta(days=-20000), "posd"),
    ],
)
def test_the_terminals_time_counts_if_its_clock_can_be_right(shop: Book, word: timedelta, by: str) -> None:
    shop.put(1, NOON, occurred_at=(NOON + word).isoformat())
    row = one(shop)
    assert datetime.fromisoformat(row.at) == (NOON + word if by == "terminal" else NOON)
    assert (row.at_by, row.clock_wrong) == (by, by == "posd")


@pytest.mark.parametrize("case", MOMENTS, ids=lambda case: repr(case["occurred_at"]))
def test_the_terminals_time_can_be_any_iso_8601_time(shop: Book, case: dict[str, str | None]) -> None:
    asked = datetime(2026, 11, 20, 4, 59, 50, tzinfo=UTC)
    shop.put(1, asked, occurred_at=case["occurred_at"], seconds=D(30))
    (row,) = reported(shop, days_of(DAY - timedelta(days=1), DAY, ZONE), NOON).payments
    assert row.at == (case["counts_at"] or iso(asked))


def test_a_payment_reported_days_late_counts_on_its_own_day(shop: Book) -> None:
    shop.put(1, NOON, occurred_at=(NOON + timedelta(seconds=9)).isoformat(), seconds=D(5 * 86400))
    assert (datetime.fromisoformat(one(shop).at) - NOON, one(shop).at_by) == (timedelta(seconds=9), "terminal")


@pytest.mark.parametrize(("took", "seconds"), [(D("30.25"), D("30.25")), (D(0), D(0)), (D(-1), None)])
def test_a_row_has_the_duration_and_the_reference_of_an_approval(shop: Book, took: D, seconds: D | None) -> None:
    shop.put(1, NOON, seconds=took)
    row = one(shop)
    assert (row.seconds, row.transaction_reference, row.currency) == (seconds, identity(1 + 10**9), "USD")


@pytest.mark.parametrize("of", ["charge", "void"])
def test_the_parts_of_a_reversal_are_those_of_its_original_with_a_minus(shop: Book, of: str) -> None:
    parts = {"iva": D("1.20"), "subtotal_iva": D("10.00"), "ice": D("0.30")}
    amount = {"iva": parts["iva"], "subtotal_iva": parts["subtotal_iva"], "extra_taxes": {"ice": parts["ice"]}}
    shop.put(1 if of == "charge" else 9, NOON, amount=amount)
    if of == "void":
        shop.put(1, NOON, kind="void", amount={}, original=9)
    assert one(shop).parts == {name: value if of == "charge" else -value for name, value in parts.items()}


@pytest.mark.parametrize(
    ("payment", "standing"),
    [({}, "certain"), ({"attention": ("conflicting_final",)}, "questioned"), ({"evidence": "operator"}, "by_person")],
)
def test_a_counted_correction_is_as_certain_as_its_payment(shop: Book, payment: Any, standing: str) -> None:
    shop.put(1, NOON, **payment)
    row = as_counted(one(shop), D(5), "USD")
    assert (row.standing, row.counted, row.unsure) == (standing, D(5), standing == "by_person")


@pytest.mark.parametrize(
    ("done", "became"),
    [
        ([], "held"),
        ([("capture", "declined")], "held"),
        ([("capture", None)], "in question"),
        ([("void", "approved")], "released"),
        ([("re-auth", "approved"), ("capture", "approved")], "captured"),
    ],
)
def test_each_reservation_has_its_state(shop: Book, done: list[tuple[str, str | None]], became: str) -> None:
    shop.put(1, NOON, kind="pre-auth")
    for place, (kind, result) in enumerate(done):
        shop.put(10 + place, NOON, kind=kind, result=result, original=1)
    assert one(shop).became == became


def test_the_original_of_a_void_may_belong_to_another_day(shop: Book) -> None:
    shop.put(9, NOON - timedelta(days=20), authorized=D("12.00"))
    shop.put(1, NOON, kind="void", amount={}, original=9, reversal="refund")
    shop.put(2, NOON, kind="void", amount={}, original=8)
    found = reported(shop, SPAN, NOON)
    assert found.total is not None
    assert (found.total.reversals, found.total.total) == (1, D("-12.00"))
    assert found.in_question == [identity(2)]


def test_a_payment_open_since_another_day_is_listed_and_not_counted(shop: Book) -> None:
    shop.put(1, NOON - timedelta(days=9), result=None)
    shop.put(2, NOON, authorized=D("11.20"))
    found = reported(shop, SPAN, NOON)
    assert (found.in_question, found.total and found.total.total) == ([identity(1)], D("11.20"))


def test_attentions_of_other_days_and_an_untrusted_clock_are_reported(shop: Book) -> None:
    shop.put(1, NOON - timedelta(days=9), attention=("gap",))
    shop.put(2, NOON, attention=("gap",))
    clock = [Stretch(f"2026-11-{day}T13:00:00.000Z", f"2026-11-{day}T14:00:00.000Z", "step") for day in (19, 20)]
    found = reported(shop, SPAN, NOON, clock=clock)
    assert (found.attention_elsewhere, found.clock_unsure) == (1, clock[1:])


@every(
    ("since", "until", "shown"),
    [
        ("2027-01-05", "2027-01-06", ("2026-11-20T09:00:00.000Z", "2026-11-20T10:00:00.000Z")),
        ("2027-01-05", None, ("2026-11-19T00:00:00.000Z", "2026-11-20T04:50:00.000Z")),
        ("2026-11-20", None, ("2020-01-01T00:00:00.000Z", "2020-01-01T01:00:00.000Z")),
        ("2026-11-01", "2026-12-01", (None, None)),
    ],
)
def test_a_day_that_a_wrong_clock_showed_is_marked(
    shop: Book, since: str, until: str | None, shown: tuple[str | None, str | None]
) -> None:
    """The payments of January were filed under the day that the clock showed, so the report of that day says so."""
    period = Stretch(f"{since}T00:00:00.000Z", until and f"{until}T00:00:00.000Z", "behind", *shown)
    away = Stretch("2027-01-05T00:00:00.000Z", None, "behind", "2026-11-21T06:00:00.000Z", "2026-11-22T00:00:00.000Z")
    assert reported(shop, SPAN, NOON, clock=[period, away]).clock_unsure == [period]


def test_sums_are_complete_even_if_the_list_is_not(shop: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_LISTED", 3)
    for number in range(7):
        shop.put(number, NOON, authorized=D("1.10"))
    found = reported(shop, SPAN, NOON)
    assert (len(found.payments), found.unlisted, found.total and found.total.total) == (3, 4, D("7.70"))


def test_many_payments_are_read_in_short_steps(shop: Book) -> None:
    for number in range(60):
        shop.put(number, NOON)
    steps = report.of_span(shop.db, SPAN, context(NOON), ())
    assert len(list(steps)) == 60 // report.STEP


async def test_a_payment_that_ends_during_a_report_belongs_to_the_next_report(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "posd.db", tmp_path / "lock")
    began, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def put(*numbers: int) -> Callable[[WriteTransaction], object]:
        return lambda unit: [Book(unit.db).put(number, NOON, authorized=D("1.10")) for number in numbers]

    def steps(db: sqlite3.Connection) -> Generator[None, None, PaymentReport]:
        found = report.of_span(db, SPAN, context(NOON), ())
        next(found)
        loop.call_soon_threadsafe(began.set)
        assert goes_on.wait(60)
        return (yield from found)

    await store.write(put(*range(report.STEP)))
    reading = asyncio.ensure_future(store.read_in_steps(steps, lambda: True))
    await began.wait()
    await store.write(put(97, 98))  # this write also does not wait for the reader
    goes_on.set()
    first, second = (
        await reading,
        await store.read_in_steps(partial(report.of_span, span=SPAN, context=context(NOON), clock=()), lambda: True),
    )
    assert first is not None
    assert second is not None
    assert [item.total and item.total.total for item in (first, second)] == [D("5.50"), D("7.70")]
    assert first.up_to < second.up_to
    await store.close()
