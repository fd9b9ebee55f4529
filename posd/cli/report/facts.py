"""What a report is made of: the days of the merchant, exact amounts, and what it needs of a payment.

A document of the local API is cut down, so that a month of them fits in memory. Documents carry what a terminal
said, so any field of the final event may be missing or of another kind.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from posd.base.money import EXACT, ZERO, read_money, total
from posd.base.times import parse_iso
from posd.cli.app.output import inline
from posd.cli.payments.words import state

#: Years that a report can be of: wide, and far enough from the ends of the calendar to reckon with.
YEARS = range(1970, 9000)

HOUR = timedelta(hours=1)

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour that passed, or less of it, and what the clock showed when it began."""

    label: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """The days from `first` to `last`, both of them included, in a time zone."""

    first: date
    last: date
    zone: ZoneInfo

    @property
    def start(self) -> datetime:
        """The first moment, in UTC."""
        return _midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        """The first moment after it, in UTC."""
        return _midnight(self.last + timedelta(days=1), self.zone)

    @property
    def days(self) -> tuple[date, ...]:
        """Its days, in order."""
        count = (self.last - self.first).days + 1
        return tuple(self.first + timedelta(days=number) for number in range(count))

    def holds(self, moment: datetime) -> bool:
        """Whether a moment, in UTC, is of these days."""
        return self.start <= moment < self.end

    def local(self, moment: datetime) -> datetime:
        """Return a moment as the merchant's clock shows it."""
        return moment.astimezone(self.zone)

    def hours(self) -> Iterator[Hour]:
        """Yield the hours as they passed: an hour that the clock shows twice comes twice, a skipped one not at all."""
        start = self.start
        while start < self.end:
            end = min(start + HOUR, self.end)
            yield Hour(f"{self.local(start):%H}", start, end)
            start = end


def read_day(text: str, today: date) -> date:
    """Read `today`, `yesterday` or a date such as 2026-11-20. Raise ValueError with what can be written."""
    words = {"today": today, "yesterday": today - timedelta(days=1)}
    if text in words:
        return words[text]
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:  # the 31st of a month of 30 days
        day = None
    if day is None or day.year not in YEARS:
        raise ValueError(f"{text!r} is not a day: write one as 2026-11-20, or today, or yesterday")
    return day


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return when a day begins; where the clock skips midnight, that is the first moment after it."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)


#: Decimal places that people expect of an amount.
PLACES = 2


def add(*numbers: Decimal) -> Decimal:
    """Add a few."""
    return total(numbers)


