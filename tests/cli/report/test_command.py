"""`posd report` as people and scripts call it."""

import csv
import io
import json
import os
import re
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from rich.cells import cell_len

from posd.base.json_types import encode
from posd.clock.clock import Stretch
from tests.cli.documents import answer
from tests.cli.processes import Done, asked, asked_on_terminal
from tests.cli.stub import Answer
from tests.support.book import Book, book, days_of, fill_day, fill_trouble, identity, reported
from tests.support.tables import every

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
    metadata = arguments[arguments.index("--metadata") + 1] if "--metadata" in arguments else None
    return asked([made(fill, metadata, clock)], "report", *arguments)


def asks(done: Done, number: int = 0) -> dict[str, list[str]]:
    """Return the query of a call."""
    return parse_qs(urlsplit(done.calls[number].path).query)


def put(*rows: dict[str, Any]) -> Fill:
    """Insert payments at three in the afternoon (UTC), numbered from 1."""
    return lambda shop: [shop.put(number, AT, **row) for number, row in enumerate(rows, 1)]


def test_the_report_is_for_the_day_of_the_merchant() -> None:
    done = report(*DAY, "--metadata", "table")
    assert (done.returncode, len(done.calls)) == (0, 1)
    assert asks(done) == {
        "since": ["2026-11-20T05:00:00.000Z"],
        "until": ["2026-11-21T05:00:00.000Z"],
        "timezone": ["America/Guayaquil"],
        "metadata": ["table"],
    }


IN_TOKYO = answer({"timezone": "Asia/Tokyo"})


@every("config", ["", "[broken"])
def test_the_time_zone_of_a_day_comes_from_the_daemon(config: str) -> None:
    """The local configuration has another time zone. With that time zone the totals would belong to another day."""
    done = asked([IN_TOKYO, made(put())], "report", "2026-11-20", config=config)
    assert done.returncode == 0, done.stderr
    query = asks(done, 1)
    assert (query["since"], query["until"]) == (["2026-11-19T15:00:00.000Z"], ["2026-11-20T15:00:00.000Z"])


@every(
    ("given", "since", "zone"),
    [
        ("2026-11-20", "2026-11-19T15:00:00.000Z", True),
        ("2026-11-20 --utc", "2026-11-20T00:00:00.000Z", False),
        ("2026-11-20T00:00-05:00", "2026-11-20T05:00:00.000Z", False),
    ],
)
def test_a_day_of_a_list_is_also_a_day_of_the_merchant(given: str, since: str, zone: bool) -> None:
    page = answer({"transactions": [], "next_cursor": None})
    done = asked([*[IN_TOKYO] * zone, page], "list", "--since", *given.split())
    assert (done.returncode, asks(done, -1)["since"]) == (0, [since])


def test_the_table_in_a_pipe_has_every_payment_and_the_totals() -> None:
    done = report(*DAY, fill=put({"authorized": Decimal("11.20")}, {"result": "declined"}))
    assert done.returncode == 0
    assert f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(1 + 10**9)}\t000001\n" in done.stdout
    assert f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(2)}\tdeclined; 51: Insufficient funds\n" in done.stdout
    assert "SN-0001\t1\t11.20\t-\t-\t11.20\n" in done.stdout
    assert "Results: 1 approved, 1 declined" in done.stdout
    assert "Total: 11.20 USD\n" in done.stdout


def test_uncertain_sums_and_an_untrusted_clock_are_shown_with_the_total() -> None:
    def fill(shop: Book) -> None:
        shop.put(1, AT, authorized=Decimal("11.20"))
        fill_trouble(shop, MORNING)

    clock = [Stretch("2026-11-20T13:00:00.000Z", "2026-11-20T14:00:00.000Z", "step")]
    for way, marks in (
        ((), ["in doubt\tno\t1\t11.20\t", "certain\tyes\t2\t19.40\tUSD\n", "Total: 41.80 USD (clock unsure)\n"]),
        (("--html", "-"), ["total USD (clock unsure)", "<td>in doubt</td><td>no</td>", "not trust the clock of"]),
        (("--csv",), [",yes,in_doubt", ",yes,certain"]),
        (("--json",), ['"standing":"in_doubt"', '"clock_unsure":[{"since"']),
    ):
        done = report(*DAY, *way, fill=fill, clock=clock)
        assert [mark for mark in marks if mark not in done.stdout] == []
        if way == ("--csv",):
            assert "machine from 2026-11-20 08:00 to 2026-11-20 09:00" in " ".join(done.stderr.split())


def test_each_currency_has_its_totals() -> None:
    fill = put({"authorized": Decimal(10)}, {"authorized": Decimal(7), "currency": "EUR"})
    done = report(*DAY, fill=fill)
    assert "SN-0001\tEUR\t1\t7.00\t-\t-\t7.00\n" in done.stdout
    assert "Total: 7.00 EUR\nTotal: 10.00 USD\n" in done.stdout
    assert "17.00" not in done.stdout
    page = report(*DAY, "--html", "-", fill=fill).stdout
    assert ("<b>7.00</b><span>total EUR" in page, "<b>10.00</b><span>total USD" in page) == (True, True)
    assert "17.00" not in page


