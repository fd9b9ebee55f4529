"""Guard for a database that may lack payments. Then an unknown id may have been sent before.

Payments may be missing after a restore that could not read the whole replaced file, or that received a list with
unknown ids. They may also be missing if the database is behind its witness: then an older copy or another file has
replaced it. Then posd records the payments of the witness as in doubt when it starts. No new payment starts until the
operator has checked (posd restore --seen) and recorded the paid ones (posd resolve). Print jobs are not refused,
because printing a receipt twice costs no money.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from posd.base.json_types import Moment, Uuid
from posd.base.problems import Problem
from posd.base.times import in_utc, iso, parse_iso
from posd.payments import rows
from posd.payments.record import Recorded, TransactionChanged
from posd.records import witness
from posd.records.model import Phase
from posd.records.witness import StartedPayment, WitnessContents
from posd.records.witness_file import KEPT, WitnessFile
from posd.storage import changes, marks
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.changes import DatabaseIdentity, IdentityCause
from posd.storage.marks import GoneBack, MissingRecords, Restored
from posd.storage.store import Store

#: Command by which an operator confirms that a restore was checked.
SEEN = "posd restore --seen --operator NAME"

log = structlog.get_logger("posd.unseen")


class UnknownPayment(msgspec.Struct, frozen=True):
    """The current state of a payment that was taken over."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    terminal: Annotated[str, Meta(description="serial number of its terminal, empty if not known")]
    created_at: Annotated[Moment, Meta(description="time of its start, as far as known")]
    phase: Annotated[Phase, Meta(description="its phase")]
    result: Annotated[str | None, Meta(description="result of its outcome, null before its end")]


