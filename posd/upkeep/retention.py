"""Retention: removal of records that ended more than the configured number of days ago.

Retention runs daily and at an operator's request. A run works in small steps through the store's writer. A step is a
function that the writer runs between the functions of payments. Several steps share a COMMIT. After this COMMIT, a
daily run pauses for several times as long as these steps took. A run can end before each pause. The next run starts
again with the oldest remaining records.

The scan for old records reads an index, from the oldest record on. A removal checks again inside its commit, because a
till may have derived another payment since the scan. A removal takes few records at a time, because it runs between
payments. The commit that removes a payment records its id. The feed has no index by subject, so its lines are removed
afterwards. After a power cut between the two removals, the next run removes the lines.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from posd.base.clocks import monotonic
from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.json_types import Moment
from posd.base.problems import Problem
from posd.base.times import iso
from posd.clock.clock import REMEDY, stretches
from posd.payments import chains, journal
from posd.payments import rows as transactions
from posd.payments.model import Transaction
from posd.printing import rows as print_jobs
from posd.printing.model import PrintJob
from posd.records import pages, quarantine
from posd.records.model import Pruned, PrunedJob
from posd.storage import CommitUncertain, StorageUnavailable, backup, changes, connection, marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.upkeep.retention_rules import RetentionReason, guards_sale, keeps_together

#: Seconds from the start of the daemon to the first run, and between daily runs.
FIRST_SECONDS = 600.0
DAILY_SECONDS = 86_400.0
#: Number of payments that are checked between two commits.
AT_A_TIME = 20
#: Number of lines of the feed that are read at a time, and that one function removes.
LINES_AT_A_TIME = 500
LINES_A_FUNCTION = 25
#: The scan of the feed ends after this number of recent lines. A smaller number could end it too early, at lines that
#: only look recent because the clock was ahead.
LINES_TOO_NEW = 2000
#: If shifts are used, records wait for the close of their shift, but not longer than this. Otherwise a shop that has
#: stopped closing shifts would keep all records.
LONGEST_SHIFT = timedelta(days=92)
#: Number of pages that one function removes, and number of such functions in a commit.
PAGES_A_FUNCTION = 8
CUTS_A_COMMIT = 8
#: Pause of a daily run, as a multiple of the duration of the steps before it. A requested run has no pause.
PAUSES = 10.0
#: Number of attempts to empty the log, and seconds between them. A backup may be reading the log.
LOG_TRIES = 5
LOG_SECONDS = 2.0

# SQL for the candidates, for the chain of a record, for lines of the feed, and for refused bodies.

#: Longest chain that is removed. A longer chain would delay payments.
MAX_CHAIN = 50
#: Maximum number of payments of a sale that are checked, newest first. A till may use the same sale for all payments.
MAX_OF_SALE = 20

#: The largest rowid.
MAX_ROWID = 2**63 - 1

#: (created_at, id): the position of a scan.
Place = tuple[str, str]
BEGINNING: Place = ("", "")


#: Payments or print jobs that belong together, and the reason why they are kept, or None.
Chain = tuple[tuple[Any, ...], RetentionReason | None]


class PrunedTable(msgspec.Struct, frozen=True):
    """Table from which retention removes old records, chain by chain.

    `index`: index of the scan, by time and id. Arguments of `chain_of`: the database, an id, the time limit of old
    records, and the check whether a call about an id is open.
    """

    noun: str
    name: str
    key: str
    index: str
    chain_of: Callable[[sqlite3.Connection, str, str, Callable[[str], bool]], Chain]
    remove: Callable[[sqlite3.Connection, Any], None]


def candidates(db: sqlite3.Connection, table: PrunedTable, after: Place, before: str, limit: int) -> list[Place]:
    """Return the next records created before a moment, the oldest first."""
    return db.execute(
        f"SELECT created_at, {table.key} FROM {table.name} INDEXED BY {table.index}"  # noqa: S608 - of this file
        f" WHERE (created_at, {table.key}) > (?, ?) AND created_at < ? ORDER BY created_at, {table.key} LIMIT ?",
        (*after, before, limit),
    ).fetchall()


def first_recent(db: sqlite3.Connection, name: str, column: str, before: str, until: str) -> int:
    """Return the number of the first row whose time is from `before` to `until`.

    No later row is old. If its time is before `before`, the clock was behind when posd wrote the row. A row with a time
    after `until` is ignored, because the clock was ahead.
    """
    row = db.execute(
        f"SELECT rowid FROM {name} NOT INDEXED WHERE {column} >= ? AND {column} <= ?"  # noqa: S608 - of this file
        " ORDER BY rowid LIMIT 1",  # old rows are removed, so few rows come before the result
        (before, until),
    ).fetchone()
    return MAX_ROWID if row is None else int(row[0])


def first_uncounted(db: sqlite3.Connection) -> str | None:
    """Return the time of the first change after the last closed shift; None without one, or without shifts."""
    if (shift := marks.newest_detail(db, marks.SHIFT, dict)) is None:
        return None
    return next((change.at for change in changes.after(db, shift["up_to"], 1)), None)


def chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return the payments in the chain of one payment, or none if it was removed.

    `busy`: returns whether a call about an id is open.
    """
    found = transactions.get(db, identity)
    if found is None:
        return (), None
    try:
        members = tuple(chains.ChainLinks(db, MAX_CHAIN).whole(found))
    except chains.ChainTooLong:
        return (found,), RetentionReason.CHAIN
    return members, _kept(db, members, before, busy)


