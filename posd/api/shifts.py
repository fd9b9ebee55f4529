"""Shifts: a person closes one, and what it came to stays as it was counted, whatever is removed or corrected.

A shift is what the report has counted, payment by payment, since the one before it. No clock decides what belongs to
it: it reaches up to a number of the feed, and a payment that changes later is compared with what was counted of it.
"""

import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from posd.base.json_types import Exact, Moment, Uuid, Wire
from posd.base.money import read_money, total
from posd.records.request import (
    MAX_NOTE_CHARACTERS,
    MAX_OPERATOR_CHARACTERS,
    Fault,
    check,
    read_body,
)
from posd.storage import database_id, marks
from posd.storage.writer import Unit


class ShiftPayment(msgspec.Struct, frozen=True):
    """What a shift has counted of a payment."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    counted: Annotated[
        Exact | None,
        Meta(description="what of it is in the totals, 0 where nothing is; null: open at the close"),
    ]
    was: Annotated[
        Exact | UnsetType,
        Meta(description="of a correction: what an earlier shift has counted; this one counts the difference"),
    ] = UNSET
    shift: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="of a correction: the number of that shift")
    ] = UNSET

    @property
    def amount(self) -> Decimal:
        """What it adds to the total."""
        counted = Decimal(0) if self.counted is None else self.counted
        return counted if self.was is UNSET else total((counted, -self.was))


class CountedPayment(ShiftPayment, frozen=True, forbid_unknown_fields=True):
    """What is to be kept as counted of a payment."""


class ShiftRequest(msgspec.Struct, frozen=True):
    """A person closes a shift: what the report has counted since the last one."""

    operator: Annotated[str, Meta(description="who", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    after: Annotated[
        int, Meta(ge=0, description="`up_to` of the shift before it; of the first one the number it begins after")
    ]
    up_to: Annotated[int, Meta(ge=0, description="the last change of the feed that was looked at")]
    payments: Annotated[list[CountedPayment], Meta(description="what it has counted, each payment once")]
    totals: Annotated[
        Raw, Wire(dict[str, object] | None), Meta(description="its totals, as the report has them; kept as they are")
    ] = Raw(b"{}")
    note: Annotated[
        str | None,
        Wire(Annotated[str, Meta(max_length=MAX_NOTE_CHARACTERS)] | None),
        Meta(description="what is to be kept with it"),
    ] = None


class Shift(msgspec.Struct, frozen=True):
    """A shift that was closed."""

    number: Annotated[int, Meta(description="which; the first one is 1")]
    closed_at: Annotated[Moment, Meta(description="when, by the clock of this machine; it decides nothing")]
    operator: Annotated[str, Meta(description="who closed it")]
    note: Annotated[str, Meta(description="what was noted, empty where nothing was")]
    uid: Annotated[int | None, Meta(description="the user id of the process that called, null where it is not known")]
    after: Annotated[int, Meta(description="it begins after this change of the feed")]
    up_to: Annotated[int, Meta(description="the last change of the feed that it has looked at")]
    database_id: Annotated[str, Meta(description="of the feed that these numbers are of")]
    total: Annotated[Exact, Meta(description="what its payments and corrections add up to")]
    totals: Annotated[Raw, Wire(dict[str, object]), Meta(description="its totals, as the report had them")]
    payments: Annotated[list[ShiftPayment], Meta(description="what it has counted")]


class Shifts(msgspec.Struct, frozen=True):
    """Shifts that were closed."""

    shifts: Annotated[list[Shift], Meta(description="the newest first")]
    next_before: Annotated[int | None, Meta(description="`before` of the next page, null where there is none")]


def read_close(body: bytes) -> ShiftRequest:
    """Read the body of `POST /shifts`. Raise Problem."""
    nothing = "no shift was closed"
    reader = read_body(ShiftRequest, body, "nothing was changed")
    if reader.readable:
        reader.required_text("operator", MAX_OPERATOR_CHARACTERS)
        reader.text("note", MAX_NOTE_CHARACTERS, least=0)
    check(reader.faults, nothing)
    try:
        asked = _REQUEST.decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        fault = Fault(where.rstrip("`").replace(".", "/").replace("[", "/").replace("]", ""), what)
        check([fault], nothing)
        raise
    check(_faults(asked), nothing)
    return asked


def _faults(asked: ShiftRequest) -> Iterator[Fault]:
    if asked.up_to < asked.after:
        yield Fault("/up_to", "must not be before /after")
    known: set[str] = set()
    for place, item in enumerate(asked.payments):
        if item.client_transaction_id.lower() in known:
            yield Fault(f"/payments/{place}/client_transaction_id", "stands more than once")
        known.add(item.client_transaction_id.lower())
        for name, amount in (("counted", item.counted), ("was", item.was)):
            if isinstance(amount, Decimal) and read_money(amount) is None:
                yield Fault(f"/payments/{place}/{name}", "is no amount")


_REQUEST = msgspec.json.Decoder(ShiftRequest)
_SHIFT = msgspec.json.Decoder(Shift)


def page(db: sqlite3.Connection, before: int | None, limit: int) -> list[Shift]:
    found: list[Shift] = []
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid DESC", (marks.SHIFT,)):
        shift = _SHIFT.decode(detail)
        if before is None or shift.number < before:
            found.append(shift)
        if len(found) == limit:
            break
    return found


def close(unit: Unit, asked: ShiftRequest, at: str, uid: int | None) -> tuple[Shift, bool]:
    """Close a shift where it begins where the last one ends; return it, or the last one, and whether it was closed."""
    last = next(iter(page(unit.db, None, 1)), None)
    if last is not None and (asked.after != last.up_to or asked.up_to == last.up_to):
        return last, False
    if asked.up_to > database_id.last_seq(unit.db):
        check([Fault("/up_to", "is a number that the feed has not reached")], "no shift was closed")
    shift = Shift(
        number=1 if last is None else last.number + 1,
        closed_at=at,
        operator=asked.operator.strip(),
        note=(asked.note or "").strip(),
        uid=uid,
        after=asked.after,
        up_to=asked.up_to,
        database_id=database_id.present(unit.db).database_id,
        total=total(item.amount for item in asked.payments),
        totals=asked.totals,
        payments=list(asked.payments),
    )
    marks.add(unit.db, at, marks.SHIFT, shift)
    return shift, True
