"""Shifts: an operator closes a shift, and its totals then stay unchanged, even after removals and corrections.

A shift holds the payments since the previous one. A shift ends at a number of the feed, so its content does not depend
on a clock. Each payment is counted once, and a later difference is a correction.

The computation runs in short steps on one state of the database, up to a number of the feed. The result is stored
unless another shift was closed meanwhile. A change between the count and the close has a higher number, so it belongs
to the next shift.
"""

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import replace

from posd.api.maintenance import ClockRequest, read_signature
from posd.base.json_types import Exact, Moment, Uuid, WireFormat, encode
from posd.base.money import ZERO, total
from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.base.times import iso, parse_iso
from posd.calls.parameters import MAX_SEQ
from posd.clock.clock import Stretch
from posd.payments import report, rows
from posd.payments.accounting import CORRECTION, RowContext, as_counted, read_row
from posd.payments.counting import Of, Section
from posd.payments.model import Result, Transaction
from posd.payments.report import ReportSpan, ReportSums
from posd.payments.report_documents import (
    Certainty,
    ClosedShift,
    Correction,
    PaymentReport,
    ReportPayment,
    ReportTotals,
    ShiftCorrection,
    ShiftState,
    TimeSource,
)
from posd.records.model import Phase, same_fields
from posd.records.request import RequestFault, check, read_body
from posd.storage import changes, marks
from posd.storage.batch import WriteTransaction


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
        Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="of a correction: the number of the earlier shift")
    ] = UNSET
    currency: Annotated[
        str | UnsetType | None, Meta(description="currency of the counted amount; shifts of earlier versions lack it")
    ] = UNSET
    was_currency: Annotated[
        str | UnsetType | None, Meta(description="of a correction: currency of `was`, if different")
    ] = UNSET


class ShiftRequest(ClockRequest, frozen=True):
    """Operator's request to close a shift. The daemon counts all payments since the last shift."""

    begin: Annotated[
        bool,
        WireFormat(bool | None),
        Meta(description="begin the first shift now: earlier outcomes are in no shift"),
    ] = False
    after: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="`up_to` of the last shift, 0 before the first. If it differs, posd closes no shift. So the "
            "call may be repeated"
        ),
    ] = None


class Shift(msgspec.Struct, frozen=True):
    """A shift that was closed."""

    number: Annotated[int, Meta(description="number of the shift; the first one is 1")]
    closed_at: Annotated[Moment, Meta(description="time by the clock of this machine, for people only")]
    operator: Annotated[str, Meta(description="who closed it")]
    note: Annotated[str, Meta(description="the note, empty if there is none")]
    uid: Annotated[int | None, Meta(description="the user id of the calling process, null if not known")]
    after: Annotated[int, Meta(description="the shift begins after this change of the feed")]
    up_to: Annotated[int, Meta(description="the last change of the feed in the shift")]
    database_id: Annotated[str, Meta(description="the database_id of `after` and `up_to`")]
    total: Annotated[
        Exact | None,
        Meta(description="total of its payments and corrections; null if they have several currencies"),
    ]
    totals: Annotated[
        Raw,
        WireFormat(dict[str, object]),
        Meta(description="its sums by currency, as in the report; shifts of earlier versions have fewer members"),
    ]
    payments: Annotated[list[ShiftPayment], Meta(description="the counted payments")]

    @property
    def open(self) -> dict[str, int]:
        """Payments that were open at the close -> number of the shift."""
        return {item.client_transaction_id: self.number for item in self.payments if item.counted is None}

    @property
    def short(self) -> ClosedShift:
        """Entry of this shift in a report."""
        return ClosedShift(self.number, self.closed_at, self.operator)


class Shifts(msgspec.Struct, frozen=True):
    """Shifts that were closed."""

    shifts: Annotated[list[Shift], Meta(description="the newest first")]
    next_before: Annotated[int | None, Meta(description="`before` of the next page, null if there is none")]


_SHIFT = msgspec.json.Decoder(Shift)


def read_close(body: bytes) -> ShiftRequest:
    """Read the body of `POST /shifts`. Raise Problem."""
    reader = read_body(ShiftRequest, body, "nothing was changed")
    signed = read_signature(reader)
    asked = ShiftRequest(*signed, begin=bool(reader.flag("begin")), after=reader.whole("after", 0, MAX_SEQ))
    check(reader.faults, "no shift was closed")
    return asked


