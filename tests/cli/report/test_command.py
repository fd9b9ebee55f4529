"""`posd report` as people and scripts call it."""

import csv
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import msgspec
import pytest
from rich.cells import cell_len

from tests.cli.processes import Done, posd, posd_on_terminal
from tests.cli.report.shopday import day, identity, payment, trouble
from tests.cli.stub import Answer, Stub, problem
from tests.support.daemon import toml

AT = datetime(2026, 11, 20, 15, 0, tzinfo=UTC)
ZONE = ("--timezone", "America/Guayaquil")
DAY = ("2026-11-20", *ZONE)
#: What posd says of its clock.
BELIEVED = Answer(body=b'{"unsure": []}')


def listed(*transactions: dict[str, Any], cursor: str | None = None) -> Answer:
    """A page of the list, with exact numbers."""
    document = {"transactions": transactions, "next_cursor": cursor}
    return Answer(body=msgspec.json.Encoder(decimal_format="number").encode(document))


@contextmanager
def daemon(home: Path, *transactions: dict[str, Any], more: tuple[Answer, ...] = ()) -> Iterator[Stub]:
    """A daemon with these payments; `more` it answers after them."""
    opened = [item for item in transactions if item["outcome"] is None]
    attention = [item for item in transactions if item["attention"]]
    with Stub(home / "s", [listed(*opened), listed(*transactions), *more, listed(*attention), BELIEVED]) as stub:
        yield stub


def report(home: Path, *arguments: str, transactions: tuple[dict[str, Any], ...] = ()) -> Done:
    with daemon(home, *transactions):
        return posd("report", *arguments, socket=home / "s")


def test_it_asks_for_what_can_be_of_the_day(tmp_path: Path) -> None:
    with daemon(tmp_path) as stub:
        assert posd("report", *DAY, socket=tmp_path / "s").returncode == 0
    asked = [parse_qs(urlsplit(call.path).query) for call in stub.calls]
    # Two days before the day, and an hour after it: as far as a terminal's clock is believed.
    assert asked == [
        {"limit": ["500"], "open": ["true"], "until": ["2026-11-21T06:00:00.000Z"]},
        {"limit": ["500"], "since": ["2026-11-18T05:00:00.000Z"], "until": ["2026-11-21T06:00:00.000Z"]},
        {"limit": ["500"], "attention": ["true"]},
        {},  # the clock
    ]


def test_a_day_of_several_pages_is_read_to_the_end(tmp_path: Path) -> None:
    pages = [listed(payment(number, AT, authorized=Decimal("1.10")), cursor=str(number)) for number in range(3)]
    with Stub(tmp_path / "s", [listed(), *pages, listed(payment(9, AT)), listed()]) as stub:
        done = posd("report", *DAY, "--json", socket=tmp_path / "s")
    assert json.loads(done.stdout, parse_float=Decimal)["total"]["total"] == Decimal("14.50")
    assert [parse_qs(urlsplit(call.path).query).get("cursor") for call in stub.calls[2:5]] == [["0"], ["1"], ["2"]]


def test_the_original_of_a_void_is_asked_for_where_it_is_of_another_day(tmp_path: Path) -> None:
    original = payment(1, AT - timedelta(days=20), authorized=Decimal("12.00"))
    voids = [
        payment(2, AT, type="void", amount={}, original=identity(1), outcome={"reversal": "refund"}),
        payment(3, AT, type="void", amount={}, original=identity(4)),
    ]
    one = msgspec.json.Encoder(decimal_format="number").encode(original)
    answers = {identity(1): Answer(body=one), identity(4): problem(404, "not_found", "there is no such transaction")}
    with daemon(tmp_path, *voids, more=tuple(answers[name] for name in sorted(answers))):
        done = posd("report", *DAY, "--json", socket=tmp_path / "s")
    made = json.loads(done.stdout, parse_float=Decimal)
    assert made["total"] == {
        "payments": 0, "charged": 0, "reversals": 1, "reversed": Decimal("-12.00"), "total": Decimal("-12.00"),
    }  # fmt: skip
    assert made["in_question"] == [identity(3)]


