"""`posd report` as people and scripts call it: the days, the formats and the file."""

import csv
import io
import json
import os
import re
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from posd.api import shifts
from posd.api.shifts import ShiftRequest
from posd.base.json_types import encode
from posd.cli.report import page
from posd.cli.report.view import FORMULA, ReportView, span, write_csv, write_json
from posd.client.documents import decode
from posd.clock.clock import Stretch
from tests.rig.book import Book, book, context, days_of, fill_trouble, identity, reported, whole
from tests.rig.commands import Done, asked
from tests.rig.documents import answer
from tests.rig.slow import examples
from tests.rig.stub import Answer
from tests.rig.tables import every

DAY_OF = date(2026, 11, 20)
ZONE_OF = ZoneInfo("America/Guayaquil")
AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
MORNING = datetime(2026, 11, 20, tzinfo=ZONE_OF)
ZONE = ("--timezone", "America/Guayaquil")
DAY = ("2026-11-20", *ZONE)
Fill = Callable[[Book], object]


def made(fill: Fill, metadata: str | None = None, clock: Sequence[Stretch] = ()) -> Answer:
    """Return the daemon's report of the day, from inserted payments."""
    with book() as shop:
        fill(shop)
        return Answer(body=encode(reported(shop, days_of(DAY_OF, DAY_OF, ZONE_OF), AT, metadata, clock)))


def report(*arguments: str, fill: Fill = lambda _: None, clock: Sequence[Stretch] = ()) -> Done:
    """Run the command for the day."""
    metadata = arguments[arguments.index("--metadata") + 1] if "--metadata" in arguments else None
    return asked([made(fill, metadata, clock)], "report", *DAY, *arguments)


def asks(done: Done, number: int = 0) -> dict[str, list[str]]:
    """Return the query of a call."""
    return parse_qs(urlsplit(done.calls[number].path).query)


def put(*rows: dict[str, Any]) -> Fill:
    """Insert payments at three in the afternoon (UTC), numbered from 1."""
    return lambda shop: [shop.put(number, AT, **row) for number, row in enumerate(rows, 1)]


def test_the_report_is_for_days_in_the_merchants_time_zone() -> None:
    done = report("--metadata", "table").ends(0)
    days = {"since": ["2026-11-20T05:00:00.000Z"], "until": ["2026-11-21T05:00:00.000Z"]}
    assert asks(done) == days | {"timezone": ["America/Guayaquil"], "metadata": ["table"]}


def test_the_time_zone_of_a_day_comes_from_the_daemon() -> None:
    """The local configuration has another time zone. With that time zone the totals would belong to another day."""
    tokyo, page = answer({"timezone": "Asia/Tokyo"}), answer({"transactions": [], "next_cursor": None})
    for config in ("", "[broken"):
        done = asked([tokyo, made(put())], "report", "2026-11-20", config=config).ends(0)
        query = asks(done, 1)
        assert (query["since"], query["until"]) == (["2026-11-19T15:00:00.000Z"], ["2026-11-20T15:00:00.000Z"])
    for day, since, script in (
        ("2026-11-20", "2026-11-19T15:00:00.000Z", [tokyo, page]),
        ("2026-11-20 --utc", "2026-11-20T00:00:00.000Z", [page]),
        ("2026-11-20T00:00-05:00", "2026-11-20T05:00:00.000Z", [page]),
    ):
        assert asks(asked(script, "list", "--since", *day.split()).ends(0), -1)["since"] == [since]


def test_the_table_in_a_pipe_has_every_payment_and_the_totals() -> None:
    words = (
        f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(1 + 10**9)}\t000001\n",
        f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(2)}\tdeclined; 51: Insufficient funds\n",
        "SN-0001\t1\t11.20\t-\t-\t11.20\n",
        "Results: 1 approved, 1 declined",
        "Total: 11.20 USD\n",
    )
    report(fill=put({"authorized": Decimal("11.20")}, {"result": "declined"})).ends(0, *words)
    # An operator decided this payment without --reference.
    line = ("10:00:00\tcharge\tSN-0001\t11.20\t-\t000001; ", f"; decided by an operator; transaction {identity(1)}\n")
    report(fill=put({"evidence": "operator"})).ends(0, *line)


