"""Output formats of a report. All formats have the same content, and no text in them can run as code."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posd.api import shifts
from posd.api.shifts import ShiftRequest
from posd.base.json_types import encode
from posd.base.text import Language
from posd.cli.explain.catalogue import use
from posd.cli.report import page
from posd.cli.report.view import FORMULA, ReportView, write_csv, write_json
from posd.client.documents import decode
from tests.support.book import Book, book, context, days_of, fill_day, fill_trouble, reported, whole
from tests.support.slow import examples

ZONE = ZoneInfo("America/Guayaquil")
DAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
#: Texts that a terminal or a till may send: formulas, markup, control characters.
texts = st.sampled_from(["SN-1", "=1+1", "<script>alert(1)</script>", "\"&'", "a\x00\x1b[31m\nb", "ñ☃", "-"]) | st.text(
    st.characters(codec="utf-8"), max_size=9
)
amounts = st.none() | st.decimals(0, 10**12, places=2)
rows = st.fixed_dictionaries(
    {
        "result": st.sampled_from(["approved", "approved", "declined", None]),
        "authorized": amounts,
        "brand": st.none() | texts,
        "currency": st.sampled_from(["USD", "EUR", "=1+1"]),
        "terminal": texts.filter(bool),
        "kind": st.sampled_from(["charge", "void", "pre-auth", None]),
        "sale": st.none() | texts,
        "attention": st.sampled_from([(), ("gap",), ("conflicting_final",)]),
    }
)


def view(shop: Book) -> ReportView:
    return ReportView(decode(encode(reported(shop, days_of(DAY, DAY, ZONE), NOON))))


@pytest.fixture
def shop() -> Iterator[Book]:
    with book() as made:
        yield made


@settings(max_examples=examples(10, 50), deadline=None)
@given(st.lists(rows, max_size=8))
def test_every_format_has_the_same_content_and_no_executable_text(found: list[dict[str, Any]]) -> None:
    with book() as shop:
        for number, row in enumerate(found):
            shop.put(number, NOON + timedelta(minutes=number), **row)
        report = view(shop)
    table = list(csv.DictReader(io.StringIO(write_csv(report), newline="")))
    assert [row["client_transaction_id"] for row in table] == [
        row["client_transaction_id"] for row in report["payments"]
    ]
    total = sum((item["total"] for item in report["by_currency"]), Decimal(0))
    assert sum((Decimal(row["counted"]) for row in table if row["counted"]), Decimal(0)) == total
    numbers = {"counted", "amount", "requested", "authorized", "seconds"}
    assert not any(row[name].startswith(FORMULA) for row in table for name in row.keys() - numbers)
    assert json.loads(write_json(report), parse_float=Decimal, parse_int=Decimal) == report.document
    text = page.write(report)
    assert "<script" not in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_correction_is_in_every_format(shop: Book) -> None:
    shop.put(1, NOON, authorized=Decimal("11.20"))
    for changed in ({}, {"result": "declined"}):
        shop.put(1, NOON, **({"authorized": Decimal("11.20")} | changed))
        shift, _ = whole(shifts.count(shop.db, ShiftRequest("Ana", "<late>"), context(NOON), 1))
        shifts.close(shop.unit, shift)
    made = whole(shifts.of_closed(shop.db, shifts.ReportOptions(context(NOON), ZONE, []), None))
    report = ReportView(decode(encode(made)))
    text = page.write(report)
    assert "hift 2, closed by Ana" in text
    assert "Note: &lt;late&gt;" in text
    assert "corrected here" in text
    assert ",correction," in write_csv(report)


def test_a_page_in_spanish_has_no_english_text(shop: Book) -> None:
    fill_trouble(shop, datetime(2026, 11, 20, tzinfo=ZONE))
    shop.put(90, NOON, authorized=Decimal("11.20"), currency=None)
    english = page.write(view(shop))
    template = Path(str(page.__file__)).with_name("page.html.j2").read_text("utf-8")
    of_template = set(re.findall(r'word\("([^"]+)"\)', template)) - {"total", "terminal"}
    use(Language.ES)
    try:
        spanish = page.write(view(shop))
    finally:
        use(Language.EN)
    assert ('lang="en"' in english, 'lang="es"' in spanish) == (True, True)
    seen = [set(re.findall(r"(?<=>)[^<>]+(?=<)", text)) for text in (english, spanish)]
    heads = [set(re.findall(r"<(?:th|h2|caption)[^>]*>([^<]+)<", text)) for text in (english, spanish)]
    assert heads[0] & heads[1] <= {"terminal", "total"}
    assert [text for text in of_template if text in seen[1]] == []
    assert "None" not in seen[0] | seen[1]


@pytest.mark.slow
def test_a_page_of_a_busy_day_has_a_reasonable_size(shop: Book) -> None:
    morning = datetime(2026, 11, 20, tzinfo=ZONE)
    fill_day(shop, 5000, morning, terminals=12)
    fill_trouble(shop, morning)
    text = page.write(view(shop))
    assert len(text) < 3_000_000
    assert text.index("Needs attention") < text.index("Totals")
    assert not any(word in text for word in ("http://", "https://", "src=", "@import", "url(/"))
