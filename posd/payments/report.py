"""Report: totals of the payments in a span of time, by currency (local API, GET /report).

The report is read in short steps on one state of the database.
"""

import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET

from posd.base.money import ZERO, total
from posd.base.operations import OPERATIONS, RESERVING, REVERSING
from posd.base.times import iso, parse_iso
from posd.clock.clock import Stretch
from posd.payments import rows
from posd.payments.accounting import CLOCKS_DIFFER, LONGEST_PAYMENT, RowContext, read_row
from posd.payments.counting import Of, Section
from posd.payments.report_documents import (
    ADDED,
    COUNTED_CERTAINTIES,
    MOST_LISTED,
    Certainty,
    CertaintySum,
    Duration,
    Durations,
    PartSum,
    PaymentReport,
    ReportPayment,
    ReportSum,
    ReportTotals,
    ReservedSum,
    ShiftState,
    TerminalResults,
)
from posd.storage import changes

#: Number of payments that are read in one step. A step blocks other reads for a few milliseconds.
STEP = 5
#: Largest number of days in one report.
MOST_DAYS = 366
#: Kinds of operations in the order of the report (`counting.Effect.kind`). Other kinds follow, sorted by name.
KINDS = (
    *(kind for kind in OPERATIONS if kind not in RESERVING | REVERSING),
    *("cancellation", "refund", "void"),
    *(kind for kind in OPERATIONS if kind in RESERVING),
    "release",
)
#: Word in the counts of results for a payment without an outcome.
OPEN = "open"
#: Upper limits of the histogram's columns, in seconds. The columns are narrow where most payments fall.
LIMITS: Sequence[int] = (2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300)


class ReportSpan(msgspec.Struct, frozen=True):
    """Options of a report: begin, end, time zone, and terminal. `terminal`: None for all terminals."""

    since: datetime
    until: datetime
    zone: ZoneInfo
    terminal: str | None = None

    @property
    def days(self) -> tuple[date, date]:
        """The first and the last day of the report."""
        last = self.until - timedelta(microseconds=1)
        return self.since.astimezone(self.zone).date(), last.astimezone(self.zone).date()


#: Name of totals in the report -> fields by which payments are grouped. All totals are also grouped by currency.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "by_currency": (),
    "by_terminal": ("terminal",),
    "by_type": ("type", "of"),
    "by_terminal_and_type": ("terminal", "type", "of"),
    "by_brand": ("brand",),
    "by_day": ("day",),
    "by_hour": ("starts_at", "hour"),
}
_BY_TIME = frozenset({"by_day", "by_hour"})

_Key = tuple[str | None, ...]


class _Running:
    """Running sum of charges and of reversals. `unknown`: number of payments without a known amount."""

    def __init__(self) -> None:
        self.numbers = [0, 0]
        self.amounts = [ZERO, ZERO]
        self.unknown = 0

    def add(self, amount: Decimal | None, *, reverses: bool = False) -> None:
        self.numbers[reverses] += 1
        self.amounts[reverses] = total((self.amounts[reverses], amount or ZERO))
        self.unknown += amount is None

    @property
    def added(self) -> tuple[int, Decimal, int]:
        """Number of payments, their sum, and the number without a known amount."""
        return self.numbers[0], self.amounts[0], self.unknown

    def document(self, **common: Any) -> ReportSum:
        return ReportSum(
            **common,
            payments=self.numbers[0],
            charged=self.amounts[0],
            reversals=self.numbers[1],
            reversed=self.amounts[1],
            total=total(self.amounts),
        )


