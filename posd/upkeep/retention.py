"""Retention: what has ended longer ago than the configured days is removed, daily and when an operator asks.

It goes in little steps through the store's writer, each a function that runs between those of payments, some of them a
COMMIT; by itself it then pauses for several times as long as that took. It can end at any of them: the next run begins
at the old end again, where only what is kept is left.
"""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.json_types import Moment
from posd.base.times import iso
from posd.payments import chains, journal
from posd.payments import rows as transactions
from posd.payments.model import Transaction
from posd.printing import rows as print_jobs
from posd.printing.model import PrintJob
from posd.records import feed_cursor, pruned
from posd.records.retention import Pruned, PrunedJob
from posd.storage import backup, connection
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit
from posd.upkeep.retention_rules import Kept, guards_sale, keeps_together

# Removing what retention no longer keeps (see `records.retention`): candidates, one chain at a time, the rest.
#
# What looks for something walks an index from its old end. What removes decides again inside its commit, for a till
# may have derived something meanwhile, and does as little as it can at a time: it runs between payments. In the
# commit that takes a payment away its id is written down. Lines of the feed, which no index finds by their subject,
# go afterwards; a power cut in between leaves lines of what is not there any more, which the next run removes.

#: A chain of more is kept: removing it at once would make payments wait.
MAX_CHAIN = 50
#: Of a sale so many are looked at, the newest first; a till that always says the same has all.
MAX_OF_SALE = 20

#: The largest number of a row.
MAX_ROWID = 2**63 - 1

#: (created_at, id): from where a walk goes on.
Place = tuple[str, str]
BEGINNING: Place = ("", "")


class Chain(msgspec.Struct, frozen=True):
    """What belongs together, and why it is kept, where it is."""

    members: tuple[Any, ...] = ()
    kept: Kept | None = None


class Table(msgspec.Struct, frozen=True):
    """What is walked from its old end, by its index of times and ids, and how one and all that belongs to it go.

    `chain_of` takes a moment before which something is old, and what tells whether a call is under way for an id.
    """

    noun: str
    name: str
    key: str
    index: str
    chain_of: Callable[[sqlite3.Connection, str, str, Callable[[str], bool]], Chain]
    remove: Callable[[sqlite3.Connection, Any], None]


def candidates(db: sqlite3.Connection, table: Table, after: Place, before: str, limit: int) -> list[Place]:
    """Return the next that were created before a moment, the oldest first."""
    return db.execute(
        f"SELECT created_at, {table.key} FROM {table.name} INDEXED BY {table.index}"  # noqa: S608 - of this file
        f" WHERE (created_at, {table.key}) > (?, ?) AND created_at < ? ORDER BY created_at, {table.key} LIMIT ?",
        (*after, before, limit),
    ).fetchall()


def first_recent(db: sqlite3.Connection, name: str, column: str, before: str, until: str) -> int:
    """Return the number of the first row of a table that was recorded between two moments.

    What was recorded after it is not old, though its time is: the clock was behind. A time past `until` tells
    nothing: the clock was ahead.
    """
    row = db.execute(
        f"SELECT rowid FROM {name} NOT INDEXED WHERE {column} >= ? AND {column} <= ?"  # noqa: S608 - of this file
        " ORDER BY rowid LIMIT 1",  # what is old is removed, so that few rows are before it
        (before, until),
    ).fetchone()
    return MAX_ROWID if row is None else int(row[0])


def chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return the payments that stay or go with one; none where it is gone. `busy`: a call of it is under way."""
    found = transactions.get(db, identity)
    if found is None:
        return Chain()
    members = tuple(chains.whole(db, found, MAX_CHAIN))
    return Chain(members, _kept(db, members, before, busy))


def _kept(
    db: sqlite3.Connection, members: Sequence[Transaction], before: str, busy: Callable[[str], bool]
) -> Kept | None:
    if len(members) > MAX_CHAIN:
        return Kept.CHAIN
    if (kept := keeps_together(members, before)) is not None:
        return kept
    ids = {item.client_transaction_id for item in members}
    if any(busy(identity) for identity in ids) or _is_last_numbered(db, ids):
        return Kept.OPEN
    for item in members:
        if item.sale is not None:
            others = islice(transactions.of_sale(db, item.sale), MAX_OF_SALE)
            if guards_sale(item, (other for other in others if other.client_transaction_id not in ids), before):
                return Kept.SALE
    return None


def _is_last_numbered(db: sqlite3.Connection, ids: Collection[str]) -> bool:
    """Whether the next payment would get the number of one of before the journal (see `journal.begins_after`)."""
    begins = journal.begins_after(db)
    if not begins:
        return False
    row = db.execute("SELECT client_transaction_id FROM transactions ORDER BY rowid DESC LIMIT 1").fetchone()
    return row[0] in ids


def remove(db: sqlite3.Connection, item: Transaction) -> None:
    """Remove a payment that is final, but for its id and its lines of the feed."""
    assert item.outcome is not None  # noqa: S101 - what is final has one
    identity = item.client_transaction_id
    result, day = item.outcome.result, item.outcome.decided_at[:10]
    pruned.keep_payment(db, Pruned(identity, item.terminal, item.type, result, day))
    transactions.drop_words(db, identity, item.created_at, item.metadata)
    _delete(db, identity, TRANSACTIONS, "events", "journal", "leases")


def forget(db: sqlite3.Connection, identity: str) -> None:
    """Remove a payment in any state from the main database of a restore: the replaced one had removed it."""
    row = db.execute(
        "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?", (identity,)
    ).fetchone()
    transactions.drop_words(db, identity, row[0], str(row[1]).encode())
    _delete(db, identity, TRANSACTIONS, "events", "journal", "leases")


def print_chain_of(db: sqlite3.Connection, identity: str, before: str, busy: Callable[[str], bool]) -> Chain:
    """Return a print job with those that print it again and what it prints again; none where it is gone."""
    found: dict[str, PrintJob] = {}
    waiting = [identity]
    while waiting and len(found) <= MAX_CHAIN:
        job = print_jobs.get(db, waiting.pop())
        if job is None or job.print_job_id in found:
            continue
        found[job.print_job_id] = job
        waiting += print_jobs.reprints(db, job.print_job_id)
        waiting += [job.reprint_of] if job.reprint_of else []
    kept = Kept.CHAIN if len(found) > MAX_CHAIN else keeps_together(found.values(), before)
    if kept is None and any(busy(name) for name in found):
        kept = Kept.OPEN
    return Chain(tuple(found.values()), kept)


def remove_job(db: sqlite3.Connection, job: PrintJob) -> None:
    """Remove a print job that is final, but for its id and its lines of the feed."""
    identity = job.print_job_id
    pruned.keep_print_job(db, PrunedJob(identity, job.terminal, job.status, job.updated_at[:10]))
    forget_job(db, identity)


def forget_job(db: sqlite3.Connection, identity: str) -> None:
    """Remove a print job in any state from the main database of a restore."""
    _delete(db, identity, PRINT_JOBS, "print_journal")


def _delete(db: sqlite3.Connection, identity: str, table: Table, *others: str) -> None:
    """Delete the rows about one from its table, and before that from others."""
    for name in (*others, table.name):
        db.execute(f"DELETE FROM {name} WHERE {table.key} = ?", (identity,)).close()  # noqa: S608 - of this file


TRANSACTIONS = Table("payments", "transactions", "client_transaction_id", "transactions_newest", chain_of, remove)
PRINT_JOBS = Table("print jobs", "print_jobs", "print_job_id", "print_jobs_newest", print_chain_of, remove_job)


class Age(msgspec.Struct, frozen=True):
    """What is old: created before a moment, and recorded before the first row that is not (see `first_recent`)."""

    before: str
    first_recent: int


def old_chain(db: sqlite3.Connection, table: Table, identity: str, age: Age, busy: Callable[[str], bool]) -> Chain:
    """Return one and what belongs to it, and why it is kept, where it is."""
    chain = table.chain_of(db, identity, age.before, busy)
    if chain.kept is None and any(_number(db, table, item) > age.first_recent for item in chain.members):
        return Chain(chain.members, Kept.RECENT)
    return chain


def _number(db: sqlite3.Connection, table: Table, item: Any) -> int:
    row = db.execute(
        f"SELECT rowid FROM {table.name} WHERE {table.key} = ?",  # noqa: S608 - of this file
        (getattr(item, table.key),),
    ).fetchone()
    return int(row[0])


def remove_chain(unit: Unit, table: Table, identity: str, age: Age, busy: Callable[[str], bool]) -> Chain:
    """Remove one and what belongs to it, all or nothing; return it, and why it was kept, where it was."""
    chain = old_chain(unit.db, table, identity, age, busy)
    if chain.kept is None:
        for item in chain.members:
            table.remove(unit.db, item)
    return chain


class Lines(msgspec.Struct, frozen=True):
    """A stretch of the feed: the number of its last line (None: there is none), what can go, how many are too new."""

    last: int | None
    numbers: list[int]
    new: int


_FEED = """
SELECT c.seq, c.at, t.rowid IS NULL AND j.rowid IS NULL
  FROM changes c
  LEFT JOIN transactions t ON t.client_transaction_id = c.id
  LEFT JOIN print_jobs j ON j.print_job_id = c.id
 WHERE c.seq > ? ORDER BY c.seq LIMIT ?
