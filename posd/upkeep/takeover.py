"""Transfer of records from the database that a restore replaces, so that no start is forgotten.

If the backup lacks a payment or print job, or has an older state of it, the whole record is copied. If its row cannot
be read, the row is derived from the journal and the events, as far as these exist. If only the id exists, the payment
or print job is in doubt.

The ids of a lane whose database is lost come from the list of `posd restore --ids`. The list is UTF-8 text with one
payment on each line, and TAB between the fields. The fields are the id, the start time (UTC, with Z), the serial of the
terminal, and the till's key of the sale. All fields except the id may be missing. Empty lines and lines with "#" at the
beginning are ignored. The first line of a repeated id counts.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from posd.base.ids import canonical_uuid
from posd.base.money import AmountUnit
from posd.base.text import composed, shown
from posd.base.times import iso, parse_iso
from posd.payments import journal
from posd.payments import record as payment_record
from posd.payments import rows as transactions
from posd.payments.model import Transaction
from posd.payments.wire import read_event
from posd.printing import rows as print_rows
from posd.printing.model import PrintJob
from posd.records.model import Phase, TakenOver
from posd.records.service import CallsInFlight
from posd.records.witness import StartedPayment
from posd.storage import UnusableFile, changes
from posd.storage.batch import WriteTransaction
from posd.storage.connection import connect_reader
from posd.upkeep import merge
from posd.upkeep.merge import EVENTS, UNREADABLE, MergedKind, Row

#: Maximum number of lines in a list: weeks of a busy lane. posd searches on the terminals for each payment.
MOST_LINES = 10_000
#: Maximum number of bytes in a line, including its end. The fields have at most 700.
MOST_LINE_BYTES = 1000
#: Maximum number of fields in a line, and of characters in a sale, as in a call that starts a payment.
MOST_PARTS = 4
MOST_SALE_CHARACTERS = 128
#: Maximum number of wrong lines that are shown, and of characters of a wrong field.
SHOWN_LINES = 5
SHOWN_CHARACTERS = 40

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)
_SERIAL = re.compile(r"[!-~]([ -~]{0,62}[!-~])?", re.ASCII)


class InvalidIdList(UnusableFile):
    """Error for a list of ids that cannot be used. `lines`: descriptions of the first wrong lines."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_id_list(file: BinaryIO) -> dict[str, StartedPayment]:
    """Return the payments of a list, by id. A missing time or serial is "".

    Raise InvalidIdList; raise OSError if the file cannot be read.
    """
    found: dict[str, StartedPayment] = {}
    faults: list[str] = []
    number = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        number += 1
        if number > MOST_LINES:
            raise InvalidIdList(
                f"the list of --ids has more than {MOST_LINES} lines; nothing was changed. Make a shorter list: give "
                "posd collect ids a later --since"
            )
        try:
            started = _payment(line)
        except ValueError as error:
            faults.append(f"  line {number}: {error}")
        else:
            if started is not None:
                found.setdefault(started.client_transaction_id, started)
        if len(line) > MOST_LINE_BYTES:
            break  # the remaining text may be one line without an end
    if faults:
        raise InvalidIdList(*_words(faults))
    if not found:
        raise InvalidIdList(
            "the list of --ids names no payment; nothing was changed. Check whether posd collect ids wrote the "
            "whole list. If head office knows of no payment, restore without --ids"
        )
    return found


