"""The daemon's report as it is drawn: its moments on the merchant's clock, and what stands in which place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from posd.base.times import parse_iso

#: A payment of the report, or one of its sums, as the local API has it.
Row = Mapping[str, Any]
#: Where a payment can stand, in the order in which people read it.
SECTIONS = ("counted", "reserved", "not_charged", "unclear", "open")
#: What can have become of a payment, in the order in which it is shown.
RESULTS = ("approved", "declined", "rejected", "canceled", "not_started", "open")
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class ReportView:
    """A report of `GET /v1/report`; `metadata` names the member that is shown, `expected` what it is compared with."""

    document: Mapping[str, Any]
    metadata: str | None = None
    expected: "Comparison | None" = None

    def __getitem__(self, name: str) -> Any:
        """Return a member of the document."""
        return self.document[name]

    def local(self, moment: str) -> datetime:
        """Return a moment as the merchant's clock shows it."""
        return parse_iso(moment).astimezone(ZoneInfo(self["timezone"]))

    @property
    def days(self) -> Sequence[date]:
        """Its days, in order."""
        first = self.local(self["since"]).date()
        last = (self.local(self["until"]) - timedelta(milliseconds=1)).date()
        return [first + timedelta(days=number) for number in range((last - first).days + 1)]

    @property
    def hours(self) -> Sequence[datetime]:
        """The hours of a day as they pass: one that the clock shows twice comes twice, a skipped one not at all."""
        start, end = parse_iso(self["since"]), parse_iso(self["until"])
        return [start + number * HOUR for number in range(-((start - end) // HOUR))]

    @property
    def one_day(self) -> bool:
        """Whether it is of one day, so that a time needs no date."""
        return self["shift"] is None and len(self.days) == 1

    @property
    def is_over(self) -> bool:
        """Whether nothing that comes now can be of it."""
        return self["shift"] is not None or bool(self["made_at"] >= self["until"])

    @property
    def totals(self) -> Sequence[Row]:
        """The grand total, or where there are several currencies that of each."""
        return [self["total"]] if self["total"] is not None else self["by_currency"]

    @property
    def by_currency(self) -> Sequence[Row]:
        """The rows of totals under a table: one for each currency, one where nothing is counted."""
        return self["by_currency"] or self.totals

    @property
    def several(self) -> bool:
        """Whether a currency has to stand beside each sum."""
        return len(self["by_currency"]) > 1

    def section(self, *names: str) -> Sequence[Row]:
        """Return the payments of these sections."""
        return [row for name in names for row in self["payments"] if row["section"] == name]

    def marked(self, name: str) -> Sequence[Row]:
        """Return the payments with a member that is true, or not empty."""
        return [row for row in self["payments"] if row[name]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The terminal's own total beside posd's, in a currency, "" for the only one."""

    expected: Decimal
    counted: Decimal
    currency: str

    @property
    def difference(self) -> Decimal:
        """The terminal's total less posd's."""
        return self.expected - self.counted

    @property
    def equal(self) -> bool:
        """Whether they are the same."""
        return self.expected == self.counted
