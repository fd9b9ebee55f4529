"""The totals, for any payments: exact, the same in every order, and each payment in exactly one place."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posd.cli.report import exports, page, sums
from posd.cli.report.command import window
from posd.cli.report.facts import Span, money, read
from posd.cli.report.standing import COUNTED_STANDINGS, Section, Standing
from posd.cli.report.sums import Report, make
from tests.cli.documents import attention
from tests.cli.report.shopday import day, identity, payment, trouble
from tests.support.slow import examples

ZONE = ZoneInfo("America/Guayaquil")
DAY = date(2026, 11, 20)
SPAN = Span(DAY, DAY, ZONE)
NOON = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)

amounts = st.decimals(0, 10**12, places=2) | st.decimals(0, 10, places=4)
#: Texts as a terminal and a till may say them: formulas, markup, control characters.
texts = st.sampled_from(
    ["SN-1", "=1+1", "<script>alert(1)</script>", "\"&'", "a\x00\x1b[31m\nb", "ñ☃", "-", ""]
) | st.text(max_size=9)


@st.composite
def payments(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw payments around the day, of every type and end, some of them done to others."""
    count = draw(st.integers(0, 12))
    found: list[dict[str, Any]] = []
    for number in range(count):
        kind = draw(st.sampled_from(["charge", "capture", "post-tip", "void", "pre-auth", "re-auth", None]))
        original = draw(st.none() | st.integers(0, count).map(identity)) if kind in ("void", "post-tip") else None
        result = draw(st.sampled_from(["approved"] * 4 + ["declined", "rejected", "canceled", "not_started", None]))
        brand = draw(st.none() | texts)
        found.append(
            payment(
                number,
                NOON + timedelta(minutes=draw(st.integers(-3000, 3000))),
                result=result,
                seconds=draw(st.decimals(0, 90000, places=3)),
                authorized=draw(st.none() | amounts),
                occurred_at=draw(st.sampled_from([None, "1970-01-01T00:00:00Z", "no time"])),
                brand=brand,
                currency=draw(st.sampled_from([None, "USD", "USD", "EUR"])),
                evidence=draw(st.sampled_from(["event", "event", "search", "operator"])),
                outcome={"reversal": draw(st.sampled_from([None, "cancellation", "refund"]))} if result else {},
                terminal=draw(st.sampled_from(["SN-1", "SN-2"]) | texts.filter(bool)),
                type=kind,
                amount={"subtotal_iva0": draw(amounts), "iva": draw(amounts)} if draw(st.booleans()) else {},
                original=original,
                sale=draw(st.none() | texts),
                next_step=draw(st.sampled_from(["done", "ask_person"])),
                attention=draw(st.sampled_from([[], [attention("gap", "<b>")], [attention("new_code", "x")]])),
            )
        )
    return found


def made(documents: list[dict[str, Any]], **options: Any) -> Report:
    return make(SPAN, [read(item) for item in documents], {}, NOON, **options)


@settings(max_examples=examples(10, 50))
@given(payments())
def test_every_total_is_the_sum_of_its_rows(documents: list[dict[str, Any]]) -> None:
    report = made(documents)
    rows = sum((item.counted for item in report.payments if item.counted is not None), Decimal(0))
    assert report.total.total == rows
    keys: list[Callable[..., str]] = [sums.terminal_of, sums.kind_of, sums.brand_of, sums.currency_of]
    for groups in (*(report.by(key) for key in keys), report.by(*keys), sums.by_hour(report)):
        assert sum((item.total for item in groups), Decimal(0)) == rows
        assert sum(item.payments + item.reversals for item in groups) == len(report.counted)
        assert all(item.charged >= 0 >= item.reversed for item in groups)
    assert sum((part.total for part in report.parts), Decimal(0)) == rows
    assert sum((item.total for _, item in sums.by_day(report)), Decimal(0)) == rows


@settings(max_examples=examples(10, 50))
@given(payments())
def test_what_is_certain_and_what_is_not_add_up_to_the_total(documents: list[dict[str, Any]]) -> None:
    report = made(documents)
    found = {item.standing: item for item in report.sureness}
    assert sum((item.amount for item in found.values() if item.in_totals), Decimal(0)) == report.total.total
    for item in report.payments:
        # What is certain was said by the terminal, and nothing is open about it.
        if item.standing is Standing.CERTAIN:
            assert (item.section, item.in_question, item.unsure) == (Section.COUNTED, False, False)
        assert (item.standing in COUNTED_STANDINGS) == (item.section is Section.COUNTED)
    assert sum(item.number for item in found.values()) == sum(item.standing is not None for item in report.payments)


def test_each_kind_of_doubt_has_a_sum_of_its_own() -> None:
    report = made([payment(1, NOON, authorized=Decimal("100.00")), *trouble(NOON - timedelta(hours=12))])
    assert [(item.standing, item.number, item.amount, item.in_totals) for item in report.sureness] == [
        (Standing.CERTAIN, 2, Decimal("108.20"), True),
        (Standing.BY_PERSON, 2, Decimal("22.40"), True),
        (Standing.OPEN, 1, Decimal("11.20"), False),
        (Standing.IN_DOUBT, 1, Decimal("11.20"), False),
        (Standing.NOT_COUNTED, 1, Decimal("11.20"), False),
    ]
    unlikely = made([payment(1, NOON, attention=[attention("approval_unlikely", "x")]), payment(2, NOON)])
    assert [(item.standing, item.number) for item in unlikely.sureness] == [
        (Standing.CERTAIN, 1),
        (Standing.QUESTIONED, 1),
    ]
    denied = made([payment(1, NOON, result="declined", evidence="operator"), payment(2, NOON, type="pre-auth")])
    assert [item.standing for item in denied.sureness] == [Standing.CERTAIN, Standing.DENIED]