def _kept(
    db: sqlite3.Connection, members: Sequence[Transaction], before: str, busy: Callable[[str], bool]
) -> RetentionReason | None:
    if (kept := keeps_together(members, before)) is not None:
        return kept
    ids = {item.client_transaction_id for item in members}
    if any(busy(identity) for identity in ids) or _is_last_numbered(db, ids):
        return RetentionReason.OPEN
    for item in members:
        if item.sale is not None:
            others = islice(transactions.of_sale(db, item.sale), MAX_OF_SALE)
            if guards_sale(item, (other for other in others if other.client_transaction_id not in ids), before):
                return RetentionReason.SALE
    return None


def _is_last_numbered(db: sqlite3.Connection, ids: Collection[str]) -> bool:
    """Return whether `ids` has the newest payment, and incomplete records exist.

    Without the row of that payment, the next payment could get the number of an incomplete record.
    """
    if not journal.last_incomplete_rowid(db):
        return False
    row = db.execute("SELECT client_transaction_id FROM transactions ORDER BY rowid DESC LIMIT 1").fetchone()
    return row[0] in ids


def remove(db: sqlite3.Connection, item: Transaction) -> None:
    """Remove a final payment, except its id and its lines of the feed."""
    assert item.outcome is not None  # noqa: S101 - a final record has an end
    identity = item.client_transaction_id
    result, day = item.outcome.result, item.outcome.decided_at[:10]
    transactions.PAYMENT.keep_pruned(db, Pruned(identity, item.terminal, item.type, result, day))
    forget(db, identity)


def forget(db: sqlite3.Connection, identity: str) -> None:
    """Remove a payment in any state.

    A restore also calls this for a payment that retention had removed in the replaced database.
    """
    drop_words(db, identity)
    journal.remove_events(db, identity)
    _delete(db, identity, TRANSACTIONS, "journal", "leases", "unread_approvals")


def drop_words(db: sqlite3.Connection, identity: str) -> None:
    """Remove the words of a payment from the search index, if the payment is there."""
    if (row := words_of(db, identity)) is not None:
        transactions.drop_words(db, identity, *row)


def words_of(db: sqlite3.Connection, identity: str) -> tuple[str, bytes] | None:
    """Return the source of a payment's index words, or None if there is no row."""
    query = "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?"
    row = db.execute(query, (identity,)).fetchone()
    return (row[0], str(row[1]).encode()) if row else None


