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
from msgspec import UNSET
from msgspec.structs import replace

from posd.base.times import iso
from posd.clock.clock import Stretch
from posd.payments import report, rows
from posd.payments.accounting import as_counted, currency_of, feed_outcome
from posd.payments.counting import Section
from posd.payments.model import Result
from posd.payments.outcomes import inferred
from posd.payments.report_documents import COUNTED_CERTAINTIES, Certainty, PaymentReport, ReportPayment
from posd.records.model import Phase
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store
from tests.rig.book import Book, book, context, days_of, fill_trouble, identity, reported
from tests.rig.slow import examples
from tests.rig.tables import every, there

ZONE = ZoneInfo("America/Guayaquil")
MOMENTS: list[dict[str, str | None]] = json.loads((Path(__file__).parents[1] / "vectors" / "moments.json").read_text())
DAY = date(2026, 11, 20)
SPAN = days_of(DAY, DAY, ZONE)
NOON = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
PARTS = {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "ice": Decimal("0.05")}
ASKED = {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "extra_taxes": {"ice": Decimal("0.05")}}
EURO = {"operation": {"amount": {"currency": "EUR"}}}
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


def one(shop: Book, metadata: str | None = None) -> ReportPayment:
    found = reported(shop, SPAN, NOON, metadata).payments
    return next(row for row in found if row.client_transaction_id == identity(1))


@every(
    ("payment", "shown"),
    [
        ({}, {"ticket_number": "000001", "authorization_code": "000001", "brand": "VISA", "amount_by": "requested"}),
        ({}, {"decided_at": "2026-11-20T17:00:11.200Z", "seconds": D("11.2"), "original": None, "became": None}),
        ({}, {"transaction_reference": identity(1 + 10**9), "currency": "USD", "requested": D("11.20"), "was": None}),
        ({}, {"by_person": False, "unsure": False, "in_question": False, "failure": None}),
        ({"seconds": D(0)}, {"seconds": D(0)}),
        ({"seconds": D(-1)}, {"seconds": None}),
        ({"event": {"terminal": {"serial_number": "SN-0002"}}}, {"terminal": "SN-0002"}),
        ({"event": {"terminal": {}}}, {"terminal": "SN-0001"}),
        ({"currency": None, "event": EURO}, {"currency": "EUR"}),
        ({"event": EURO}, {"currency": "USD"}),
        ({"evidence": "operator"}, {"by_person": True, "unsure": True, "seconds": None, "currency": None}),
        ({"evidence": "unsent"}, {"by_person": False, "standing": "by_person", "at_by": "posd", "clock_wrong": False}),
        ({"attention": ("approval_unlikely",)}, {"standing": "questioned"}),
        (
            {"result": "declined"},
            {"failure": "51: Insufficient funds", "brand": None, "unsure": False, "standing": None},
        ),
        ({"result": "declined", "was": "approved"}, {"was": "approved", "unsure": False}),
        ({"result": "declined", "evidence": "operator"}, {"standing": "not_charged_by_person"}),
        ({"result": "declined", "attention": ("illegal_transition",)}, {"standing": "not_counted"}),
        ({"result": "declined", "attention": ("conflicting_final",)}, {"standing": "not_counted", "in_question": True}),
        ({"was": "declined"}, {"was": "declined", "unsure": True, "standing": "by_person"}),
        ({"was": "approved"}, {"was": None, "unsure": False}),
        ({"result": None}, {"decided_at": None, "in_question": True, "was": None, "failure": None, "standing": "open"}),
        ({"result": None, "phase": Phase.IN_DOUBT}, {"standing": "in_doubt", "differs": False}),
        ({"amount": {}}, {"requested": None, "amount": None, "in_question": True, "standing": "not_counted"}),
        ({"amount": {"iva": 1, "extra_taxes": {"ice": 2, "iva": 3}}}, {"parts": {"iva": 4, "ice": 2}}),
        ({"kind": "pre-auth"}, {"standing": None, "became": "held"}),
        ({"kind": "pre-auth", "result": None}, {"standing": None, "became": None}),
        ({"kind": "re-auth", "original": 8}, {"became": None, "of": "reservation"}),
        ({"kind": "void", "original": 8, "result": None}, {"standing": None}),
        ({"kind": "void", "amount": {}, "original": 9, "brand": None}, {"original": identity(9), "brand": "VISA"}),
        ({"kind": "void", "amount": {}, "original": 9}, {"parts": {name: -value for name, value in PARTS.items()}}),
        (
            {"kind": "void", "brand": "AMEX", "amount": {"iva": 5}},
            {"parts": {"iva": -5}, "amount": -5, "brand": "AMEX"},
        ),
        ({"kind": "void", "amount": {}}, {"parts": {}, "amount": None, "in_question": True}),
        ({"kind": "refund", "amount": {"iva": 5}, "original": 9}, {"parts": {"iva": -5}}),
    ],
)
def test_a_row_shows_what_posd_knows_of_a_payment(shop: Book, payment: Any, shown: dict[str, Any]) -> None:
    shop.put(9, NOON, amount=ASKED, authorized=D("12.00"))
    shop.put(8, NOON, kind="pre-auth")
    shop.put(1, NOON, **payment)
    row = one(shop)
    assert {name: getattr(row, name) for name in shown} == shown