@every(
    ("expected", "code", "difference"),
    [("11.20", 0, "0.00"), ("11.2 USD", 0, "0.00"), ("11.00", 1, "-0.20"), ("5.00 EUR", 1, "5.00")],
)
def test_the_terminals_own_total_is_compared(expected: str, code: int, difference: str) -> None:
    done = report(*DAY, "--json", "--expect", expected, fill=put({"authorized": Decimal("11.20")}))
    assert done.returncode == code
    assert json.loads(done.stdout, parse_float=Decimal)["comparison"]["difference"] == Decimal(difference)
    for way in ((), ("--csv",), ("--html", "-")):
        told = report(*DAY, *way, "--expect", expected, fill=put({"authorized": Decimal("11.20")}))
        assert told.returncode == code
        assert "The terminal's total is" in " ".join((told.stdout + told.stderr).split())


def test_an_expected_total_needs_a_currency_if_there_are_several() -> None:
    fill = put({"authorized": Decimal(10)}, {"authorized": Decimal(7), "currency": "EUR"})
    assert report(*DAY, "--expect", "17", fill=fill).returncode == 2
    assert report(*DAY, "--expect", "7 EUR", fill=fill).returncode == 0


def test_on_a_terminal_the_report_fits_80_columns() -> None:
    def fill(shop: Book) -> None:
        fill_day(shop, 40, MORNING)
        fill_trouble(shop, MORNING)

    rows = json.loads(made(fill).body)["payments"]
    seen = asked_on_terminal([made(fill)], "report", *DAY)
    assert seen.returncode == 0
    # No line break splits a command, so that a person can copy the command.
    lines = [line for line in seen.screen.split("\n") if "posd " not in line]
    assert [line for line in lines if cell_len(line.rstrip()) > 80] == []
    for row in rows:  # a narrow table does not break text that a person copies
        assert (row["transaction_reference"] or row["client_transaction_id"]) in seen.screen
    assert re.search(r"charge +11\.20", seen.screen)
    assert "Needs" not in seen.screen
    assert "posd acknowledge" in seen.screen


@every("text", ["=1+1", "+1", "-1", "@x", " =1", "\N{FULLWIDTH EQUALS SIGN}1"])
def test_csv_has_no_formula(text: str) -> None:
    fill = put({"sale": text, "metadata": encode({"table": text})})
    done = report(*DAY, "--csv", "--metadata", "table", fill=fill)
    (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
    said = text.replace(text.lstrip(), f"'{text.lstrip()}")
    assert (row["sale"], row["metadata.table"]) == (said, said)


@every(
    ("text", "cell"),
    [
        ("table 7;=1+1", "table 7;'=1+1"),  # a spreadsheet with decimal commas separates cells by semicolons
        ('x; "=1+1', "x; \"'=1+1"),
        ("7-1, +2 = 8", "7-1, +2 = 8"),
        ("a\r\n=1", "a\\r\\n=1"),
        ("\t=1", "\\t=1"),
        ("a\x00\u2028\u202eb", r"a\u0000\u2028\u202eb"),
    ],
)
def test_a_text_in_the_csv_is_one_cell_in_one_line(text: str, cell: str) -> None:
    fill = put({"sale": "s", "metadata": encode({"table": text})})
    done = report(*DAY, "--csv", "--metadata", "table", fill=fill)
    (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
    assert row["metadata.table"] == cell
    assert len(done.stdout.splitlines()) == 2


def test_metadata_is_shown_only_on_request() -> None:
    fill = put({"metadata": encode({"email": "ana@example.org", "table": "seven"})})
    for way in ((), ("--csv",), ("--json",), ("--html", "-")):
        assert "ana@example.org" not in report(*DAY, *way, fill=fill).stdout
        shown = report(*DAY, *way, "--metadata", "table", fill=fill).stdout
        assert "seven" in shown
        assert "ana@example.org" not in shown


def test_an_unknown_terminal_is_reported() -> None:
    done = asked([made(put()), answer({"terminals": [{"serial": "SN-0001"}]})], "report", *DAY, "--terminal", "SN-1")
    assert (done.returncode, "Terminal SN-1 is not in the fleet" in done.stderr) == (0, True)


# The file.


def test_the_page_replaces_an_older_one_completely_and_is_private_to_its_owner(tmp_path: Path) -> None:
    page = tmp_path / "day.html"
    page.write_text("old")
    page.chmod(0o644)
    mask = os.umask(0)
    try:
        done = report(*DAY, "--html", str(page), fill=put({"result": None}))
    finally:
        os.umask(mask)
    assert done.stdout == f"Written: {page}, 1 payment.\nIt begins with what needs attention.\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [page]


def test_the_page_is_in_the_language_of_the_locale_and_a_csv_file_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    page, table = (report(*DAY, *way, fill=put({})).stdout for way in (("--html", "-"), ("--csv",)))
    assert '<html lang="es">' in page
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert table == report(*DAY, "--csv", fill=put({})).stdout


def test_today_is_today_in_the_merchants_time_zone() -> None:
    zone = ZoneInfo("Pacific/Kiritimati")  # 14 hours ahead of UTC, where the day mostly differs from this machine's day
    before = datetime.now(zone).date()
    done = asked([answer({"timezone": "Pacific/Kiritimati"}), made(put())], "report", "--json")
    assert done.returncode == 0
    (since,) = asks(done, 1)["since"]
    begins = datetime.fromisoformat(since).astimezone(zone)
    assert (begins.hour, begins.date() in (before, datetime.now(zone).date())) == (0, True)


def test_open_payments_are_listed_and_the_exit_code_is_0() -> None:
    done = report(*DAY, fill=put({"result": None}))
    assert done.returncode == 0
    assert "Not in the totals: 1 payment that may have moved money (11.20)." in done.stdout
    assert "Total: 0.00\n" in done.stdout


def test_a_device_is_written_to_and_not_replaced() -> None:
    assert report(*DAY, "--html", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