def money(value: Decimal) -> str:
    """Write an amount with every digit that it has, at least two of them behind the point, and never an exponent."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > -PLACES:
        value = value.quantize(Decimal(1).scaleb(-PLACES), context=EXACT)
    return f"{value:f}"


#: The clock of a terminal counts as far as it can be right: it says that it ended after posd asked (but for what the
#: two clocks differ), before posd heard of it, and not days after it began. Beyond that the time of the request counts.
CLOCKS_DIFFER = timedelta(hours=1)
LONGEST_PAYMENT = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Facts:
    """A payment as the local API shows it. `result` is None of an open one. Times are UTC.

    `at` is when it counts, `at_by` what says so: `terminal` (its final event) or `posd` (when it was asked for).
    `parts` are the numbers that the till sent, by name. `state` is in words. `asks_person`: whether it is settled is
    for a person to say. `note` is the member of its metadata that was asked for.
    """

    id: str
    terminal: str
    type: str | None
    result: str | None
    at: datetime
    at_by: str
    clock_wrong: bool
    created_at: datetime
    decided_at: datetime | None
    requested: Decimal | None
    authorized: Decimal | None
    tip: Decimal
    currency: str | None
    parts: Mapping[str, Decimal]
    reversal: str | None
    original: str | None
    derived: tuple[str, ...]
    brand: str | None
    card_type: str | None
    reference: str | None
    ticket: str | None
    authorization_code: str | None
    failure: str | None
    sale: str | None
    state: str
    in_doubt: bool
    stated: bool
    by_person: bool
    corrects: str | None
    asks_person: bool
    abortable: bool
    attention: tuple[tuple[str, str], ...]
    note: str | None

    @property
    def seconds(self) -> Decimal | None:
        """How long the terminal took to say how it ended; None where it did not say, or a clock was set back."""
        if not self.stated or self.decided_at is None or self.decided_at < self.created_at:
            return None
        return Decimal((self.decided_at - self.created_at) // timedelta(milliseconds=1)).scaleb(-3)


def _tip(outcome: Mapping[str, Any], operation: Mapping[str, Any], requested: Decimal) -> Decimal:
    """Return what the cardholder added. Outcomes of earlier versions do not say it: there the final event does."""
    if (known := read_money(outcome.get("tip"))) is not None:
        return known
    said, authorized = read_money(operation.get("tip")) or ZERO, read_money(outcome.get("authorized_amount"))
    return said if authorized is not None and authorized == add(requested, said) else ZERO


def read(document: Mapping[str, Any], metadata: str | None = None) -> Facts:
    """Read a transaction of the local API; `metadata` names the member of its metadata that is wanted."""
    outcome: Mapping[str, Any] = document["outcome"] or {}
    event = _object(outcome.get("final_event"))
    operation = _object(_object(event.get("operation")).get("amount"))
    receipt = _object(outcome.get("receipt"))
    created = parse_iso(document["created_at"]).astimezone(UTC)
    decided = parse_iso(outcome["decided_at"]).astimezone(UTC) if outcome else None
    said = _moment(event.get("occurred_at"))
    believed = said is not None and decided is not None and _can_be(said, created, decided)
    parts = dict(_parts(document["amount"]))
    failure = _object(outcome.get("failure_reason"))
    superseded = _object(outcome.get("supersedes")).get("result")
    return Facts(
        id=document["client_transaction_id"],
        terminal=_text(_object(event.get("terminal")).get("serial_number")) or document["terminal"],
        type=document["type"],
        result=outcome.get("result"),
        at=said if believed and said is not None else created,
        at_by="terminal" if believed else "posd",
        clock_wrong=said is not None and not believed,
        created_at=created,
        decided_at=decided,
        requested=total(parts.values()) if parts else None,
        authorized=read_money(outcome.get("authorized_amount")),
        tip=_tip(outcome, operation, total(parts.values())),
        currency=_text(operation.get("currency")),
        parts=parts,
        reversal=outcome.get("reversal"),
        original=document["original"],
        derived=tuple(document["derived"]),
        brand=_text(receipt.get("franchise")),
        card_type=_text(receipt.get("card_type")),
        reference=outcome.get("transaction_reference"),
        ticket=outcome.get("ticket_number"),
        authorization_code=_text(receipt.get("authorization_code")),
        failure=": ".join(filter(None, (_text(failure.get("code")), _text(failure.get("message"))))) or None,
        sale=document["sale"],
        state=state(document),
        in_doubt=document["phase"] == "in_doubt",
        stated=outcome.get("status") is not None,
        by_person=any(item["kind"] == "operator" for item in outcome.get("evidence", ())),
        corrects=superseded if superseded != outcome.get("result") else None,
        asks_person=document["next_step"] == "ask_person",
        abortable=document["abortable"],
        attention=tuple((item["code"], item["detail"]) for item in document["attention"]),
        note=inline(document["metadata"].get(metadata)) or None if metadata else None,
    )


def _can_be(said: datetime, created: datetime, decided: datetime) -> bool:
    return created - CLOCKS_DIFFER <= said <= min(decided + CLOCKS_DIFFER, created + LONGEST_PAYMENT)


def _parts(amount: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the numbers of an amount by name, those of nested objects (extra_taxes) too."""
    found: dict[str, Decimal] = {}
    for name, value in amount.items():
        if isinstance(value, Mapping):
            for inner, number in _parts(value).items():
                found[inner] = add(found.get(inner, ZERO), number)
        elif (part := read_money(value)) is not None:
            found[name] = add(found.get(name, ZERO), part)
    return found


def _moment(value: object) -> datetime | None:
    try:
        return parse_iso(value).astimezone(UTC) if isinstance(value, str) else None
    except (ValueError, OverflowError):  # no time at all, or one outside the calendar
        return None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