class ReportSums:
    """Sums of the rows that were added."""

    def __init__(self, span: ReportSpan, *, by_time: bool) -> None:
        """`by_time`: whether to add up by day and by hour too.

        The report of a shift has no such sums, because the content of a shift does not depend on a clock.
        """
        first, last = span.days
        self._zone = span.zone
        self._one_day = first == last
        self._groups = {name: of for name, of in _GROUPS.items() if by_time or name not in _BY_TIME}
        self._all = _Running()
        self._sums: dict[str, defaultdict[_Key, _Running]] = {name: defaultdict(_Running) for name in _GROUPS}
        self._parts: defaultdict[_Key, _Running] = defaultdict(_Running)
        self._reserved: defaultdict[_Key, _Running] = defaultdict(_Running)
        self._sureness: defaultdict[tuple[Certainty, str | None], _Running] = defaultdict(_Running)
        self._counts = Counter[Section]()
        self._results: dict[str, Counter[str]] = {}
        self._seconds: list[Decimal] = []
        self.number = 0
        self.listed: list[ReportPayment] = []
        self.ids: set[str] = set()
        self.marked: dict[str, list[str]] = {"in_question": [], "differs": [], "unsure": []}
        self.wrong_clocks: set[str] = set()

    def add(self, row: ReportPayment) -> None:
        """Add a row to all sums that it belongs to."""
        identity = row.client_transaction_id
        self.ids.add(identity)
        if len(self.listed) < MOST_LISTED:
            self.listed.append(row)
        self.number += 1
        self._counts[row.section] += 1
        for name, ids in self.marked.items():
            if getattr(row, name):
                ids.append(identity)
        if row.clock_wrong:
            self.wrong_clocks.add(row.terminal)
        if row.correction is UNSET and not row.removed:
            self._results.setdefault(row.terminal, Counter())[row.result or OPEN] += 1
            if row.seconds is not None and row.section is not Section.OPEN:
                self._seconds.append(row.seconds)
        if row.standing is not None:
            self._sureness[row.standing, row.currency].add(row.amount)
        if row.section is Section.COUNTED:
            self._count(row)
        elif row.section is Section.RESERVED:
            self._reserved[row.kind, row.became, row.of, row.currency].add(row.amount)

    def _count(self, row: ReportPayment) -> None:
        amount = row.amount or ZERO
        reverses = amount < ZERO or (
            row.type in REVERSING and row.correction is UNSET and row.changed_since in (UNSET, False)
        )
        self._all.add(amount, reverses=reverses)
        common = {"terminal": row.terminal, "type": row.kind, "of": row.of, "brand": row.brand}
        if "by_day" in self._groups:
            common |= self._times(parse_iso(row.at))
        for name, of in self._groups.items():
            key = (*(common[member] for member in of), row.currency)
            self._sums[name][key].add(amount, reverses=reverses)
        rest = total((amount, *(-part for part in row.parts.values())))
        for part, value in (*row.parts.items(), (ADDED, rest)):
            self._parts[part, row.currency].add(value)

    def _times(self, at: datetime) -> dict[str, str | None]:
        local = at.astimezone(self._zone)
        # `replace` keeps `fold`, which distinguishes the two equal hours when the clock is set back.
        begins = local.replace(minute=0, second=0, microsecond=0)
        starts_at = iso(begins.astimezone(UTC)) if self._one_day else None
        return {"day": f"{local:%Y-%m-%d}", "hour": f"{local:%H}", "starts_at": starts_at}

    def totals(self) -> ReportTotals:
        """Return the sums."""
        by_currency = self._documents("by_currency")
        currencies = [item.currency for item in by_currency if item.currency is not None]
        only = by_currency[0].currency if by_currency else None
        return ReportTotals(
            currencies=currencies,
            total=self._all.document(currency=only) if len(by_currency) < 2 else None,
            **{name: self._documents(name) for name in _GROUPS},
            by_part=[
                PartSum(part or "", currency, running.amounts[0])
                for (part, currency), running in sorted(self._parts.items(), key=_place)
                if running.amounts[0]
            ],
            reserved=[
                ReservedSum(kind or "", became, Of(of) if of else None, currency, *running.added[:2])
                for (kind, became, of, currency), running in sorted(self._reserved.items(), key=_place)
            ],
            sureness=[
                CertaintySum(
                    standing, currency, standing in COUNTED_CERTAINTIES, *self._sureness[standing, currency].added
                )
                for standing in Certainty
                for currency in sorted({of for which, of in self._sureness if which is standing}, key=_by_name)
            ],
            counts={section.value: self._counts[section] for section in Section},
            results=[TerminalResults(terminal=name, **found) for name, found in sorted(self._results.items())],
            seconds=_durations(sorted(self._seconds)),
        )

    def _documents(self, name: str) -> list[ReportSum]:
        found = sorted(self._sums[name].items(), key=_place)
        members = (*_GROUPS[name], "currency")
        return [running.document(**dict(zip(members, key, strict=True))) for key, running in found]


