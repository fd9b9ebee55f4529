"""Shifts: an operator closes a shift, and its totals then stay unchanged, even after removals and corrections.

A shift holds the payments since the previous one. A shift ends at a number of the feed, so its content does not depend
on a clock. A payment that changes later is compared with its counted amount.
"""

import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import replace

from posd.base.json_types import Exact, Moment, Uuid, WireFormat
from posd.calls.parameters import MAX_SEQ
from posd.payments.report_documents import ClosedShift
from posd.records.request import MAX_NOTE_CHARACTERS, MAX_OPERATOR_CHARACTERS, check, read_body
from posd.storage import marks


class ShiftPayment(msgspec.Struct, frozen=True):
    """Amount of a payment that a shift has counted."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    counted: Annotated[
        Exact | None,
        Meta(description="its amount in the totals, 0 if none; null: still open at the close"),
    ]
    was: Annotated[
        Exact | UnsetType,
        Meta(description="of a correction: the amount in the earlier shift; this shift counts the difference"),
    ] = UNSET
    shift: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="of a correction: the number of that shift")
    ] = UNSET
    currency: Annotated[
        str | UnsetType | None, Meta(description="currency of the counted amount; shifts of earlier versions lack it")
    ] = UNSET
    was_currency: Annotated[
        str | UnsetType | None, Meta(description="of a correction: currency of `was`, if different")
    ] = UNSET


class ShiftRequest(msgspec.Struct, frozen=True):
    """Operator's request to close a shift. The daemon counts all payments since the last shift."""

    operator: Annotated[str, Meta(description="who", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    note: Annotated[
        str | None,
        WireFormat(Annotated[str, Meta(max_length=MAX_NOTE_CHARACTERS)] | None),
        Meta(description="a note to keep with the shift"),
    ] = None
    begin: Annotated[bool, Meta(description="begin the first shift now: payments decided before are in no shift")] = (
        False
    )
    after: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="`up_to` of the last shift, 0 before the first: if the last shift is another one, none "
            "is closed. So the call may be repeated"
        ),
    ] = None


class Shift(msgspec.Struct, frozen=True):
    """A shift that was closed."""

    number: Annotated[int, Meta(description="number of the shift; the first one is 1")]
    closed_at: Annotated[Moment, Meta(description="when, by the clock of this machine; it decides nothing")]
    operator: Annotated[str, Meta(description="who closed it")]
    note: Annotated[str, Meta(description="the note, empty if there is none")]
    uid: Annotated[int | None, Meta(description="the user id of the calling process, null if not known")]
    after: Annotated[int, Meta(description="it begins after this change of the feed")]
    up_to: Annotated[int, Meta(description="the last change of the feed that it includes")]
    database_id: Annotated[str, Meta(description="the database_id of these numbers")]
    total: Annotated[
        Exact | None,
        Meta(description="total of its payments and corrections; null if they have several currencies"),
    ]
    totals: Annotated[
        Raw,
        WireFormat(dict[str, object]),
        Meta(description="its sums by currency, with the members of the report; those of earlier versions have fewer"),
    ]
    payments: Annotated[list[ShiftPayment], Meta(description="what it has counted")]

    @property
    def open(self) -> dict[str, int]:
        """Payments that were open at the close -> number of the shift."""
        return {item.client_transaction_id: self.number for item in self.payments if item.counted is None}

    @property
    def short(self) -> ClosedShift:
        """Return the entry of this shift for a report."""
        return ClosedShift(self.number, self.closed_at, self.operator)


class Shifts(msgspec.Struct, frozen=True):
    """Shifts that were closed."""

    shifts: Annotated[list[Shift], Meta(description="the newest first")]
    next_before: Annotated[int | None, Meta(description="`before` of the next page, null if there is none")]


#: Members that callers of older versions send. Those callers counted the shift themselves.
_COUNTED_BY_CALLER = frozenset({"/up_to", "/totals", "/payments"})
_OLD_CALLER = "Omit it; if an older `posd report` sent it, install the version of the daemon"
_SHIFT = msgspec.json.Decoder(Shift)


def read_close(body: bytes) -> ShiftRequest:
    """Read the body of `POST /shifts`. Raise Problem."""
    reader = read_body(ShiftRequest, body, "nothing was changed")
    asked = ShiftRequest("")
    if reader.readable:
        operator = reader.required_text("operator", MAX_OPERATOR_CHARACTERS)
        note = reader.text("note", MAX_NOTE_CHARACTERS, least=0)
        begin, after = reader.members.get("begin"), reader.members.get("after")
        if not isinstance(begin, bool | None):
            reader.fault("/begin", "must be true or false")
        if after is not None and not (isinstance(after, Decimal) and 0 <= after < MAX_SEQ and after % 1 == 0):
            reader.fault("/after", "must be a whole number: `up_to` of the last shift")
            after = None
        up_to = None if after is None else int(after)
        asked = ShiftRequest(operator.strip(), (note or "").strip(), begin is True, up_to)
    faults = [
        replace(item, message=f"is not accepted: posd counts the shift itself. {_OLD_CALLER}")
        if item.path in _COUNTED_BY_CALLER
        else item
        for item in reader.faults
    ]
    check(faults, "no shift was closed")
    return asked


def page(db: sqlite3.Connection, before: int | None, limit: int) -> list[Shift]:
    """Return the shifts before a number (None: all), the newest first."""
    found = (shift for shift in newest_first(db) if before is None or shift.number < before)
    return list(islice(found, limit))


def newest_first(db: sqlite3.Connection) -> Iterator[Shift]:
    """Yield the closed shifts."""
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid DESC", (marks.SHIFT,)):
        yield _SHIFT.decode(detail)


def last(db: sqlite3.Connection) -> Shift | None:
    """Return the last closed shift."""
    return next(newest_first(db), None)