def test_the_table_in_a_pipe_has_every_payment_and_the_totals(tmp_path: Path) -> None:
    items = (payment(1, AT, authorized=Decimal("11.20")), payment(2, AT, result="declined"))
    done = report(tmp_path, *DAY, transactions=items)
    assert done.returncode == 0
    assert f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(1 + 10**9)}\t000001\n" in done.stdout
    assert f"10:00:11\tcharge\tSN-0001\t11.20\t{identity(2)}\tdeclined; 51: Insufficient funds\n" in done.stdout
    assert "SN-0001\t1\t11.20\t-\t-\t11.20\n" in done.stdout
    assert "Results: 1 approved, 1 declined" in done.stdout
    assert "Total: 11.20 USD\n" in done.stdout


def test_what_is_open_is_told_and_the_exit_code_is_0_all_the_same(tmp_path: Path) -> None:
    done = report(tmp_path, *DAY, transactions=(payment(1, AT, result=None),))
    assert done.returncode == 0
    assert "Not in the totals: 1 payment that may have moved money (11.20)." in done.stdout
    assert "Total: 0.00\n" in done.stdout


def test_what_is_not_certain_and_an_unsure_clock_stand_beside_the_total(tmp_path: Path) -> None:
    items = (payment(1, AT, authorized=Decimal("11.20")), *trouble(AT - timedelta(hours=12)))
    unsure = Answer(body=b'{"unsure": [{"since": "2026-11-20T13:00:00.000Z", "until": "2026-11-20T14:00:00.000Z"}]}')
    for way, marks in (
        ((), ["in doubt\tno\t1\t11.20\n", "certain\tyes\t2\t19.40\n", "Total: 41.80 USD (clock unsure)\n"]),
        (("--html", "-"), ["total USD (clock unsure)", "<td>in doubt</td><td>no</td>", "not believed from"]),
        (("--csv",), [",yes,in_doubt", ",yes,certain"]),
        (("--json",), ['"standing":"in_doubt","in_total":false,"number":1,"amount":11.20', '"clock_unsure":["The']),
    ):
        opened = [item for item in items if item["outcome"] is None]
        attention = [item for item in items if item["attention"]]
        with Stub(tmp_path / "s", [listed(*opened), listed(*items), listed(*attention), unsure]):
            done = posd("report", *DAY, *way, socket=tmp_path / "s")
        assert [mark for mark in marks if mark not in done.stdout] == []
        if way == ("--csv",):
            assert "was not believed from 2026-11-20 08:00 to 2026-11-20 09:00" in " ".join(done.stderr.split())


def test_on_a_terminal_it_fits_80_columns(tmp_path: Path) -> None:
    morning = datetime(2026, 11, 20, tzinfo=ZoneInfo("America/Guayaquil"))
    items = (*day(40, morning), *trouble(morning.astimezone(UTC)))
    with daemon(tmp_path, *items):
        seen = posd_on_terminal("report", *DAY, socket=tmp_path / "s")
    assert seen.returncode == 0
    # A command is never broken: it is there to be copied.
    lines = [line for line in seen.screen.split("\n") if "posd " not in line]
    assert [line for line in lines if cell_len(line.rstrip()) > 80] == []
    for item in items:  # no table is so narrow that it breaks what is there to be copied
        outcome = item["outcome"] or {}
        assert (outcome.get("transaction_reference") or item["client_transaction_id"]) in seen.screen
    assert re.search(r"charge +11\.20", seen.screen)
    assert "Needs" not in seen.screen
    assert "posd acknowledge" in seen.screen


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", " =1", "\N{FULLWIDTH EQUALS SIGN}1"])
def test_csv_holds_no_formula(tmp_path: Path, text: str) -> None:
    items = (payment(1, AT, sale=text, metadata={"table": text}, type="charge"),)
    done = report(tmp_path, *DAY, "--csv", "--metadata", "table", transactions=items)
    (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
    said = text.replace(text.lstrip(), f"'{text.lstrip()}")
    assert (row["sale"], row["metadata.table"]) == (said, said)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("table 7;=1+1", "table 7;'=1+1"),  # a spreadsheet of a country with a decimal comma separates there
        ('x; "=1+1', "x; \"'=1+1"),
        ("7-1, +2 = 8", "7-1, +2 = 8"),
        ("a\r\n=1", "a\\r\\n=1"),
        ("\t=1", "\\t=1"),
        ("a\x00\u2028\u202eb", r"a\u0000\u2028\u202eb"),
    ],
)
def test_a_text_in_the_csv_is_one_cell_in_one_line(tmp_path: Path, text: str, cell: str) -> None:
    items = (payment(1, AT, sale="s", metadata={"table": text}, type="charge"),)
    done = report(tmp_path, *DAY, "--csv", "--metadata", "table", transactions=items)
    (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
    assert row["metadata.table"] == cell
    assert len(done.stdout.splitlines()) == 2


def test_metadata_are_shown_only_where_they_are_asked_for(tmp_path: Path) -> None:
    items = (payment(1, AT, metadata={"email": "ana@example.org", "table": {"row": 7}}),)
    for way in ((), ("--csv",), ("--json",), ("--html", "-")):
        assert "ana@example.org" not in report(tmp_path, *DAY, *way, transactions=items).stdout
        shown = report(tmp_path, *DAY, *way, "--metadata", "table", transactions=items).stdout
        assert "row 7" in shown
        assert "ana@example.org" not in shown


def test_attention_of_other_days_is_counted(tmp_path: Path) -> None:
    old = payment(1, AT - timedelta(days=9), attention=[{"code": "gap", "since": "x", "detail": ""}])
    with Stub(tmp_path / "s", [listed(), listed(), listed(old)]):
        done = posd("report", *DAY, socket=tmp_path / "s")
    assert "Payments of other days that need attention too: 1 (posd list --attention)." in done.stdout


def test_a_terminal_that_is_not_there_is_told(tmp_path: Path) -> None:
    answers = [listed(), listed(), listed(), Answer(body=b'{"terminals": [{"serial": "SN-0001"}]}')]
    with Stub(tmp_path / "s", answers):
        done = posd("report", *DAY, "--terminal", "SN-1", socket=tmp_path / "s")
    assert done.returncode == 0
    assert "Terminal SN-1 is not in the fleet" in done.stderr


# the file


def test_the_page_replaces_an_older_one_whole_with_the_permissions_of_a_new_file(tmp_path: Path) -> None:
    page = tmp_path / "day.html"
    page.write_text("old")
    page.chmod(0o600)
    mask = os.umask(0o027)
    try:
        done = report(tmp_path, *DAY, "--html", str(page), transactions=(payment(1, AT, result=None),))
    finally:
        os.umask(mask)
    assert done.stdout == f"Written: {page}, 1 payment.\nIt begins with what needs attention.\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day.html", "s"]