def print_chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return a print job with its reprints and its originals, or none if it was removed."""
    found: dict[str, PrintJob] = {}
    waiting = [identity]
    while waiting and len(found) <= MAX_CHAIN:
        job = print_jobs.get(db, waiting.pop())
        if job is None or job.print_job_id in found:
            continue
        found[job.print_job_id] = job
        waiting += print_jobs.reprints(db, job.print_job_id)
        waiting += [job.reprint_of] if job.reprint_of else []
    kept = RetentionReason.CHAIN if len(found) > MAX_CHAIN else keeps_together(found.values(), before)
    if kept is None and any(busy(name) for name in found):
        kept = RetentionReason.OPEN
    return tuple(found.values()), kept


def remove_job(db: sqlite3.Connection, job: PrintJob) -> None:
    """Remove a final print job, except its id and its lines of the feed."""
    identity = job.print_job_id
    print_jobs.PRINT_JOB.keep_pruned(db, PrunedJob(identity, job.terminal, job.status, job.updated_at[:10]))
    forget_job(db, identity)


def forget_job(db: sqlite3.Connection, identity: str) -> None:
    """Remove a print job in any state from the new database of a restore."""
    _delete(db, identity, PRINT_JOBS, "print_journal")


def _delete(db: sqlite3.Connection, identity: str, table: PrunedTable, *others: str) -> None:
    """Delete the rows of one id from other tables, and then from its own."""
    for name in (*others, table.name):
        db.execute(f"DELETE FROM {name} WHERE {table.key} = ?", (identity,)).close()  # noqa: S608 - of this file


TRANSACTIONS = PrunedTable("payments", "transactions", "client_transaction_id", "transactions_newest", chain_of, remove)
PRINT_JOBS = PrunedTable("print jobs", "print_jobs", "print_job_id", "print_jobs_newest", print_chain_of, remove_job)


class AgeLimit(msgspec.Struct, frozen=True):
    """Condition of an old record: created before `before`, and recorded before the row `first_recent`.

    `doubtful`: periods of an untrusted clock. A record with a time in such a period may be new.
    """

    before: str
    first_recent: int
    doubtful: tuple[tuple[str, str], ...] = ()

    def may_be_new(self, *times: str) -> bool:
        """Return whether one of these times may be from a clock that was behind."""
        return any(first <= time <= last for first, last in self.doubtful for time in times)


def old_chain(
    db: sqlite3.Connection, table: PrunedTable, identity: str, age: AgeLimit, busy: Callable[[str], bool]
) -> Chain:
    """Return the chain of one id, with the reason why it is kept."""
    members, kept = table.chain_of(db, identity, age.before, busy)
    if kept is None and any(
        age.may_be_new(item.created_at, item.updated_at) or _number(db, table, item) > age.first_recent
        for item in members
    ):
        kept = RetentionReason.RECENT
    return members, kept


def _number(db: sqlite3.Connection, table: PrunedTable, item: Any) -> int:
    row = db.execute(
        f"SELECT rowid FROM {table.name} WHERE {table.key} = ?",  # noqa: S608 - of this file
        (getattr(item, table.key),),
    ).fetchone()
    return int(row[0])


def remove_chain(
    unit: WriteTransaction, table: PrunedTable, identity: str, age: AgeLimit, busy: Callable[[str], bool]
) -> Chain:
    """Remove the whole chain of one id, or nothing. Return the chain, with the reason if it was kept."""
    members, kept = old_chain(unit.db, table, identity, age, busy)
    for item in members if kept is None else ():
        table.remove(unit.db, item)
    return members, kept


#: Part of the feed: number of its last line (None without lines), removable lines, and number of recent lines.
FeedSpan = tuple[int | None, list[int], int]


_FEED = """
SELECT c.seq, c.at, t.rowid IS NULL AND j.rowid IS NULL
  FROM changes c
  LEFT JOIN transactions t ON t.client_transaction_id = c.id
  LEFT JOIN print_jobs j ON j.print_job_id = c.id
 WHERE c.seq > ? ORDER BY c.seq LIMIT ?