def page(db: sqlite3.Connection, before: int | None, limit: int) -> list[Shift]:
    """Return the shifts before a number (None: all), the newest first."""
    found = (shift for shift in newest_first(db) if before is None or shift.number < before)
    return list(islice(found, limit))


def newest_first(db: sqlite3.Connection) -> Iterator[Shift]:
    """Yield the closed shifts, the newest first."""
    for (detail,) in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid DESC", (marks.SHIFT,)):
        yield _SHIFT.decode(detail)


def newest_shift(db: sqlite3.Connection) -> Shift | None:
    """Return the last closed shift, or None."""
    return next(newest_first(db), None)


# The computation.

#: Maximum number of payments in one shift. It limits the size of a response, which can have twenty shifts.
MOST = 2_000
#: Number of changes of the feed that are read at a time.
_CHANGES = 200
#: Reasons that the first change of a payment can have in the feed.
_BEGINS = ("intent", "orphan")

#: Number of a shift, and what it has counted of a payment.
Counted = tuple[int, ShiftPayment]


class ReportOptions(msgspec.Struct, frozen=True):
    """Options of the report of a shift (see `report.of_span`)."""

    context: RowContext
    zone: ZoneInfo
    clock: Sequence[Stretch]
    terminal: str | None = None


class OpenShift(msgspec.Struct, frozen=True):
    """Payments since the last shift."""

    last: Shift | None
    rows: list[ReportPayment]
    lines: list[ShiftPayment]
    up_to: int
    more: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is something to close.

        A payment that was open when the last shift was closed counts only if it has an outcome by now.
        """
        if self.last is None or self.more:
            return True
        before = self.last.open
        fresh = any(item.counted is not None or item.client_transaction_id not in before for item in self.lines)
        return self.up_to > self.last.up_to and fresh


def _opened(db: sqlite3.Connection, context: RowContext) -> Generator[None, None, OpenShift]:
    """Return the payments since the last shift."""
    last = newest_shift(db)
    carried = {} if last is None else last.open
    begun, up_to, more = yield from _changed(db, 0 if last is None else last.up_to, carried)
    found = []
    for number, identity in enumerate(begun, 1):
        if (transaction := rows.get(db, identity)) is not None:
            found.append(read_row(db, transaction, context))
        if number % report.STEP == 0:
            yield
    # After a restore the feed contains payments again, as if they had just begun.
    same = last is None or changes.present_identity(db).database_id == last.database_id
    sought = {identity for identity, fresh in begun.items() if not (fresh and same) and identity not in carried}
    known, begins_later = yield from _known(db, sought)
    # If a payment began before the first shift and no shift has counted it, its outcome is from before the first shift.
    before_first = {identity for identity, fresh in begun.items() if not fresh and identity not in known}
    payments = [row for row in found if not (begins_later and row.client_transaction_id in before_first)]
    return OpenShift(last, *_account(payments, known), up_to, more)


def _changed(
    db: sqlite3.Connection, after: int, carried: Iterable[str]
) -> Generator[None, None, tuple[dict[str, bool], int, bool]]:
    """Return the payments that changed after number `after`, the number of their last change, and whether more follow.

    The dict maps each payment to whether it began in this part of the feed. `carried`: payments that are included in
    any case.
    """
    begun = dict.fromkeys(carried, False)
    least, up_to, place = len(begun), after, after
    while found := changes.after(db, place, _CHANGES):
        for change in found:
            place = change.seq
            if change.kind != "transaction":
                continue
            if change.id not in begun:
                if len(begun) >= MOST and len(begun) > least:
                    return begun, up_to, True
                begun[change.id] = change.reason in _BEGINS
            up_to = change.seq
        yield
    return begun, up_to, False


def _known(db: sqlite3.Connection, sought: set[str]) -> Generator[None, None, tuple[dict[str, Counted], bool]]:
    """Return what shifts have counted of these payments. Also return whether the first shift began after number 0.

    Shifts are read from the newest until every payment is found.
    """
    known: dict[str, Counted] = {}
    begins_later = False
    for shift in newest_first(db):
        for item in shift.payments:
            known.setdefault(item.client_transaction_id, (shift.number, item))
        begins_later = shift.number == 1 and shift.after > 0
        if sought <= known.keys():
            break
        yield
    return known, begins_later


def _account(
    payments: Iterable[ReportPayment], known: Mapping[str, Counted]
) -> tuple[list[ReportPayment], list[ShiftPayment]]:
    """Return the rows of a shift, and its counted amounts.

    Each payment has one row, and later changes are corrections.
    """
    found: list[ReportPayment] = []
    lines: list[ShiftPayment] = []
    for row in payments:
        identity = row.client_transaction_id
        now = None if row.section is Section.OPEN else row.counted or ZERO
        number, before = known.get(identity, (UNSET, None))
        if before is None or before.counted is None:
            found.append(replace(row, open_at=number))
            lines.append(ShiftPayment(identity, now, currency=row.currency))
            continue
        # A reversed amount has the currency in which it was counted.
        currency = row.currency if now or before.currency is UNSET else before.currency
        moved = bool(before.counted) and before.currency not in (UNSET, currency)
        if now != before.counted or moved:
            was = before.currency if moved else UNSET
            line = ShiftPayment(identity, now, before.counted, number, currency, was)
            found += _correct(row, line)
            lines.append(line)
    return found, lines


def _correct(row: ReportPayment, line: ShiftPayment) -> list[ReportPayment]:
    """Return the rows of a correction: one for each currency, and another one if the payment is open again."""
    was, now = line.was or ZERO, line.counted or ZERO
    currency = row.currency if line.currency is UNSET else line.currency
    parts = [(currency, total((now, -was)))]
    if line.was_currency is not UNSET:
        parts = [(line.was_currency, -was), (currency, now)]
    found = [
        as_counted(
            replace(
                row,
                kind=CORRECTION,
                in_question=row.in_question and line.counted is not None,
                became=None,
                differs=False,
                correction=Correction(line.shift or 0, was, line.counted),
            ),
            amount,
            currency,
        )
        for currency, amount in parts
    ]
    return found if line.counted is not None else [*found, row]


def _printed_again(row: ReportPayment, line: ShiftPayment) -> list[ReportPayment]:
    """Return the rows of a payment as a closed shift counted it, even if the payment has changed since."""
    if line.was is not UNSET:
        return _correct(_as_open(row) if line.counted is None else row, line)
    if line.counted is None:
        return [_as_open(row)]
    currency = row.currency if line.currency is UNSET else line.currency
    same = line.counted == (row.counted or ZERO) and (not line.counted or currency == row.currency)
    if same and row.section is not Section.OPEN:
        return [row]
    changed = replace(row, in_question=False, changed_since=True)
    if line.counted:
        return [as_counted(changed, line.counted, currency)]
    return [replace(changed, section=Section.NOT_CHARGED, counted=None, parts={}, standing=None)]


def _as_open(row: ReportPayment) -> ReportPayment:
    if row.section is Section.OPEN:
        return row
    return replace(
        row,
        section=Section.OPEN,
        phase=Phase.ACTIVE,
        status=None,
        result=None,
        counted=None,
        standing=None if row.of is Of.RESERVATION else Certainty.OPEN,
        in_question=True,
        differs=False,
        by_person=False,
        unsure=False,
        was=None,
        became=None,
        attention=(),
        changed_since=True,
    )


def _removed(db: sqlite3.Connection, shift: Shift, line: ShiftPayment, context: RowContext) -> list[ReportPayment]:
    """Return the rows of a payment whose record was removed."""
    left = rows.PAYMENT.find_pruned(db, line.client_transaction_id)
    stub = Transaction(
        client_transaction_id=line.client_transaction_id,
        terminal=left.terminal if left else "removed",
        type=OperationType(left.type) if left and left.type else None,
        created_at=shift.closed_at,
        updated_at=shift.closed_at,
        phase=Phase.FINAL,
    )
    row = replace(
        read_row(db, stub, context),
        at_by=TimeSource.SHIFT,
        section=Section.NOT_CHARGED,
        result=Result(left.result) if left else None,
        standing=None,
        in_question=False,
        removed=True,
    )
    if line.was is not UNSET or line.counted is None:
        return _printed_again(row, line)
    currency = None if line.currency is UNSET else line.currency
    return [as_counted(row, line.counted, currency) if line.counted else row]


def of_open(db: sqlite3.Connection, options: ReportOptions) -> Generator[None, None, PaymentReport]:
    """Return the report of the payments since the last shift."""
    found = yield from _opened(db, options.context)
    return _report(db, options, found.rows, _state(found.last, found.rows, None, more=found.more), None)


def of_closed(
    db: sqlite3.Connection, options: ReportOptions, number: int | None
) -> Generator[None, None, PaymentReport]:
    """Return the report of a closed shift. `number`: None for the last one. Raise Problem not_found."""
    found = page(db, None if number is None else number + 1, 2)
    if not found or number not in (None, found[0].number):
        newest = newest_shift(db)
        which = "no shift was closed yet" if newest is None else f"the last one is {newest.number}"
        raise Problem("not_found", f"there is no such shift: {which}")
    shift, before = found[0], found[1] if len(found) > 1 else None
    carried = {} if before is None else before.open
    printed: list[ReportPayment] = []
    removed = 0
    for place, line in enumerate(shift.payments, 1):
        if (transaction := rows.get(db, line.client_transaction_id)) is None:
            printed += _removed(db, shift, line, options.context)
            removed += 1
        else:
            row = read_row(db, transaction, options.context)
            printed += _printed_again(replace(row, open_at=carried.get(line.client_transaction_id, UNSET)), line)
        if place % report.STEP == 0:
            yield
    totals = None
    if options.terminal is None:
        # shift of an earlier version: totals are computed from the counted amounts
        with suppress(msgspec.ValidationError):
            totals = msgspec.json.decode(shift.totals, type=ReportTotals)
    return _report(db, options, printed, _state(before, printed, shift, removed=removed), totals)


def _state(
    previous: Shift | None, found: Sequence[ReportPayment], shift: Shift | None, *, removed: int = 0, more: bool = False
) -> ShiftState:
    own = [row for row in found if row.correction is UNSET]
    return ShiftState(
        number=shift.number if shift else 1 if previous is None else previous.number + 1,
        closed_at=shift.closed_at if shift else None,
        operator=shift.operator if shift else None,
        note=shift.note if shift else None,
        previous=previous.short if previous else None,
        corrections=[
            ShiftCorrection(**same_fields(ShiftCorrection, row, row.correction) | {"difference": row.amount or ZERO})
            for row in found
            if row.correction is not UNSET
        ],
        open=[row.client_transaction_id for row in own if row.section is Section.OPEN],
        open_before=[row.client_transaction_id for row in own if row.open_at is not UNSET],
        removed=removed,
        more=more,
    )


def _report(
    db: sqlite3.Connection,
    options: ReportOptions,
    found: Sequence[ReportPayment],
    state: ShiftState,
    totals: ReportTotals | None,
) -> PaymentReport:
    shown = [row for row in found if options.terminal in (None, row.terminal)]
    now = options.context.now
    ends = parse_iso(state.closed_at) if state.closed_at else now
    times = [ends, *(parse_iso(row.at) for row in shown)]
    if state.previous is not None:
        times.append(parse_iso(state.previous.closed_at))
    span = ReportSpan(min(times), max(times) + timedelta(milliseconds=1), options.zone, options.terminal)
    tally = ReportSums(span, by_time=False)
    for row in shown:
        tally.add(row)
    return report.document(db, span, options.context, tally, options.clock, state, totals)


def count(
    db: sqlite3.Connection, asked: ShiftRequest, context: RowContext, uid: int | None
) -> Generator[None, None, tuple[Shift, bool]]:
    """Return the shift to close and True, or the last one and False if there is nothing to close. Raise Problem."""
    last = newest_shift(db)
    if last is None and asked.after:
        check([RequestFault("/after", "must be 0 or omitted: no shift was closed yet")], "no shift was closed")
    if asked.begin:
        up_to = changes.last_seq(db)
        lines = [ShiftPayment(item.client_transaction_id, None) for item in rows.open_ones(db)]
        found = OpenShift(None, [], lines, up_to)
        after = up_to
    else:
        found = yield from _opened(db, context)
        after = 0 if last is None else last.up_to
    if last is not None and (asked.begin or not found.anything or asked.after not in (None, last.up_to)):
        return last, False
    tally = ReportSums(ReportSpan(context.now, context.now, ZoneInfo("UTC")), by_time=False)
    for row in found.rows:
        tally.add(row)
    totals = tally.totals()
    shift = Shift(
        number=1 if last is None else last.number + 1,
        closed_at=iso(context.now),
        operator=asked.operator,
        note=asked.note,
        uid=uid,
        after=after,
        up_to=found.up_to,
        database_id=changes.present_identity(db).database_id,
        total=totals.total.total if totals.total else None,
        totals=Raw(encode(totals)),
        payments=found.lines,
    )
    return shift, True


def close(unit: WriteTransaction, shift: Shift) -> tuple[Shift, bool]:
    """Store a counted shift.

    Return the shift and True, or the last shift and False if another shift was closed meanwhile.
    """
    last = newest_shift(unit.db)
    if last is not None and last.number != shift.number - 1:
        return last, False
    marks.add(unit.db, shift.closed_at, marks.SHIFT, shift)
    return shift, True