class RestoreGuard(msgspec.Struct, eq=False):
    """Guard of new payments, and the witness. `begin` runs at the start, before anything else is recorded."""

    store: Store
    file: WitnessFile
    now: Callable[[], datetime]
    #: Largest step of the clock that posd does not notice. The time at which a till stored an id can be wrong by this
    #: step. So the period of missing records is extended by this step.
    clock_step: timedelta
    #: Returns the moment before which retention removes records, or "".
    forgets_before: Callable[[], str] = lambda: ""
    #: Fault of an earlier daemon's witness, or None.
    mention: str | None = None
    _missing: MissingRecords | None = None
    #: Unconfirmed restores, and then unconfirmed steps back in time.
    _happened: list[Restored | GoneBack] = []
    #: Restores and steps back in time that make posd refuse new payments, oldest first.
    _refused_for: list[Restored | GoneBack] = []
    _seq: int = 0

    async def begin(self) -> None:
        """Compare the database with its witness, and record the missing payments. Raise StorageUnavailable."""
        left, self.mention = self._read()
        compare = partial(_compare, left=left or WitnessContents(), at=self.now())
        identity, self._seq, gone_back, witnessed = await self.store.write(compare)
        if left is None and self.mention is None and witnessed:
            self.mention = "it is gone: nothing shows whether the database has gone back in time"
        if self.mention is not None:
            log.warning("witness.unusable", detail=self.mention)
        if gone_back is not None:
            log.error("store.gone_back", count=gone_back.taken_over, detail=gone_back.words)
        # The witness file is rewritten if it is incomplete, or if the database continued without it.
        stale = left is None or left.torn or left.unreadable > 0 or gone_back is not None
        behind = left is None or (left.database_id, left.seq) != (identity.database_id, self._seq)
        await self.file.open(self._content if stale or behind else None)
        await self.look()
        for item in self._happened:
            if isinstance(item, Restored):
                log.warning("store.restored", detail=item.words)
        self.store.hub.listen(self._changed, RecordedChange)

    async def run(self) -> None:
        """Write the witness file until cancelled."""
        await self.file.run(self._content)

    def end(self) -> None:
        """Write the last number of the feed, and close the witness file."""
        self.file.close(witness.seq_line(self._seq))

    async def _content(self, path: Path) -> None:
        await self.store.read(partial(_write, path=path))

    def _read(self) -> tuple[WitnessContents | None, str | None]:
        """Return the witness of an earlier daemon, and its fault."""
        try:
            left = self.file.read()
        except OSError as error:
            return (
                WitnessContents(),
                f"it cannot be read ({error.strerror}); posd cannot tell whether the database has gone back",
            )
        if left is not None and left.unreadable:
            lines = "1 line of it is" if left.unreadable == 1 else f"{left.unreadable} lines of it are"
            return left, f"{lines} damaged; payments that are only in these lines are unknown"
        return left, None

    async def look(self) -> None:
        """Read the unconfirmed restores, and refuse new payments if they require it."""
        self._happened = [*await self.store.read(marks.unseen_restores), *await self.store.read(marks.unseen_gone_back)]
        missing = await self.store.read(partial(marks.missing_records, since=self.forgets_before()))
        if missing is not None:
            until = iso(in_utc(parse_iso(missing.until) + self.clock_step))
            missing = MissingRecords(missing.since, until)
        self._missing = missing
        doubtful = (item for item in self._happened if isinstance(item, GoneBack) or item.doubtful)
        self._refused_for = sorted(doubtful, key=attrgetter("at"))

    def refuse(self) -> None:
        """Raise Problem restore_unseen if an unknown id may have been sent before."""
        if self._refused_for:
            raise Problem(
                "restore_unseen",
                "cannot start: this id is not known here, and it may have been sent before, because the database "
                "was restored or has gone back in time. Nothing was sent now. An operator must check. If the slip, "
                "the terminal or the bank shows it as paid, record that with posd resolve and never repeat the "
                f"call. Only if none of them shows it: {SEEN}, then repeat the same call",
                since=self._refused_for[0].at,
                how=f"{_words(self._refused_for)} To confirm that an operator has checked it: {SEEN}",
            )

    def missing_records(self) -> MissingRecords | None:
        """Return the period of possibly missing records, also after a confirmation, or None."""
        missing = self._missing
        return missing if missing is not None and missing.until >= self.forgets_before() else None

    @property
    def refuses(self) -> bool:
        """Whether new payments are refused."""
        return bool(self._refused_for)

    @property
    def count(self) -> int:
        """Number of payments that were recorded only from the witness, a list or an id."""
        return sum(
            item.taken_over if isinstance(item, GoneBack) else item.by_id + item.ids_taken_over
            for item in self._happened
        )

    @property
    def words(self) -> str:
        """Text about the unconfirmed restores and steps back in time, or ""."""
        return _words(self._happened)

    @property
    def witness_error(self) -> str | None:
        """Error of the newest write to the witness file, or None."""
        return self.file.error

    def _changed(self, changes: Sequence[RecordedChange]) -> None:
        """Write starts, ends and the last number of the feed to the witness.

        The start of a payment waits for this call.
        """
        written, self._seq = 0, changes[-1].seq
        for change in changes:
            if not isinstance(change, TransactionChanged):
                continue
            after = change.after
            if isinstance(change.cause, Recorded) and change.before is None:
                started = StartedPayment(after.client_transaction_id, after.terminal, after.created_at, sale=after.sale)
                self.file.add(witness.start_line(change.seq, started))
            elif change.result is not None and (change.before is None or change.before.outcome is None):
                self.file.add(witness.end_line(change.seq, after.client_transaction_id, change.result))
            else:
                continue
            written = change.seq
        if written != self._seq:
            self.file.add(witness.seq_line(self._seq))


def _words(happened: Sequence[Restored | GoneBack]) -> str:
    return " ".join(item.words for item in happened)