def test_uncertain_sums_and_an_untrusted_clock_are_shown_with_the_total() -> None:
    def fill(shop: Book) -> None:
        shop.put(1, AT, authorized=Decimal("11.20"))
        fill_trouble(shop, MORNING)

    clock = [Stretch("2026-11-20T13:00:00.000Z", "2026-11-20T14:00:00.000Z", "step")]
    for way, marks in (
        ((), ["in doubt\tno\t1\t11.20\t", "certain\tyes\t2\t19.40\tUSD\n", "Total: 30.60 USD (clock unsure)\n"]),
        (("--html", "-"), ["total USD (clock unsure)", "<td>in doubt</td><td>no</td>", "not trust the clock of"]),
        (("--csv",), [",yes,in_doubt", ",yes,certain"]),
        (("--json",), ['"standing":"in_doubt"', '"clock_unsure":[{"since"']),
    ):
        done = report(*way, fill=fill, clock=clock).ends(0, *marks)
        if way == ("--csv",):
            assert "until 2026-11-20 08:00, and again from 2026-11-20 09:00 on." in " ".join(done.stderr.split())


@every(("currency", "name", "said"), [("EUR", "EUR", "EUR"), (None, "not named", "(currency not named)")])
def test_each_currency_has_its_totals_even_an_unknown_one(currency: str | None, name: str, said: str) -> None:
    fill = put({"authorized": Decimal(7), "currency": currency}, {"authorized": Decimal(10)})
    rows = (f"SN-0001\t{name}\t1\t7.00\t-\t-\t7.00\n", f"Total: 7.00 {said}\n", "Total: 10.00 USD\n")
    report(fill=fill).ends(0, *rows, lacks=["17.00"])
    sums = (f"<b>7.00</b><span>total {said}", "<b>10.00</b><span>total USD")
    report("--html", "-", fill=fill).ends(0, *sums, lacks=["17.00"])
    for expected, code in (("17", 2), ("10 USD", 0)):  # an expected total needs a currency
        report("--expect", expected, fill=fill).ends(code)


@every(
    ("expected", "code", "difference"),
    [("11.20", 0, "0.00"), ("11.2 USD", 0, "0.00"), ("11.00", 1, "-0.20"), ("5.00 EUR", 1, "5.00")],
)
def test_the_terminals_own_total_is_compared(expected: str, code: int, difference: str) -> None:
    done = report("--json", "--expect", expected, fill=put({"authorized": Decimal("11.20")})).ends(code)
    assert json.loads(done.stdout, parse_float=Decimal)["comparison"]["difference"] == Decimal(difference)
    for way in ((), ("--csv",), ("--html", "-")):
        told = report(*way, "--expect", expected, fill=put({"authorized": Decimal("11.20")}))
        said = " ".join((told.stdout + told.stderr).split())
        assert (told.returncode, "The terminal's total is" in said) == (code, True)


def test_on_a_screen_the_report_fits_80_columns() -> None:
    def fill(shop: Book) -> None:
        results, kinds = ("approved", "declined", "rejected"), ("charge", "pre-auth", "post-tip")
        for number, (result, kind, brand) in enumerate(product(results, kinds, ("VISA", "DINERS CLUB")), 1):
            paid = {"authorized": Decimal(number * 240) + Decimal("0.15")} if result == "approved" else {}
            sale = f"2026-11-20/till-{number % 4 + 1}/{1000 + number}"
            shop.put(number, AT + timedelta(minutes=number), result=result, kind=kind, brand=brand, sale=sale, **paid)
        shop.put(40, AT, kind="void", amount={}, original=1, authorized=Decimal("240.15"), reversal="cancellation")
        fill_trouble(shop, MORNING)

    rows = json.loads(made(fill).body)["payments"]
    seen = asked([made(fill)], "report", *DAY, types="").ends(0, "posd acknowledge", lacks=["Needs"])
    # No line break splits a command, so that a person can copy the command.
    lines = [line for line in seen.screen.split("\n") if "posd " not in line]
    assert [line for line in lines if cell_len(line.rstrip()) > 80] == []
    for row in rows:  # a narrow table does not break text that a person copies
        assert (row["transaction_reference"] or row["client_transaction_id"]) in seen.screen
    assert re.search(r"charge +11\.20", seen.screen)