def _place(item: tuple[_Key, Any]) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a total."""
    return tuple(map(_by_name, item[0]))


def _by_name(name: str | None) -> tuple[int, str]:
    return (KINDS.index(name), "") if name in KINDS else (len(KINDS), name or "")


def _durations(taken: Sequence[Decimal]) -> Durations:
    counts = [0] * (len(LIMITS) + 1)
    for seconds in taken:
        counts[bisect_right(LIMITS, seconds)] += 1
    bounds = zip((0, *LIMITS), (*LIMITS, None), counts, strict=True)
    columns = [Duration(*bound) for bound in bounds]
    return Durations(len(taken), nearest(taken, 50), nearest(taken, 95), taken[-1] if taken else None, columns)


def nearest(ordered: Sequence[Decimal], percent: int) -> Decimal | None:
    """Return the percentile of sorted numbers (nearest rank), or None without numbers."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def of_span(
    db: sqlite3.Connection, span: ReportSpan, context: RowContext, clock: Iterable[Stretch]
) -> Generator[None, None, PaymentReport]:
    """Return the report of a span of time, in short steps.

    `clock`: the intervals in which posd did not trust the clock.
    """
    tally = ReportSums(span, by_time=True)
    for number, row in enumerate(_rows(db, span, context), 1):
        if row is not None:
            tally.add(row)
        if number % STEP == 0:
            yield
    return document(db, span, context, tally, clock)


def _rows(db: sqlite3.Connection, span: ReportSpan, context: RowContext) -> Iterator[ReportPayment | None]:
    """Yield the row of each payment in a span, and None for each other payment that is read.

    An open payment belongs to every span that ends after its start.
    """
    since, until = iso(span.since - LONGEST_PAYMENT), iso(span.until + CLOCKS_DIFFER)
    for transaction in chain(rows.open_ones(db), rows.ended(db, since, until)):
        row = read_row(db, transaction, context)
        at = parse_iso(row.at)
        inside = at < span.until and (transaction.outcome is None or at >= span.since)
        yield row if inside and span.terminal in (None, row.terminal) else None


def document(
    db: sqlite3.Connection,
    span: ReportSpan,
    context: RowContext,
    tally: ReportSums,
    clock: Iterable[Stretch],
    shift: ShiftState | None = None,
    totals: ReportTotals | None = None,
) -> PaymentReport:
    """Return the report of the rows in `tally`. `totals`: stored totals, which replace those of the rows."""
    listed = sorted(tally.listed, key=lambda row: (row.at, row.client_transaction_id))
    attended = db.execute(
        "SELECT client_transaction_id FROM transactions INDEXED BY transactions_attention WHERE attention <> '[]'"
    )
    since, until = iso(span.since), iso(span.until)
    return PaymentReport(
        since=since,
        until=until,
        timezone=span.zone.key,
        terminal=span.terminal,
        made_at=iso(context.now),
        up_to=changes.last_seq(db),
        **msgspec.structs.asdict(totals or tally.totals()),
        shift=shift,
        in_question=tally.marked["in_question"],
        amount_differs=tally.marked["differs"],
        unsure=tally.marked["unsure"],
        wrong_clocks=sorted(tally.wrong_clocks),
        attention_elsewhere=sum(identity not in tally.ids for (identity,) in attended),
        clock_unsure=[item for item in clock if item.touches(since, until)],
        unlisted=tally.number - len(listed),
        payments=listed,
    )