@settings(max_examples=examples(10, 50))
@given(payments(), st.randoms())
def test_the_order_of_reading_does_not_matter(documents: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(documents)
    random.shuffle(shuffled)
    assert made(shuffled) == made(documents)


@settings(max_examples=examples(10, 50))
@given(payments())
def test_every_payment_is_in_exactly_one_section_and_on_exactly_one_day(documents: list[dict[str, Any]]) -> None:
    report = made(documents)
    listed = [item.facts.id for section in Section for item in report.sections[section]]
    assert sorted(listed) == sorted(item.facts.id for item in report.payments)
    assert len(set(listed)) == len(listed)
    near = [Span(DAY + timedelta(days=number), DAY + timedelta(days=number), ZONE) for number in range(-5, 6)]
    for document in documents:
        facts = read(document)
        days = [span for span in near if sums.belongs(facts, span)]
        assert len(days) == 1 or facts.result is None
        # Each payment that counts to a day is asked for: by creation, or because it is open.
        for span in days:
            since, until = window(span)
            assert facts.created_at < until
            assert facts.result is None or since <= facts.created_at


@settings(max_examples=examples(10, 50))
@given(payments())
def test_one_terminal_after_the_other_is_the_whole(documents: list[dict[str, Any]]) -> None:
    whole = made(documents)
    parts = [made(documents, terminal=name) for name in {item.facts.terminal for item in whole.payments}]
    assert sum((part.total.total for part in parts), Decimal(0)) == whole.total.total


@settings(max_examples=examples(10, 30))
@given(payments())
def test_what_is_written_says_the_same_and_nothing_that_runs(documents: list[dict[str, Any]]) -> None:
    report = made(documents)
    rows = list(csv.DictReader(io.StringIO(exports.write_csv(report), newline="")))
    assert [row["client_transaction_id"] for row in rows] == [item.facts.id for item in report.payments]
    assert sum((Decimal(row["counted"]) for row in rows if row["counted"]), Decimal(0)) == report.total.total
    numbers = {"counted", "amount", "requested", "authorized", "seconds"}
    assert not any(row[name].startswith(exports.FORMULA) for row in rows for name in row.keys() - numbers)
    document = json.loads(exports.write_json(report), parse_float=Decimal, parse_int=Decimal)
    assert document["total"]["total"] == report.total.total
    text = page.write(report)
    assert "<script" not in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_amounts_of_a_broken_terminal_stay_exact() -> None:
    broken = [
        payment(1, NOON, authorized=Decimal(10**24 - 1)),
        payment(2, NOON, authorized=Decimal("0." + "0" * 23 + "1")),
    ]
    report = made(broken)
    assert money(report.total.total) == "9" * 24 + "." + "0" * 23 + "1"
    assert (
        made([payment(number, NOON, authorized=Decimal(10**24 - 1)) for number in range(2)]).total.total
        == 2 * 10**24 - 2
    )
    assert "999" in page.write(report)


def test_what_is_open_since_another_day_is_told_and_counted_nowhere() -> None:
    old = payment(1, NOON - timedelta(days=9), result=None)
    report = made([old, payment(2, NOON, authorized=Decimal("11.20"))])
    assert [item.facts.id for item in report.in_question] == [identity(1)]
    assert report.total.total == Decimal("11.20")


@pytest.mark.parametrize(("first", "hours"), [(date(2026, 10, 25), 25), (date(2026, 3, 29), 23)])
def test_hours_of_a_day_of_changing_clocks(first: date, hours: int) -> None:
    span = Span(first, first, ZoneInfo("Europe/Madrid"))
    items = [read(payment(number, span.start + timedelta(minutes=60 * number + 5))) for number in range(hours)]
    report = make(span, items, {}, span.end)
    assert [item.payments for item in sums.by_hour(report)] == [1] * hours


def test_how_long_it_took() -> None:
    seconds = [Decimal(value) for value in ("1.999", "2", "4", "9", "400")]
    found = sums.times(made([payment(number, NOON, seconds=value) for number, value in enumerate(seconds)]))
    assert (found.count, found.median, found.p95, found.longest) == (5, Decimal(4), Decimal(400), Decimal(400))
    assert [column.count for column in found.columns] == [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    none = sums.times(made([payment(1, NOON, result="not_started", evidence="refusal")]))
    assert (none.count, none.median) == (0, None)


@pytest.mark.slow
def test_a_page_of_a_busy_day_has_a_reasonable_size() -> None:
    morning = SPAN.start.astimezone(ZONE)
    text = page.write(made(day(5000, morning, terminals=12) + trouble(morning)))
    assert len(text) < 3_000_000
    assert text.index("Needs attention") < text.index("Totals")
    assert not any(word in text for word in ("http://", "https://", "src=", "@import", "url(/"))
