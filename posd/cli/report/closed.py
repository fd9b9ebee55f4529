"""Shifts that were closed, as the local API shows them: what each has counted of each payment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from posd.base.times import parse_iso


@dataclass(frozen=True, slots=True)
class Line:
    """What a shift has counted of a payment, None where it was open; `was` is what the shift `shift` had counted."""

    id: str
    counted: Decimal | None
    was: Decimal | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What the shift of that number has counted of a payment; None: it was open at its close."""

    shift: int
    amount: Decimal | None


class Kept(NamedTuple):
    """How many payments of a standing a shift had, what they came to, and of how many no amount was known."""

    standing: str
    number: int
    amount: Decimal
    unknown: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A shift that was closed, as the local API shows it."""

    number: int
    closed_at: datetime
    operator: str
    note: str
    after: int
    up_to: int
    database_id: str
    total: Decimal
    totals: Mapping[str, Any]
    lines: Sequence[Line]

    @property
    def currencies(self) -> Sequence[str]:
        """The currencies that were counted, as far as its totals say it: whoever closed it may have sent others."""
        found = self.totals.get("currencies")
        return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []

    @property
    def sureness(self) -> Sequence[Kept] | None:
        """How sure its sums were, as far as its totals say it."""
        found: Any = self.totals.get("sureness")
        try:
            return [Kept(str(i["standing"]), int(i["number"]), Decimal(i["amount"]), int(i["unknown"])) for i in found]
        except (TypeError, LookupError, ValueError, ArithmeticError):
            return None

    @property
    def open(self) -> Mapping[str, int]:
        """Payments that were open at its close, with its number."""
        return {line.id: self.number for line in self.lines if line.counted is None}


@dataclass(frozen=True, slots=True)
class Shift:
    """Which shift a report is of. `closed` is None while it goes on, `last` is the one before it.

    `removed` counts its payments of which retention has left no more than the amount. `more` says that further payments
    have come than one shift can hold.
    """

    closed: Closed | None
    last: Closed | None
    removed: int = 0
    more: bool = False


def read(document: Mapping[str, Any]) -> Closed:
    """Read a shift of the local API."""
    return Closed(
        number=document["number"],
        closed_at=parse_iso(document["closed_at"]),
        operator=document["operator"],
        note=document["note"],
        after=document["after"],
        up_to=document["up_to"],
        database_id=document["database_id"],
        total=Decimal(document["total"]),
        totals=document["totals"],
        lines=[_line(item) for item in document["payments"]],
    )


def _line(item: Mapping[str, Any]) -> Line:
    was = item.get("was")
    return Line(
        item["client_transaction_id"],
        None if item["counted"] is None else Decimal(item["counted"]),
        None if was is None else Decimal(was),
        item.get("shift"),
    )


def document(line: Line) -> dict[str, Any]:
    """Return a line as the local API takes it."""
    found: dict[str, Any] = {"client_transaction_id": line.id, "counted": line.counted}
    return found if line.was is None else {**found, "was": line.was, "shift": line.shift}


def earlier(shifts: Iterable[Closed]) -> dict[str, Counted]:
    """Return what these shifts, the newest first, have counted last of each payment."""
    found: dict[str, Counted] = {}
    for item in shifts:
        for line in item.lines:
            found.setdefault(line.id, Counted(item.number, line.counted))
    return found