"""


def lines(db: sqlite3.Connection, after: int, before: str, limit: int) -> FeedSpan:
    """Return a part of the feed after the number `after`, with the lines whose record was removed."""
    rows = db.execute(_FEED, (after, limit)).fetchall()
    gone = [seq for seq, _, removed in rows if removed]
    return rows[-1][0] if rows else None, gone, sum(at >= before for _, at, _ in rows)


def remove_lines(unit: WriteTransaction, numbers: Sequence[int]) -> None:
    """Remove lines of the feed, and record the highest removed number."""
    if numbers:
        pages.note_removed(unit, max(numbers))
    unit.db.executemany("DELETE FROM changes WHERE seq = ?", ((number,) for number in numbers)).close()


_QUARANTINED = f"""
SELECT q.id, q.received_at,
       EXISTS (SELECT 1 FROM transactions t WHERE q.channel = '{Channel.TRANSACTION}'
                  AND t.client_transaction_id = q.subject AND (t.phase <> 'final' OR t.attention <> '[]'))
    OR EXISTS (SELECT 1 FROM print_jobs j WHERE q.channel = '{Channel.PRINT}'
                  AND j.print_job_id = q.subject AND (j.phase <> 'final' OR j.attention <> '[]'))
  FROM quarantine q
 WHERE q.id > ? ORDER BY q.id LIMIT ?