@every(
    ("text", "cell"),
    [
        *((text, f"'{text}") for text in ("=1+1", "+1", "-1", "@x", "\N{FULLWIDTH EQUALS SIGN}1")),
        (" =1", " '=1"),
        ("table 7;=1+1", "table 7;'=1+1"),  # a spreadsheet with decimal commas separates cells by semicolons
        ('x; "=1+1', "x; \"'=1+1"),
        ("7-1, +2 = 8", "7-1, +2 = 8"),
        ("a\r\n=1", "a\\r\\n=1"),
        ("\t=1", "\\t=1"),
        ("a\x00\u2028\u202eb", r"a\u0000\u2028\u202eb"),
    ],
)
def test_csv_has_no_formula_and_a_text_adds_neither_a_cell_nor_a_line(text: str, cell: str) -> None:
    fill = put({"sale": text, "metadata": encode({"table": text})})
    done = report("--csv", "--metadata", "table", fill=fill)
    (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
    assert (row["sale"], row["metadata.table"]) == (cell, cell)
    assert len(done.stdout.splitlines()) == 2


def test_metadata_is_shown_only_on_request() -> None:
    fill = put({"metadata": encode({"email": "ana@example.org", "table": "seven"})})
    for way in ((), ("--csv",), ("--json",), ("--html", "-")):
        plain, shown = (report(*way, *more, fill=fill).stdout for more in ((), ("--metadata", "table")))
        assert ("seven" in plain, "seven" in shown, "ana@example.org" in plain + shown) == (False, True, False)


def test_an_unknown_terminal_is_reported() -> None:
    script = [made(put()), answer({"terminals": [{"serial": "SN-0001"}]})]
    asked(script, "report", *DAY, "--terminal", "SN-1").ends(0, "Terminal SN-1 is not in the fleet")


# The file.


def test_the_page_replaces_an_older_page_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    page = tmp_path / "day.html"
    page.write_text("old")
    page.chmod(0o644)
    mask = os.umask(0)
    try:
        done = report("--html", str(page), fill=put({"result": None}))
    finally:
        os.umask(mask)
    assert done.stdout == f"Written: {page}, 1 payment.\nThe page begins with what needs attention.\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert (stat.S_IMODE(page.stat().st_mode), list(tmp_path.iterdir())) == (0o600, [page])
    report("--html", "/dev/null").ends(0)  # a device is written to and not replaced
    assert Path("/dev/null").is_char_device()


def test_the_page_is_in_the_language_of_the_locale_but_csv_is_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(shop: Book) -> None:
        fill_trouble(shop, MORNING)
        shop.put(90, AT, authorized=Decimal("11.20"), currency=None)

    written = {}
    for language, locale in (("es", "es_EC.UTF-8"), ("en", "C.UTF-8")):
        monkeypatch.setenv("LC_ALL", locale)
        written[language] = [report(*way, fill=fill).stdout for way in (("--html", "-"), ("--csv",))]
        assert f'<html lang="{language}">' in written[language][0]
    heads = [set(re.findall(r"<(?:th|h2|caption)[^>]*>([^<]+)<", page)) for page, _ in written.values()]
    assert heads[0] & heads[1] <= {"terminal", "total"}
    assert written["es"][1] == written["en"][1]
    assert ">None<" not in str(written)


def test_today_is_today_in_the_merchants_time_zone() -> None:
    zone = ZoneInfo("Pacific/Kiritimati")  # 14 hours ahead of UTC, where the day mostly differs from this machine's day
    before = datetime.now(zone).date()
    done = asked([answer({"timezone": "Pacific/Kiritimati"}), made(put())], "report", "--json").ends(0)
    (since,) = asks(done, 1)["since"]
    begins = datetime.fromisoformat(since).astimezone(zone)
    assert (begins.hour, begins.date() in (before, datetime.now(zone).date())) == (0, True)


def test_open_payments_are_listed_and_the_exit_code_is_0() -> None:
    words = ("Not in the totals: 1 payment that may have moved money (11.20).", "Total: 0.00\n")
    report(fill=put({"result": None})).ends(0, *words)


# Output formats. All formats have the same content, and no text in them can run as code.


NOON = datetime(2026, 11, 20, 17, 0, tzinfo=UTC)
#: Texts that a terminal or a till may send: formulas, markup, control characters.
texts = st.sampled_from(["SN-1", "=1+1", "<script>alert(1)</script>", "\"&'", "a\x00\x1b[31m\nb", "ñ☃", "-"]) | st.text(
    st.characters(codec="utf-8"), max_size=9
)
rows = st.fixed_dictionaries(
    {
        "result": st.sampled_from(["approved", "approved", "declined", None]),
        "authorized": st.none() | st.decimals(0, 10**12, places=2),
        "brand": st.none() | texts,
        "currency": st.sampled_from(["USD", "EUR", "=1+1"]),
        "terminal": texts.filter(bool),
        "kind": st.sampled_from(["charge", "void", "pre-auth", None]),
        "sale": st.none() | texts,
        "attention": st.sampled_from([(), ("gap",), ("conflicting_final",)]),
    }
)


def view(shop: Book) -> ReportView:
    return ReportView(decode(encode(reported(shop, days_of(DAY_OF, DAY_OF, ZONE_OF), NOON))))


@settings(max_examples=examples(10, 50), deadline=None)
@given(st.lists(rows, max_size=8))
def test_every_format_has_the_same_content_and_no_executable_text(found: list[dict[str, Any]]) -> None:
    with book() as shop:
        for number, row in enumerate(found):
            shop.put(number, NOON + timedelta(minutes=number), **row)
        report = view(shop)
    table = list(csv.DictReader(io.StringIO(write_csv(report), newline="")))
    identities = [[row["client_transaction_id"] for row in rows] for rows in (table, report["payments"])]
    assert identities[0] == identities[1]
    total = sum((item["total"] for item in report["by_currency"]), Decimal(0))
    assert sum((Decimal(row["counted"]) for row in table if row["counted"]), Decimal(0)) == total
    numbers = {"counted", "amount", "requested", "authorized", "seconds"}
    assert not any(row[name].startswith(FORMULA) for row in table for name in row.keys() - numbers)
    assert json.loads(write_json(report), parse_float=Decimal, parse_int=Decimal) == report.document
    text = page.write(report)
    assert not [word for word in ("<script", "http://", "https://", "src=", "@import", "url(/") if word in text]
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_correction_is_in_every_format() -> None:
    with book() as shop:
        for changed in ({}, {"result": "declined"}):
            shop.put(1, NOON, **({"authorized": Decimal("11.20")} | changed))
            shift, _ = whole(shifts.count(shop.db, ShiftRequest("Ana", "<late>"), context(NOON), 1))
            shifts.close(shop.unit, shift)
        made = whole(shifts.of_closed(shop.db, shifts.ReportOptions(context(NOON), ZONE_OF, []), None))
    report = ReportView(decode(encode(made)))
    text = page.write(report)
    words = ("hift 2, closed by Ana", "Note: &lt;late&gt;", "corrected here")
    assert ([each for each in words if each not in text], ",correction," in write_csv(report)) == ([], True)


# Days of the merchant: beginning, end, and accepted formats.


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        # Days of the past. For future days, versions of the time zone data can differ.
        ("America/Guayaquil", date(2024, 11, 20), 24),
        ("Europe/Madrid", date(2024, 3, 31), 23),
        ("Europe/Madrid", date(2024, 10, 27), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # this day has no midnight
        ("America/Havana", date(2024, 11, 3), 25),  # this day has two midnights
        ("Australia/Lord_Howe", date(2024, 10, 6), 23.5),
    ],
)
def test_a_day_has_the_hours_between_two_midnights(zone: str, day: date, hours: float) -> None:
    start, end = span(day, day, ZoneInfo(zone))
    next_day = day + timedelta(days=1)
    assert end - start == timedelta(hours=hours)
    assert span(day, next_day, ZoneInfo(zone)) == (start, span(next_day, next_day, ZoneInfo(zone))[1])