@every(("key", "shown"), [("bill", "A 7"), ("table", "12"), ("none", ""), ("guests", "[1.10]"), ("other", "")])
def test_a_row_has_the_chosen_member_of_the_metadata_as_text(shop: Book, key: str, shown: str) -> None:
    shop.put(1, NOON, metadata=b'{"bill":"A 7","table":12,"none":null,"guests":[1.10]}')
    assert (one(shop, key).metadata, one(shop).metadata) == (shown, UNSET)


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
        ({"kind": "void", "amount": {"iva": D("11.2")}, "original": 8, "authorized": D("13.2")}, False),
        ({"kind": "void", "amount": {"iva": 5}, "original": 9, "authorized": D(5)}, False),
        ({"kind": "void", "amount": {"iva": 5}, "original": 9, "authorized": D(-12)}, True),
        ({"kind": "refund", "amount": {"iva": D("11.2")}, "original": 8, "authorized": D("13.2")}, True),
        ({"kind": "refund", "amount": {"iva": 5}, "original": 9, "authorized": D(6)}, True),
        ({"kind": "refund", "amount": {"iva": 5}, "original": 9}, False),
        ({"kind": "refund", "amount": {}, "original": 9, "authorized": D(12)}, False),
        ({"kind": "refund", "amount": {}, "original": 9, "authorized": D(11)}, True),
        ({"kind": "void", "amount": {}, "original": 7, "authorized": D(12)}, False),
        ({"kind": "void", "amount": {}, "original": 8, "authorized": D("11.20")}, False),
        ({"kind": "void", "amount": {}, "original": 8, "authorized": D("13.20")}, False),
        ({"kind": "void", "amount": {}, "original": 8, "authorized": D("2.00")}, True),
        ({"kind": "post-tip", "original": 9, "authorized": D("23.25")}, False),
        ({"kind": "post-tip", "original": 9, "authorized": D("11.26")}, True),
        ({"authorized": D("12.25"), "tip": 1, "event": {"operation": {}}}, False),
        ({"authorized": D("12.25"), "event": {"operation": {"amount": {"tip": 1}}}}, False),
        ({"amount": {}, "authorized": D("12.25")}, False),
        ({"authorized": D("11.24"), "result": "declined"}, False),
    ],
)
def test_a_difference_from_the_requested_amount_is_reported(shop: Book, payment: dict[str, Any], differs: bool) -> None:
    shop.put(9, NOON, amount=ASKED, authorized=D("12.00"))
    shop.put(8, NOON, amount=ASKED, authorized=D("11.20"))
    shop.put(10, NOON, kind="post-tip", original=8, amount={"tip": 2})
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


@pytest.mark.parametrize(
    ("payment", "standing", "unsure"),
    [
        ({}, "certain", False),
        ({"attention": ("gap",)}, "certain", False),
        ({"attention": ("approval_unlikely",)}, "questioned", False),
        ({"amount": {}}, "questioned", False),
        ({"evidence": "operator"}, "by_person", True),
        ({"was": "declined"}, "by_person", True),
        ({"result": None}, "questioned", True),
    ],
)
def test_a_counted_correction_is_as_certain_as_its_payment(
    shop: Book, payment: Any, standing: str, unsure: bool
) -> None:
    shop.put(1, NOON, **payment)
    row = as_counted(one(shop), D(5), "EUR")
    assert (row.standing, row.unsure, row.section, row.parts) == (standing, unsure, "counted", {})
    assert (row.amount, row.counted, row.currency) == (D(5), D(5), "EUR")


