"""The daemon's report as data: days and times in the merchant's zone, sections, CSV and JSON."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from posd.base.text import shown
from posd.base.times import parse_iso
from posd.cli.app.output import money
from posd.cli.explain.catalogue import chosen
from posd.client.documents import encode

#: Years that a report can have: a wide range, but far from the limits of date arithmetic.
YEARS = range(1970, 9000)

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def span(first: date, last: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the first moment of the days from `first` to `last`, and the moment after them, in UTC.

    If the clock skips midnight, the day begins after the skipped time.
    """
    start, end = (datetime.combine(day, time.min, zone).astimezone(UTC) for day in (first, last + timedelta(days=1)))
    return start, end


def read_day(text: str, today: date) -> date:
    """Parse `today`, `yesterday` or a date such as 2026-11-20. Raise ValueError with the allowed formats."""
    words = {"today": today, "yesterday": today - timedelta(days=1)}
    if text in words:
        return words[text]
    with suppress(ValueError):  # a date that does not exist, such as 31 April
        if _DAY.fullmatch(text) and (day := date.fromisoformat(text)).year in YEARS:
            return day
    raise ValueError(chosen("report")["says"]["no_day"].format(text=text))


# The daemon's report for display.

#: Payment in the report, or one of its totals, as in the local API.
Row = Mapping[str, Any]
#: Sections of payments, in the order of display.
SECTIONS = ("counted", "reserved", "not_charged", "unclear", "open")
#: Results of payments, in the order of display.
RESULTS = ("approved", "declined", "rejected", "canceled", "not_started", "open")
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class ReportView:
    """Report of `GET /v1/report`. `metadata`: name of the metadata member to show, or None.

    `expected`: comparison with the total of --expect, or None.
    """

    document: Mapping[str, Any]
    metadata: str | None = None
    expected: "Comparison | None" = None

    def __getitem__(self, name: str) -> Any:
        """Return a member of the document."""
        return self.document[name]

    def local(self, moment: str) -> datetime:
        """Return a time in the merchant's zone."""
        return parse_iso(moment).astimezone(ZoneInfo(self["timezone"]))

    @property
    def days(self) -> Sequence[date]:
        """The days of the report, in order."""
        first = self.local(self["since"]).date()
        last = (self.local(self["until"]) - timedelta(milliseconds=1)).date()
        return [first + timedelta(days=number) for number in range((last - first).days + 1)]

    @property
    def hours(self) -> Sequence[datetime]:
        """Beginnings of the hours of the report.

        If a clock change repeats an hour, it occurs twice; a skipped hour is missing.
        """
        start, end = parse_iso(self["since"]), parse_iso(self["until"])
        return [start + number * HOUR for number in range(-((start - end) // HOUR))]

    def only_day(self, day: date) -> bool:
        """Return whether this is the report's only day, so that a time on it needs no date."""
        return self["shift"] is None and self.days == [day]

    @property
    def is_over(self) -> bool:
        """Whether the report is complete, so that no later payment belongs to it."""
        return self["shift"] is not None or bool(self["made_at"] >= self["until"])

    @property
    def totals(self) -> Sequence[Row]:
        """The total, or one for each currency."""
        return [self["total"]] if self["total"] is not None else self["by_currency"]

    @property
    def by_currency(self) -> Sequence[Row]:
        """Rows of totals: one for each currency, or one if nothing is counted."""
        return self["by_currency"] or self.totals

    @property
    def several(self) -> bool:
        """Whether the report has several currencies."""
        return len(self["by_currency"]) > 1

    def section(self, *names: str) -> Sequence[Row]:
        """Return the payments in some sections."""
        return [row for name in names for row in self["payments"] if row["section"] == name]

    def marked(self, name: str) -> Sequence[Row]:
        """Return the payments whose member `name` is true or not empty."""
        return [row for row in self["payments"] if row[name]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of the terminal's total (--expect) with posd's. `currency`: "" for the only currency."""

    expected: Decimal
    counted: Decimal
    currency: str

    @property
    def difference(self) -> Decimal:
        """Terminal's total minus posd's."""
        return self.expected - self.counted

    @property
    def equal(self) -> bool:
        """Whether both totals are equal."""
        return self.expected == self.counted


# The report for programs: CSV (RFC 4180) and JSON (docs/guides/report.md).

#: Characters with which a formula in a spreadsheet begins. The last four are full-width forms.
FORMULA = (
    *("=", "+", "-", "@"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
#: Pattern of a place before such a character where a cell may begin: at the start of a text, or after a semicolon. A
#: semicolon separates cells in countries with a decimal comma.
_BEGINS = re.compile(rf'(^|;)([\s"]*)(?=[{re.escape("".join(FORMULA))}])')

#: Columns of the CSV: members of a payment.
COLUMNS = (
    *("at", "at_by", "client_transaction_id", "terminal", "type", "kind", "section", "result", "counted", "amount"),
    *("amount_by", "requested", "authorized", "currency", "brand", "transaction_reference", "ticket_number"),
    *("authorization_code", "sale", "original", "created_at", "decided_at", "seconds", "in_question", "attention"),
    *("clock_unsure", "standing"),
)
#: Columns with times, and with amounts.
_TIMES = frozenset({"at", "created_at", "decided_at"})
_AMOUNTS = frozenset({"counted", "amount", "requested", "authorized"})


def write_csv(report: ReportView) -> str:
    """Return the report as CSV. Times are in the merchant's zone."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    extra = [] if report.metadata is None else [f"metadata.{report.metadata}"]
    writer.writerow(map(_cell, (*COLUMNS, *extra)))
    for payment in report["payments"]:
        row = payment | {
            "result": payment["result"] or "open",
            "in_question": "yes" if payment["in_question"] else "no",
            "attention": " ".join(item["code"] for item in payment["attention"]),
            "clock_unsure": "yes" if report["clock_unsure"] else "no",
        }
        row |= {name: report.local(row[name]).isoformat(timespec="milliseconds") for name in _TIMES if row[name]}
        row |= {name: Decimal(money(row[name])) for name in _AMOUNTS if row[name] is not None}
        last = [] if report.metadata is None else [payment.get("metadata")]
        writer.writerow(map(_cell, [*(row[column] for column in COLUMNS), *last]))
    return text.getvalue()


def write_json(report: ReportView) -> bytes:
    """Return the daemon's report as JSON, with the comparison if there is one."""
    if (found := report.expected) is None:
        return encode(report.document)
    named = {"expected": found.expected, "counted": found.counted, "difference": found.difference}
    return encode({**report.document, "comparison": {**named, "currency": found.currency or None}})


def _cell(value: str | Decimal | int | None) -> str:
    """Return the text of a CSV cell.

    A number has its sign. A text is one line, and no spreadsheet reads it as a formula.
    """
    if value is None or isinstance(value, Decimal | int):
        return "" if value is None else f"{value:f}"
    return _BEGINS.sub(r"\1\2'", shown(value))