def _compare(
    unit: WriteTransaction, left: WitnessContents, at: datetime
) -> tuple[DatabaseIdentity, int, GoneBack | None, bool]:
    """Return the present identity, the last feed number, the step back in time or None, and `witnessed`.

    `witnessed`: whether the database had a witness before. If the database has gone back in time, record the missing
    payments under a new identity.
    """
    db = unit.db
    known, seq = changes.identities(db), changes.last_seq(db)
    unknown = not_in(db, left.started)
    why = witness.why_gone_back(left, known, seq, len(unknown))
    gone_back, newest_at = None, changes.newest_at(db)
    if why is not None:
        from posd.upkeep import (
            merge,  # these imports take megabytes, and are needed only for an incomplete database
        )
        from posd.upkeep.takeover import take_over_by_id

        merge.leave_out_numbers(db, left.seq)
        known.append(changes.renew(db, iso(at), changes.last_seq(db) + 1, IdentityCause.GONE_BACK))
        take_over_by_id(unit, unknown.values(), at, "the witness beside the database shows")
        gone_back = GoneBack(iso(at), why, len(unknown), newest_at, rows.latest_start(db))
        marks.add(db, iso(at), marks.GONE_BACK, gone_back)
    witnessed = marks.newest(db, marks.WITNESSED) is not None
    if not witnessed:
        marks.add(db, iso(at), marks.WITNESSED, None)
    return known[-1], changes.last_seq(db), gone_back, witnessed


def not_in(db: sqlite3.Connection, started: Mapping[str, StartedPayment]) -> dict[str, StartedPayment]:
    """Return those payments that have neither a record nor a tombstone in the database, in their order."""
    ids = msgspec.json.encode(list(started)).decode()
    query = (
        "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT client_transaction_id FROM transactions)"
        " AND value NOT IN (SELECT client_transaction_id FROM pruned_transactions) ORDER BY key"
    )
    return {row[0]: started[row[0]] for row in db.execute(query, (ids,))}


def _write(db: sqlite3.Connection, path: Path) -> None:
    """Write a new witness file with the newest payments, line by line to save memory."""
    query = (
        "SELECT client_transaction_id, terminal, created_at, outcome ->> 'result', sale FROM transactions"
        " WHERE rowid >= coalesce((SELECT rowid FROM transactions ORDER BY rowid DESC LIMIT 1 OFFSET ?),"
        " (SELECT min(rowid) FROM transactions)) ORDER BY rowid"
    )
    newest = (StartedPayment(*row) for row in db.execute(query, (KEPT - 1,)))
    with path.open("ab") as file:
        file.writelines(witness.whole(changes.present_identity(db).database_id, changes.last_seq(db), newest))


def taken_over(db: sqlite3.Connection) -> list[UnknownPayment]:
    """Return the payments recorded from only an id since the last confirmation, the oldest first."""
    from posd.upkeep.takeover import REASON  # imported only here, as in `_compare`

    query = (
        "SELECT t.client_transaction_id, t.terminal, t.created_at, t.phase, t.outcome ->> 'result' FROM transactions t"
        " JOIN (SELECT id, min(seq) AS seq FROM changes WHERE seq >= ? AND reason = ? GROUP BY id) c"
        " ON c.id = t.client_transaction_id ORDER BY c.seq"
    )
    first = _first_unseen(db)
    found = db.execute(query, (first, REASON)) if first is not None else ()
    return [
        UnknownPayment(identity, terminal, at, Phase(phase), result) for identity, terminal, at, phase, result in found
    ]


def _first_unseen(db: sqlite3.Connection) -> int | None:
    """Return the first feed number of the oldest identity since the last confirmation, or None."""
    first: int | None
    (first,) = db.execute(
        "SELECT min(detail ->> 'first_seq') FROM marks WHERE kind = ? AND detail ->> 'cause' <> 'made'"
        " AND rowid > (SELECT coalesce(max(rowid), 0) FROM marks WHERE kind = ?)",
        (changes.IDENTITY, marks.SEEN),
    ).fetchone()
    return first