@pytest.mark.parametrize(
    ("done", "became"),
    [
        ([], "held"),
        ([("capture", "declined")], "held"),
        ([("capture", None)], "in question"),
        ([("void", "approved")], "released"),
        ([("void", "declined")], "held"),
        ([("capture", None), ("void", "approved")], "released"),
        ([("re-auth", "approved"), ("capture", "approved")], "captured"),
    ],
)
def test_each_reservation_has_its_state(shop: Book, done: list[tuple[str, str | None]], became: str) -> None:
    shop.put(1, NOON, kind="pre-auth")
    for place, (kind, result) in enumerate(done):
        shop.put(10 + place, NOON, kind=kind, result=result, original=1)
    assert one(shop).became == became


def last_change(shop: Book) -> RecordedChange:
    return changes.after(shop.db, 0, 1000)[-1]


@every(
    ("payment", "told"),
    [
        ({}, {"result": "approved", "status": "APPROVAL", "decided_by": "event", "corrected": False, "type": "charge"}),
        ({}, {"currency": "USD", "of": "payment", "counted": D("11.20"), "occurred_at": "2026-11-20T17:00:11.200Z"}),
        ({"currency": None, "event": EURO}, {"currency": "EUR"}),
        ({"event": EURO}, {"currency": "USD"}),
        ({"was": "declined"}, {"corrected": True, "result": "approved"}),
        ({"evidence": "operator"}, {"decided_by": "operator", "status": None, "occurred_at": None, "currency": None}),
        ({"event": {"occurred_at": ""}}, {"occurred_at": None}),
        ({"result": "declined"}, {"counted": None, "amount": {"iva": D("1.20"), "subtotal_iva": D(10)}}),
        ({"kind": "void", "amount": {}, "original": 9}, {"original": identity(9), "counted": D("-12.00")}),
        ({"kind": "pre-auth"}, {"of": "reservation", "counted": None}),
    ],
)
def test_the_feed_tells_head_office_the_outcome_and_its_amount(shop: Book, payment: Any, told: dict[str, Any]) -> None:
    shop.put(9, NOON, authorized=D("12.00"))
    shop.put(1, NOON, metadata=b'{"bill":7}', **payment)
    plain, whole = (there(feed_outcome(shop.db, last_change(shop), metadata=adds)) for adds in (False, True))
    assert {name: getattr(plain, name) for name in told} == told
    assert (plain.metadata, bytes(whole.metadata or b"")) == (UNSET, b'{"bill":7}')
    assert currency_of(shop.db, there(rows.get(shop.db, identity(1)))) == plain.currency, "the list has it too"


@every(
    ("result", "at", "decided"),
    [("approved", 9, 8), ("approved", 8, 8), ("approved", 7, 4), ("approved", 1, 8), ("declined", 7, 6)],
)
def test_after_corrections_an_earlier_change_still_has_its_own_outcome(
    shop: Book, result: str, at: int, decided: int
) -> None:
    """If all outcomes are later than the change (the clock was set back), the newest outcome with its result counts."""
    hours = [NOON + timedelta(hours=hour) for hour in range(10)]
    withdrawn = None
    for hour, word in ((4, Result.APPROVED), (6, Result.DECLINED), (8, Result.APPROVED)):
        withdrawn = replace(inferred(word, [], hours[hour]), supersedes=withdrawn)
    shop.put(1, NOON, result=None, withdrawn=withdrawn)
    change = replace(last_change(shop), result=result, at=iso(hours[at]))
    told = there(feed_outcome(shop.db, change, metadata=False))
    assert (told.decided_at, told.decided_by) == (iso(hours[decided]), None)
    assert currency_of(shop.db, there(rows.get(shop.db, identity(1)))) is None
    for other in ({"kind": "print_job"}, {"result": None}, {"result": "rejected"}, {"id": identity(2)}):
        assert feed_outcome(shop.db, replace(change, **other), metadata=False) is None


def test_a_change_before_a_correction_has_no_data_of_the_later_outcome(shop: Book) -> None:
    shop.put(1, NOON, was="declined")
    told = there(feed_outcome(shop.db, replace(last_change(shop), result="declined"), metadata=False))
    assert (told.result, told.counted, told.currency, told.occurred_at) == ("declined", None, None, None)


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