"""  # noqa: S608 - constants


def quarantined(db: sqlite3.Connection, after: int, age: AgeLimit, limit: int) -> FeedSpan:
    """Return the old refused bodies after an id.

    Bodies of open records, and of records with an attention, are omitted.
    """
    rows = db.execute(_QUARANTINED, (after, limit)).fetchall()
    gone = [
        identity
        for identity, at, looked_at in rows
        if at < age.before and identity < age.first_recent and not age.may_be_new(at) and not looked_at
    ]
    return rows[-1][0] if rows else None, gone, sum(at >= age.before for _, at, _ in rows)


# The runs of retention.

log = structlog.get_logger("posd.retention")


class Removed(msgspec.Struct):
    """Number of records that were removed, or in a dry run the number that a real run would remove."""

    transactions: Annotated[int, Meta(description="payments")] = 0
    print_jobs: Annotated[int, Meta(description="print jobs")] = 0
    quarantined: Annotated[int, Meta(description="bodies of the quarantine")] = 0
    changes: Annotated[int, Meta(description="lines of the feed")] = 0


class Report(msgspec.Struct):
    """Result of a removal of old records.

    `kept`: reason -> number of records created before `before` that are kept. `bytes_returned` is None if the database
    cannot shrink: new payments use its free pages.
    """

    before: Annotated[Moment, Meta(description="records that ended before this are old")]
    dry_run: Annotated[bool, Meta(description="whether this only reports what would be removed")]
    removed: Annotated[Removed, Meta(description="what was removed, or would be")] = msgspec.field(
        default_factory=Removed
    )
    kept: Annotated[dict[str, int], Meta(description="older records that are kept: reason -> number")] = {}
    bytes_before: Annotated[int, Meta(description="size of the database before the removal")] = 0
    bytes_returned: Annotated[
        int | None, Meta(description="by how much the file shrank; null if it cannot shrink (its space is reused)")
    ] = 0
    kept_for_shift: Annotated[
        bool, Meta(description="whether old records are kept because no closed shift has counted them yet")
    ] = False


class Retention(msgspec.Struct, eq=False):
    """Removal of old records. `busy`: returns whether a call to a terminal is open for an id.

    A daily run uses `confirmed`, a time that one wrong reading of the clock cannot change much. A requested run uses
    `now` if the clock is trusted. `doubt`: returns why the clock is not trusted, or None (see `clock.rules`).
    """

    store: Store
    days: int  # records are kept for this number of days, 0: without limit
    busy: Callable[[str], bool]
    now: Callable[[], datetime]
    confirmed: Callable[[], datetime]
    doubt: Callable[[], str | None]
    #: The present step as text, and the completed amount.
    progress: tuple[str, int] = ("", 0)
    _one_at_a_time: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    _asked: int = 0  # runs that operators wait for
    _stopping: bool = False

    def stop(self) -> None:
        """End a run at its next step."""
        self._stopping = True

    async def run(self) -> None:
        """Remove old records, soon after the start and then daily, until cancelled."""
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait)
            wait = DAILY_SECONDS
            if not self.days:
                continue
            try:
                await self._by_itself()
            # The clock guard reports when the clock is not trusted, and when it is trusted again.
            except Problem:
                wait = FIRST_SECONDS
            except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
                log.warning("store.not_pruned", error=str(error))
                wait = FIRST_SECONDS

    async def _by_itself(self) -> None:
        """Remove old records by the confirmed time. Raise Problem as `prune`."""
        self._require_clock()
        async with self._one_at_a_time:
            await self._prune(self.confirmed(), self.days, PAUSES)

    async def prune(self, days: int, *, dry_run: bool = False) -> Report:
        """Remove records that ended more than `days` ago, or count them in a dry run.

        Raise Problem clock_unsure before any removal. Raise StorageUnavailable, CommitUncertain, sqlite3.Error, or
        Problem draining if posd stops. Earlier removals stay.
        """
        if dry_run:
            return await self._prune(self.now() if self.doubt() is None else self.confirmed(), days, 0.0, dry_run=True)
        self._require_clock()
        now = self.now()
        self._asked += 1
        try:
            async with self._one_at_a_time:
                return await self._prune(now, days, 0.0)
        finally:
            self._asked -= 1

    def _require_clock(self) -> None:
        if (doubt := self.doubt()) is not None:
            raise Problem("clock_unsure", f"nothing was removed: {doubt}. What to do: {REMEDY}; then prune again")

    async def _prune(self, now: datetime, days: int, pauses: float, *, dry_run: bool = False) -> Report:
        kept_for = timedelta(days=days)
        before, uncounted = iso(now - kept_for), await self.store.read(first_uncounted)
        kept_for_shift = uncounted is not None and iso(now - LONGEST_SHIFT) <= uncounted < before
        if uncounted is not None and kept_for_shift:
            before = uncounted
        report = Report(before, dry_run, kept_for_shift=kept_for_shift)
        run = _Run(self, kept_for, iso(now), pauses, report)
        report.bytes_before = await self.store.read(backup.size)
        await run.payments_and_jobs()
        await run.quarantine()
        if dry_run:
            return report
        await run.feed()
        await run.cut()
        removed = report.removed
        if any(msgspec.structs.astuple(removed)) or pauses == 0.0:
            log.info(
                "store.pruned",
                count=removed.transactions,
                print_jobs=removed.print_jobs,
                quarantined=removed.quarantined,
                kept=report.kept,
                bytes_returned=report.bytes_returned,
                before=report.before,
            )
        return report

    def interrupted(self, pauses: float) -> bool:
        """Return whether a run must end, because posd stops.

        A daily run also ends for a requested run, or if the clock is not trusted.
        """
        return self._stopping or (pauses > 0 and (self._asked > 0 or self.doubt() is not None))


class _Run(msgspec.Struct, eq=False):
    """One run over the database, by the time `now`. A dry run only counts."""

    retention: Retention
    kept_for: timedelta
    now: str
    pauses: float
    report: Report

    async def payments_and_jobs(self) -> None:
        """Remove payments, chain by chain, and print jobs, each with its reprints."""
        self.report.removed.transactions = await self._walk(TRANSACTIONS)
        crash_point("prune.payments_removed")
        self.report.removed.print_jobs = await self._walk(PRINT_JOBS)

    async def _walk(self, table: PrunedTable) -> int:
        self.retention.progress = (f"removing {table.noun}", 0)
        age = await self._age(table.name, "created_at")
        dry_run, store = self.report.dry_run, self.retention.store
        ask: Callable[..., Awaitable[Chain]] = store.read if dry_run else store.write
        change: Callable[..., Chain] = old_chain if dry_run else remove_chain
        remove = partial(change, table=table, age=age, busy=self.retention.busy)
        after: Place = BEGINNING
        gone: set[str] = set()  # in a dry run: ids of the chains that were counted
        count = 0
        while places := await store.read(
            partial(candidates, table=table, after=after, before=self.report.before, limit=AT_A_TIME)
        ):
            began = monotonic()
            after = places[-1]
            ids = [identity for _, identity in places if identity not in gone]
            for members, kept in await asyncio.gather(*(ask(partial(remove, identity=name)) for name in ids)):
                if kept is not None:
                    self.report.kept[kept] = self.report.kept.get(kept, 0) + 1
                    continue
                names = {getattr(item, table.key) for item in members} - gone
                count += len(names)
                if dry_run:
                    gone |= names
            self.retention.progress = (self.retention.progress[0], count)
            await self._rest(began)
        return count

    async def _age(self, name: str, column: str) -> AgeLimit:
        first = partial(first_recent, name=name, column=column, before=self.report.before, until=self.now)
        doubtful = [
            times
            for item in await self.retention.store.read(stretches)
            for times in item.too_early(self.report.before, self.kept_for)
        ]
        return AgeLimit(self.report.before, await self.retention.store.read(first), tuple(doubtful))

    async def quarantine(self) -> None:
        """Remove refused bodies."""
        look = partial(quarantined, age=await self._age("quarantine", "received_at"), limit=LINES_AT_A_TIME)
        self.report.removed.quarantined = await self._sweep(look, quarantine.remove)

    async def feed(self) -> None:
        """Remove the feed's lines of removed records."""
        self.retention.progress = ("removing lines of the feed", 0)
        look = partial(lines, before=self.report.before, limit=LINES_AT_A_TIME)
        self.report.removed.changes = await self._sweep(look, remove_lines)
        crash_point("prune.feed_removed")

    async def _sweep(self, look: Callable[..., FeedSpan], remove: Callable[..., None]) -> int:
        count, new, store = 0, 0, self.retention.store
        after, numbers, recent = await store.read(partial(look, after=0))
        while after is not None and new < LINES_TOO_NEW:
            began = monotonic()
            new = new + recent if recent else 0
            count += len(numbers)
            if not self.report.dry_run:
                parts = range(0, len(numbers), LINES_A_FUNCTION)
                chosen = [numbers[start : start + LINES_A_FUNCTION] for start in parts]
                await asyncio.gather(*(store.write(partial(remove, numbers=part)) for part in chosen))
            await self._rest(began)
            after, numbers, recent = await store.read(partial(look, after=after))
        return count

    async def cut(self) -> None:
        """Release free space to the disk, and empty the log, so that no file contains removed data."""
        self.retention.progress, store = ("returning the space", 0), self.retention.store
        if await store.read(connection.can_shrink):
            left = await store.read(_free_pages)
            while left:
                began = monotonic()
                cuts = (store.write(_cut) for _ in range(CUTS_A_COMMIT))
                left = min(await asyncio.gather(*cuts))
                crash_point("prune.space_returned")
                await self._rest(began)
            self.report.bytes_returned = self.report.bytes_before - await store.read(backup.size)
        else:
            self.report.bytes_returned = None
        for _ in range(LOG_TRIES):
            if await store.empty_log():
                return
            await asyncio.sleep(LOG_SECONDS)
        log.warning(
            "store.log_not_emptied",
            detail="a process reads the database (a backup?); removed records may stay in its log for some time",
        )

    async def _rest(self, began: float) -> None:
        if self.retention.interrupted(self.pauses):
            raise Problem("draining", "posd is stopping; not everything was removed. Call again in a moment")
        await asyncio.sleep(self.pauses * (monotonic() - began))


def _cut(unit: WriteTransaction) -> int:
    """Remove free pages from the file. Return the number of remaining free pages."""
    unit.moved_pages = True
    unit.db.execute(f"PRAGMA incremental_vacuum({PAGES_A_FUNCTION})").fetchall()
    return _free_pages(unit.db)


def _free_pages(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA freelist_count").fetchone()[0])