def test_a_page_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    done = report(tmp_path, *DAY, "--html", str(tmp_path / "none" / "day.html"))
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "No such file or directory; name a file in a directory that you may write to" in done.stderr


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    assert report(tmp_path, *DAY, "--html", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


# usage


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--csv", "--json"), "choose one"),
        (("--html", "x", "--csv"), "choose one"),
        (("--html", ""), "--html needs the name of a file"),
        (("2026-02-30",), "write one as 2026-11-20, or today, or yesterday"),
        (("--from", "x"), "Invalid value for --from: 'x' is not a day"),
        (("--to", "today"), "--to needs --from"),
        (("today", "--from", "today"), "give the one or the others"),
        (("--from", "2026-11-20", "--to", "2026-11-19"), "the days end (2026-11-19) before they begin (2026-11-20)"),
        (("--timezone", "Mars/Olympus"), "'Mars/Olympus' is not a time zone"),
        (("--timezone", "../etc"), "is not a time zone"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    zone = () if "--timezone" in arguments else ZONE
    done = posd("report", *arguments, *zone, socket=tmp_path / "s")
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())


def test_without_a_configuration_the_time_zone_is_asked_for(tmp_path: Path) -> None:
    done = posd("report", config=tmp_path / "none.toml", socket=tmp_path / "s")
    assert done.returncode == 2
    assert "which time zone?" in done.stderr
    assert "--timezone NAME" in done.stderr


def test_a_daemon_that_is_not_there_is_exit_code_3(tmp_path: Path) -> None:
    done = posd("report", *ZONE, socket=tmp_path / "s")
    assert done.returncode == 3
    assert "cannot reach posd" in done.stderr


def test_today_is_today_in_the_merchants_time_zone(tmp_path: Path) -> None:
    zone = ZoneInfo("Pacific/Kiritimati")  # 14 hours before UTC: mostly another day than this machine's
    config = tmp_path / "config.toml"
    config.write_text(toml(tmp_path, "", extra='[merchant]\ntimezone = "Pacific/Kiritimati"'))
    before = datetime.now(zone).date().isoformat()
    with daemon(tmp_path):
        done = posd("report", "--json", config=config, socket=tmp_path / "s")
    made = json.loads(done.stdout)
    assert made["from"] in (before, datetime.now(zone).date().isoformat())
    assert (made["from"], made["timezone"]) == (made["to"], "Pacific/Kiritimati")