def _payment(line: bytes) -> StartedPayment | None:
    """Return the payment of a line, or None for a line without one. Raise ValueError with the reason."""
    if len(line) > MOST_LINE_BYTES:
        raise ValueError(f"longer than {MOST_LINE_BYTES} bytes: a line has one id, a time, a serial and a sale")
    try:
        text = line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text: save the file as UTF-8") from error
    if not text or text.startswith("#"):
        return None
    parts = text.split("\t")
    if len(parts) > MOST_PARTS:
        raise ValueError(
            f"{len(parts)} parts, but at most 4 are possible: id, time, serial, sale, with a TAB between them"
        )
    identity, at, serial, sale = parts + [""] * (MOST_PARTS - len(parts))
    canonical = canonical_uuid(identity)
    if canonical is None:
        raise ValueError(f"{_quoted(identity)} is not the id of a payment: write a UUID, then a TAB if more follows")
    if serial and not _SERIAL.fullmatch(serial):
        raise ValueError(f"{_quoted(serial)} is not a serial number: write it as printed on the terminal, or omit it")
    if len(sale) > MOST_SALE_CHARACTERS:
        raise ValueError(f"{_quoted(sale)} is not a sale: it has more than {MOST_SALE_CHARACTERS} characters")
    return StartedPayment(canonical, serial, _moment(at) if at else "", sale=sale or None)


def _moment(text: str) -> str:
    """Return a time in posd's format. Raise ValueError with the reason."""
    try:
        if _MOMENT.fullmatch(text):
            return iso(parse_iso(text))
    except ValueError:
        pass
    raise ValueError(f"{_quoted(text)} is not a time: write it as 2026-11-20T10:42:03.120Z (UTC), or omit it")


def _quoted(part: str) -> str:
    short = part if len(part) <= SHOWN_CHARACTERS else f"{part[:SHOWN_CHARACTERS]}..."
    return f"'{shown(short)}'"


def _words(faults: list[str]) -> list[str]:
    count = "1 line" if len(faults) == 1 else f"{len(faults)} lines"
    left = len(faults) - SHOWN_LINES
    return [
        f"{count} of the list of --ids cannot be read; nothing was changed:",
        *faults[:SHOWN_LINES],
        *([f"  and {left} more"] if left > 0 else []),
        "Correct the file, or make it again by posd collect ids",
    ]


#: Reason that the feed shows for all transferred records.
REASON = "taken_over"


#: How many records were transferred, by the names in `marks.Restored`.
TakenCounts = Mapping[str, int]


def take_over(
    db: sqlite3.Connection,
    old: Path,
    ids: Collection[str],
    print_ids: Collection[str],
    *,
    sound: bool,
    behind: bool,
    now: datetime,
) -> tuple[int, TakenCounts]:
    """Copy records from `old`, a database of the same schema, into `db`, an unused file (opened by URI).

    `ids` and `print_ids`: payments and print jobs that may have no row in `old`. `sound`: whether `old` has all its
    rows. `behind`: whether `old` lacks the newest numbers. Return the first feed number of the transferred records, and
    how many were transferred. Raise sqlite3.Error if `old` cannot be read at all.
    """
    with closing(connect_reader(old)) as reader, merge.attached(db, old):
        reader.text_factory = merge.text
        merge.number_above(db, known=sound and not behind)
        first_seq = changes.last_seq(db) + 1
        for kind in (merge.PAYMENTS, merge.PRINT_JOBS):
            merge.keep_removed(db, kind)
        payments = _TakeOver(merge.PAYMENTS, db, reader, now, sound, _insert_payment)
        copied = payments.run(ids)
        merge.take_leases(db, list(payments.holding(copied)), sound=sound)
        merge.copy_the_rest(db)
        jobs = _TakeOver(merge.PRINT_JOBS, db, reader, now, sound, _insert_job)
        jobs.run(print_ids)
        counts = {"taken_over": payments.count, "by_id": payments.by_id}
        return first_seq, counts | {"print_jobs": jobs.count, "print_jobs_by_id": jobs.by_id}


def take_over_by_id(unit: WriteTransaction, unknown: Iterable[StartedPayment], now: datetime, source: str) -> None:
    """Record payments in doubt that only another source has.

    `source`: text about that source, such as "the witness shows".
    """
    for item in unknown:
        facts = [item.at or "at an unknown time", f"terminal {item.terminal or 'not known'}"]
        if item.result is not None:
            facts.append(f"it ended as {item.result}")
        reason = f"{source} that it was started ({', '.join(facts)}), and the database has no record of it"
        started = msgspec.structs.replace(item, at=item.at or iso(now), sale=item.sale and composed(item.sale))
        _record_payment(unit, started, None, reason, now)