"""


def lines(db: sqlite3.Connection, after: int, before: str, limit: int) -> Lines:
    """Return the lines of the feed after a number that are about nothing which is still here."""
    rows = db.execute(_FEED, (after, limit)).fetchall()
    gone = [seq for seq, _, removed in rows if removed]
    return Lines(rows[-1][0] if rows else None, gone, sum(at >= before for _, at, _ in rows))


def remove_lines(unit: Unit, numbers: Sequence[int]) -> None:
    """Remove lines of the feed, and keep up to where there were some."""
    if numbers:
        feed_cursor.note_removed(unit, max(numbers))
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


def quarantined(db: sqlite3.Connection, after: int, age: Age, limit: int) -> Lines:
    """Return the refused bodies after an id that are old, of nothing that is open or has an attention."""
    rows = db.execute(_QUARANTINED, (after, limit)).fetchall()
    gone = [
        identity
        for identity, at, looked_at in rows
        if at < age.before and identity < age.first_recent and not looked_at
    ]
    return Lines(rows[-1][0] if rows else None, gone, sum(at >= age.before for _, at, _ in rows))


def remove_quarantined(unit: Unit, numbers: Sequence[int]) -> None:
    """Remove refused bodies."""
    unit.db.executemany("DELETE FROM quarantine WHERE id = ?", ((number,) for number in numbers)).close()


#: By itself it begins so long after the daemon, and then once a day, in seconds.
FIRST_SECONDS = 600.0
DAILY_SECONDS = 86_400.0
#: Payments that are looked at between two commits.
AT_A_TIME = 20
#: Lines of the feed that are looked at at a time, and that one function removes.
LINES_AT_A_TIME = 500
LINES_A_FUNCTION = 25
#: The walk over the feed ends behind so many lines that are too new: a clock that jumped for a while must not end it.
LINES_TOO_NEW = 2000
#: Pages that one function cuts off, and functions of a commit.
PAGES_A_FUNCTION = 8
CUTS_A_COMMIT = 8
#: By itself it pauses for so many times as long as a step took, and asked by a person not at all.
PAUSES = 10.0
#: How often the log is to be emptied, and between that, in seconds: a backup may be reading in it.
LOG_TRIES = 5
LOG_SECONDS = 2.0

log = structlog.get_logger("posd.retention")


class Removed(msgspec.Struct):
    """What was removed, or would be."""

    transactions: Annotated[int, Meta(description="payments")] = 0
    print_jobs: Annotated[int, Meta(description="print jobs")] = 0
    quarantined: Annotated[int, Meta(description="bodies of the quarantine")] = 0
    changes: Annotated[int, Meta(description="lines of the feed")] = 0


class Report(msgspec.Struct):
    """What a run did.

    `kept` counts what was created before `before` and is kept, by reason.
    `bytes_returned` is None where the database cannot be cut: its free pages are used again by new payments.
    """

    before: Annotated[Moment, Meta(description="what ended before this is old")]
    dry_run: Annotated[bool, Meta(description="it is only told what would be removed")]
    removed: Annotated[Removed, Meta(description="how much was removed, or would be")] = msgspec.field(
        default_factory=Removed
    )
    kept: Annotated[dict[str, int], Meta(description="what is older and is kept: reason -> how many")] = {}
    bytes_before: Annotated[int, Meta(description="size of the database before")] = 0
    bytes_returned: Annotated[
        int | None, Meta(description="by so much the database was cut, null where it cannot be: the room is used again")
    ] = 0


class Stopped(Exception):
    """posd is stopping, or a person asked for a run; what was removed up to now stays removed."""


class Unsure(Exception):
    """The clock is not believed, so that nothing is removed; the message says why."""


@dataclass(eq=False, slots=True)
class Retention:
    """Removes what is old. `busy` tells whether a call to a terminal is under way for an id.

    By itself it goes by `confirmed`, the time that no single reading of the clock moves far; where a person asks, by
    `now` if that is believed. `doubt` says why the clock is not believed at this moment, None where it is (see
    `clock.rules`).
    """

    store: Store
    database: Path
    days: int  # for how many records are kept, 0 for ever
    busy: Callable[[str], bool]
    now: Callable[[], datetime]
    confirmed: Callable[[], datetime]
    doubt: Callable[[], str | None]
    #: What is being done, in words, and how much of it is done.
    progress: tuple[str, int] = field(init=False, default=("", 0))
    _one_at_a_time: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _asked: int = field(init=False, default=0)  # people who wait for a run of their own
    _stopping: bool = field(init=False, default=False)

    def stop(self) -> None:
        """End a run at its next step."""
        self._stopping = True

    async def run(self) -> None:
        """Remove what is old, soon after the start and then daily, until it is cancelled."""
        wait = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait)
            wait = DAILY_SECONDS
            if not self.days:
                continue
            try:
                await self._by_itself()
            except (Stopped, Unsure):  # the clock says by itself that it is not believed, and when it is again
                wait = FIRST_SECONDS
            except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
                log.warning("store.not_pruned", error=str(error))
                wait = FIRST_SECONDS

    async def _by_itself(self) -> None:
        """Remove what is old by the confirmed time. Raise Unsure where the clock is not believed."""
        if (doubt := self.doubt()) is not None:
            raise Unsure(doubt)
        async with self._one_at_a_time:
            await self._prune(self.confirmed(), self.days, PAUSES)

    async def prune(self, days: int, *, dry_run: bool = False) -> Report:
        """Remove what ended longer ago than so many days, or tell what would go.

        Raise Unsure before anything is removed. Raise StorageUnavailable, CommitUncertain, sqlite3.Error or Stopped;
        what was removed by then stays removed.
        """
        doubt = self.doubt()
        if not dry_run and doubt is not None:
            raise Unsure(doubt)
        now = self.now() if doubt is None else self.confirmed()
        if dry_run:
            return await self._prune(now, days, 0.0, dry_run=True)
        self._asked += 1
        try:
            async with self._one_at_a_time:
                self._asked -= 1
                try:
                    return await self._prune(now, days, 0.0)
                finally:
                    self._asked += 1
        finally:
            self._asked -= 1

    async def _prune(self, now: datetime, days: int, pauses: float, *, dry_run: bool = False) -> Report:
        run = _Run(self, iso(now - timedelta(days=days)), iso(now), pauses, dry_run=dry_run)
        report = run.report
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
        """Whether a run is to end: posd stops, or of one by itself: a person waits, or the clock is not believed."""
        return self._stopping or (pauses > 0 and (self._asked > 0 or self.doubt() is not None))


class _Run:
    """One run over the database."""

    def __init__(self, retention: Retention, before: str, now: str, pauses: float, *, dry_run: bool = False) -> None:
        self._of = retention
        self._store = retention.store
        self._before = before
        self._now = now
        self._pauses = pauses
        self._dry_run = dry_run
        self._kept: Counter[str] = Counter()
        self.report = Report(before, dry_run)

    async def payments_and_jobs(self) -> None:
        """Remove payments, chain by chain, and print jobs, each with its reprints."""
        self.report.removed.transactions = await self._walk(TRANSACTIONS)
        crash_point("prune.payments_removed")
        self.report.removed.print_jobs = await self._walk(PRINT_JOBS)

    async def _walk(self, table: Table) -> int:
        self._of.progress = (f"removing {table.noun}", 0)
        age = await self._age(table.name, "created_at")
        look = partial(_each, table=table, age=age, busy=self._of.busy)
        remove = partial(remove_chain, table=table, age=age, busy=self._of.busy)
        after: Place = BEGINNING
        gone: set[str] = set()  # of a dry run: what would have gone with another
        count = 0
        while places := await self._store.read(
            partial(candidates, table=table, after=after, before=self._before, limit=AT_A_TIME)
        ):
            began = time.monotonic()
            after = places[-1]
            ids = [identity for _, identity in places if identity not in gone]
            if self._dry_run:
                chains = await self._store.read(partial(look, ids=ids))
            else:
                chains = await asyncio.gather(*(self._store.write(partial(remove, identity=name)) for name in ids))
            for chain in chains:
                if chain.kept is not None:
                    self._kept[chain.kept] += 1
                    continue
                names = {getattr(item, table.key) for item in chain.members} - gone
                count += len(names)
                if self._dry_run:
                    gone |= names
            self.report.kept = dict(self._kept)
            self._of.progress = (self._of.progress[0], count)
            await self._rest(began)
        return count

    async def _age(self, name: str, column: str) -> Age:
        first = partial(first_recent, name=name, column=column, before=self._before, until=self._now)
        return Age(self._before, await self._store.read(first))

    async def quarantine(self) -> None:
        """Remove refused bodies."""
        look = partial(quarantined, age=await self._age("quarantine", "received_at"), limit=LINES_AT_A_TIME)
        self.report.removed.quarantined = await self._sweep(look, remove_quarantined)

    async def feed(self) -> None:
        """Remove the feed's lines of what is not there any more."""
        self._of.progress = ("removing lines of the feed", 0)
        look = partial(lines, before=self._before, limit=LINES_AT_A_TIME)
        self.report.removed.changes = await self._sweep(look, remove_lines)
        crash_point("prune.feed_removed")

    async def _sweep(self, look: Callable[..., Lines], remove: Callable[..., None]) -> int:
        after, count, new = 0, 0, 0
        while new < LINES_TOO_NEW and (stretch := await self._store.read(partial(look, after=after))).last is not None:
            began = time.monotonic()
            after = stretch.last
            new = new + stretch.new if stretch.new else 0
            count += len(stretch.numbers)
            if not self._dry_run:
                parts = range(0, len(stretch.numbers), LINES_A_FUNCTION)
                chosen = [stretch.numbers[start : start + LINES_A_FUNCTION] for start in parts]
                await asyncio.gather(*(self._store.write(partial(remove, numbers=part)) for part in chosen))
            await self._rest(began)
        return count

    async def cut(self) -> None:
        """Give the space back, and empty the log, so that nothing of what was removed is left in the files."""
        self._of.progress = ("returning the space", 0)
        if await self._store.read(connection.can_shrink):
            left = await self._store.read(backup.free_pages)
            while left:
                began = time.monotonic()
                cuts = (self._store.write(_cut) for _ in range(CUTS_A_COMMIT))
                left = min(await asyncio.gather(*cuts))
                crash_point("prune.space_returned")
                await self._rest(began)
            self.report.bytes_returned = self.report.bytes_before - await self._store.read(backup.size)
        else:
            self.report.bytes_returned = None
        for _ in range(LOG_TRIES):
            self._store.check_placed()
            if await asyncio.to_thread(backup.empty_log, self._of.database):
                return
            await asyncio.sleep(LOG_SECONDS)
        log.warning(
            "store.log_not_emptied",
            detail="somebody reads in the database (a backup?); what was removed may stand in its log for some time",
        )

    async def _rest(self, began: float) -> None:
        if self._of.interrupted(self._pauses):
            raise Stopped
        await asyncio.sleep(self._pauses * (time.monotonic() - began))


def _each(
    db: sqlite3.Connection, table: Table, ids: Sequence[str], age: Age, busy: Callable[[str], bool]
) -> list[Chain]:
    return [old_chain(db, table, identity, age, busy) for identity in ids]


def _cut(unit: Unit) -> int:
    return backup.give_back(unit, PAGES_A_FUNCTION)