def _record_payment(
    unit: WriteTransaction, item: StartedPayment, answer_unit: AmountUnit | None, reason: str, now: datetime
) -> None:
    """Record a payment in doubt. Nothing else about it is known."""
    found = Transaction(
        client_transaction_id=item.client_transaction_id,
        terminal=item.terminal,
        type=None,
        created_at=item.at,
        updated_at=item.at,
        phase=Phase.STARTING,
        sale=item.sale,
        answer_unit=answer_unit,
    )
    payment_record.begin(unit, found, REASON)
    payment_record.record(unit, found, TakenOver(reason), now, CallsInFlight())


@dataclass(eq=False, slots=True)
class _TakeOver:
    """Transfer of the payments, or of the print jobs. `old`: a connection to the replaced database alone.

    After `run`, `count` is the number of transferred records, and `by_id` how many of them have only an id.
    """

    kind: MergedKind
    db: sqlite3.Connection
    old: sqlite3.Connection
    now: datetime
    sound: bool
    #: Records an id in doubt: this transfer, id, time, terminals of the id in the feed (oldest first), reason.
    insert: Callable[["_TakeOver", str, str, Sequence[str], str], None]
    count: int = 0
    by_id: int = 0

    @property
    def unit(self) -> WriteTransaction:
        return WriteTransaction(self.db)

    def run(self, ids: Collection[str]) -> Sequence[str]:
        """Copy the records and ids of `old`. Add the `ids` that have no row in `old`. Return the ids with a row."""
        newer = merge.newer(self.db, self.kind)
        unreadable = {identity for identity in newer if not self._readable(identity)}
        if not self.sound:
            unreadable |= merge.without_row(self.db, self.kind)
            unreadable |= {identity for identity in ids if not merge.is_known(self.db, self.kind, identity)}
        newer = {identity: place for identity, place in newer.items() if identity not in unreadable}
        doubtful = [identity for identity in sorted(unreadable) if self._may_derive(identity)]
        missing = {identity for identity in doubtful if self._place(identity) is None}

        known = {identity for identity in newer if self._place(identity) is not None}

        told = merge.append(self.db, self.kind.changes, (*newer, *doubtful))[1]
        copied = [identity for identity in newer if not merge.stands(self.db, self.kind, identity)]
        for identity in copied:
            self.kind.copy(self.db, self.kind, identity)
        histories = merge.histories(self.db, missing, self.kind.changes)
        for identity in sorted(missing):
            self._insert_by_id(identity, histories.get(identity, []))
        appended = {rows.table: merge.append(self.db, rows, (*newer, *doubtful)) for rows in self.kind.record}
        for identity in copied if EVENTS in self.kind.record else ():
            merge.set_final(self.db, identity, appended[EVENTS.table][0])
        incomplete_up_to = self.kind.last_incomplete_rowid(self.old)
        for identity, place in newer.items():
            if place <= incomplete_up_to or not (self.sound or self._follows(identity)):
                merge.number_below(self.db, self.kind, identity)
        grown = {identity for _, ids_with_more in appended.values() for identity in ids_with_more}
        derived = {identity for identity in doubtful if identity in grown and self._derive_again(identity)}
        for identity in sorted(known & grown):
            # Part of a record may be only in the backup, and the rest only in the replaced file. So derive the row from
            # all parts.
            if self._may_derive(identity):
                self._derive_again(identity)
        # These rows differ from their newest change in the feed. Either their own newest change could not be read, or
        # changes of the replaced file were added after it, although the row stayed.
        behind = {identity for identity, *_ in merge.history_behind(self.db, self.kind)}
        for identity in sorted(behind | (known & told).difference(copied)):
            self.kind.note(self.unit, self._stored(identity), REASON, iso(self.now))
        self.count, self.by_id = len(newer) + len(derived | missing), len(missing - derived)
        return list(newer)

    def _readable(self, identity: str) -> bool:
        try:
            return self.kind.rows.get(self.old, identity) is not None
        except UNREADABLE:
            return False

    def _place(self, identity: str) -> int | None:
        return merge.rowid(self.db, self.kind, identity)

    def _may_derive(self, identity: str) -> bool:
        """Return whether the record of a row is complete, so that the row may be derived from it."""
        place = self._place(identity)
        return place is None or place > self.kind.last_incomplete_rowid(self.db)

    def _insert_by_id(self, identity: str, history: Sequence[Row]) -> None:
        """Record an id without a readable row.

        The payment or print job is in doubt until its record is found, the terminal reports its end, or an operator
        resolves it.
        """
        reason = "a restore found its id in the replaced database, but could not read its record"
        if history:
            last = history[-1]
            state = last["result"] or last["status"] or "no state"
            reason += f" (the last known of it: {last['phase']}, {state}, {last['at']})"
        created_at = history[0]["at"] if history else iso(self.now)
        terminals = [change["terminal"] for change in history if change["terminal"]]
        self.insert(self, identity, created_at, terminals, reason)

    def _stored(self, identity: str) -> Any:
        stored = self.kind.rows.get(self.db, identity)
        assert stored is not None  # noqa: S101 - the row existed before, or was just written
        return stored

    def _follows(self, identity: str) -> bool:
        """Return whether a row equals the row derived from its record, so that no part of the record is missing."""
        stored = self._stored(identity)
        try:
            return not self.kind.differing(self.db, stored, REASON)[0]
        except (*UNREADABLE, AssertionError):
            return False

    def _derive_again(self, identity: str) -> bool:
        """Derive a row from its present record. Return whether the row changed."""
        stored = self._stored(identity)
        try:
            differing, store = self.kind.differing(self.db, stored, REASON)
        except (*UNREADABLE, AssertionError):
            return False
        if differing:
            store(self.unit)
        return bool(differing)

    def holding(self, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield terminal and payment of the leases that may be lost. The payments are open, and the newest is first.

        A released payment holds no lease, an orphan never had one, and the leases of an undamaged file are known.
        """
        for identity in () if self.sound else reversed(ids):
            item = transactions.get(self.db, identity)
            if item is not None and item.phase is not Phase.FINAL and not (item.released or item.orphan):
                yield item.terminal, identity


def _insert_payment(work: _TakeOver, identity: str, created_at: str, terminals: Sequence[str], reason: str) -> None:
    terminal = _terminal(work.old, identity, terminals)
    unit = transactions.newest_answer_unit(work.db, terminal)
    _record_payment(work.unit, StartedPayment(identity, terminal, created_at), unit, reason, work.now)


def _terminal(old: sqlite3.Connection, identity: str, named: Sequence[str]) -> str:
    """Return the terminal of a payment, as far as it is known, or ""."""
    lease = old.execute("SELECT terminal FROM leases WHERE client_transaction_id = ?", (identity,))
    serials = [*named, *(row[0] for row in lease)]
    for event in journal.events(old, identity):
        with suppress(*UNREADABLE):
            serials.append(read_event(event.body).serial_number)
    return next((serial for serial in serials if serial), "")


def _insert_job(work: _TakeOver, identity: str, created_at: str, terminals: Sequence[str], reason: str) -> None:
    found = PrintJob(
        print_job_id=identity,
        terminal=next(iter(terminals), None),
        created_at=created_at,
        updated_at=created_at,
        phase=Phase.STARTING,
    )
    print_rows.begin(work.unit, found, REASON)
    print_rows.record(work.unit, found, TakenOver(reason), work.now)
