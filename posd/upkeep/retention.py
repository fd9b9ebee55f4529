"""Retention: removal of records that ended before the configured number of days. Retention runs daily and at an
operator's request.

A run works in small steps through the store's writer. Each step is a function between those of payments, and several
share a COMMIT. A daily run then pauses for several times the duration of the step. A run can end after any step. The
next run starts again with the oldest records, of which only the kept ones are left.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from posd.base.clocks import monotonic
from posd.base.crashpoints import crash_point
from posd.base.json_types import Moment
from posd.base.times import iso
from posd.clock.clock import stretches
from posd.records import quarantine
from posd.storage import CommitUncertain, StorageUnavailable, backup, connection
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.upkeep import retention_rows as rows

#: Seconds from the start of the daemon to the first run, and between daily runs.
FIRST_SECONDS = 600.0
DAILY_SECONDS = 86_400.0
#: Payments that are checked between two commits.
AT_A_TIME = 20
#: Lines of the feed that are read at a time, and lines that one function removes.
LINES_AT_A_TIME = 500
LINES_A_FUNCTION = 25
#: Number of recent lines after which the scan of the feed ends. With fewer, a clock that was ahead for some time could
#: end it.
LINES_TOO_NEW = 2000
#: Longest time for which records wait for the close of a shift, where shifts are used. A shop that closes none any more
#: must not keep all records.
LONGEST_SHIFT = timedelta(days=92)
#: Number of pages that one function removes, and number of such functions in a commit.
PAGES_A_FUNCTION = 8
CUTS_A_COMMIT = 8
#: Pause of a daily run, as a multiple of the step's duration. A requested run has no pause.
PAUSES = 10.0
#: Attempts to empty the log, and seconds between them. A backup may be reading the log.
LOG_TRIES = 5
LOG_SECONDS = 2.0

log = structlog.get_logger("posd.retention")


class Removed(msgspec.Struct):
    """Number of records that were removed, or would be removed by a dry run."""

    transactions: Annotated[int, Meta(description="payments")] = 0
    print_jobs: Annotated[int, Meta(description="print jobs")] = 0
    quarantined: Annotated[int, Meta(description="bodies of the quarantine")] = 0
    changes: Annotated[int, Meta(description="lines of the feed")] = 0


class Report(msgspec.Struct):
    """Result of a run.

    `kept`: reason -> number of records created before `before` that are kept. `bytes_returned` is None if the database
    cannot shrink: new payments use its free pages.
    """

    before: Annotated[Moment, Meta(description="records that ended before this are old")]
    dry_run: Annotated[bool, Meta(description="it only reports what would be removed")]
    removed: Annotated[Removed, Meta(description="what was removed, or would be")] = msgspec.field(
        default_factory=Removed
    )
    kept: Annotated[dict[str, int], Meta(description="older records that are kept: reason -> number")] = {}
    bytes_before: Annotated[int, Meta(description="size of the database before")] = 0
    bytes_returned: Annotated[
        int | None, Meta(description="by how much the database was cut, null if it cannot be: the room is used again")
    ] = 0
    kept_for_shift: Annotated[
        bool, Meta(description="old records since the last closed shift are kept until a shift has counted them")
    ] = False


class PruneStopped(Exception):
    """Error for a run that ended early, because posd is stopping, or an operator requested a run.

    Earlier removals stay.
    """


class ClockUntrusted(Exception):
    """Error for an untrusted clock, with which nothing is removed. The message is the reason."""


class Retention(msgspec.Struct, eq=False):
    """Removal of old records. `busy`: returns whether a call to a terminal is open for an id.

    A daily run uses `confirmed`, a time that one wrong reading of the clock cannot change much. A requested run uses
    `now` if the clock is trusted. `doubt`: returns why the clock is not trusted, or None (see `clock.rules`).
    """

    store: Store
    days: int  # days for which records are kept, 0: without limit
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
            except (PruneStopped, ClockUntrusted):
                wait = FIRST_SECONDS
            except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
                log.warning("store.not_pruned", error=str(error))
                wait = FIRST_SECONDS

    async def _by_itself(self) -> None:
        """Remove old records by the confirmed time. Raise ClockUntrusted if the clock is not trusted."""
        if (doubt := self.doubt()) is not None:
            raise ClockUntrusted(doubt)
        async with self._one_at_a_time:
            await self._prune(self.confirmed(), self.days, PAUSES)

    async def prune(self, days: int, *, dry_run: bool = False) -> Report:
        """Remove records that ended more than `days` ago, or count them in a dry run.

        Raise ClockUntrusted before any removal. Raise StorageUnavailable, CommitUncertain, sqlite3.Error or
        PruneStopped. Earlier removals stay.
        """
        doubt = self.doubt()
        if not dry_run and doubt is not None:
            raise ClockUntrusted(doubt)
        now = self.now() if doubt is None else self.confirmed()
        if dry_run:
            return await self._prune(now, days, 0.0, dry_run=True)
        self._asked += 1
        try:
            async with self._one_at_a_time:
                return await self._prune(now, days, 0.0)
        finally:
            self._asked -= 1

    async def _prune(self, now: datetime, days: int, pauses: float, *, dry_run: bool = False) -> Report:
        uncounted = await self.store.read(rows.first_uncounted)
        run = _Run(self, timedelta(days=days), now, pauses, uncounted, dry_run=dry_run)
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
        """Return whether a run must end, because posd stops.

        A daily run also ends for a requested run, or if the clock is not trusted.
        """
        return self._stopping or (pauses > 0 and (self._asked > 0 or self.doubt() is not None))


class _Run:
    """One run over the database.

    `uncounted`: see `first_uncounted`. Records from then on are kept until a shift has counted them.
    """

    def __init__(
        self,
        retention: Retention,
        kept_for: timedelta,
        now: datetime,
        pauses: float,
        uncounted: str | None,
        *,
        dry_run: bool = False,
    ) -> None:
        self._of = retention
        self._store = retention.store
        self._kept_for = kept_for
        before = iso(now - kept_for)
        kept_for_shift = uncounted is not None and iso(now - LONGEST_SHIFT) <= uncounted < before
        if uncounted is not None and kept_for_shift:
            before = uncounted
        self._before = before
        self._now = iso(now)
        self._pauses = pauses
        self._dry_run = dry_run
        self._kept: Counter[str] = Counter()
        self.report = Report(before, dry_run, kept_for_shift=kept_for_shift)

    async def payments_and_jobs(self) -> None:
        """Remove payments, chain by chain, and print jobs, each with its reprints."""
        self.report.removed.transactions = await self._walk(rows.TRANSACTIONS)
        crash_point("prune.payments_removed")
        self.report.removed.print_jobs = await self._walk(rows.PRINT_JOBS)

    async def _walk(self, table: rows.PrunedTable) -> int:
        self._of.progress = (f"removing {table.noun}", 0)
        age = await self._age(table.name, "created_at")
        look = partial(_each, table=table, age=age, busy=self._of.busy)
        remove = partial(rows.remove_chain, table=table, age=age, busy=self._of.busy)
        after: rows.Place = rows.BEGINNING
        gone: set[str] = set()  # in a dry run: ids that another chain would have removed
        count = 0
        while places := await self._store.read(
            partial(rows.candidates, table=table, after=after, before=self._before, limit=AT_A_TIME)
        ):
            began = monotonic()
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

    async def _age(self, name: str, column: str) -> rows.AgeLimit:
        first = partial(rows.first_recent, name=name, column=column, before=self._before, until=self._now)
        doubtful = [
            times
            for item in await self._store.read(stretches)
            for times in item.too_early(self._before, self._kept_for)
        ]
        return rows.AgeLimit(self._before, await self._store.read(first), tuple(doubtful))

    async def quarantine(self) -> None:
        """Remove refused bodies."""
        look = partial(rows.quarantined, age=await self._age("quarantine", "received_at"), limit=LINES_AT_A_TIME)
        self.report.removed.quarantined = await self._sweep(look, quarantine.remove)

    async def feed(self) -> None:
        """Remove the feed's lines of removed records."""
        self._of.progress = ("removing lines of the feed", 0)
        look = partial(rows.lines, before=self._before, limit=LINES_AT_A_TIME)
        self.report.removed.changes = await self._sweep(look, rows.remove_lines)
        crash_point("prune.feed_removed")

    async def _sweep(self, look: Callable[..., rows.FeedSpan], remove: Callable[..., None]) -> int:
        after, count, new = 0, 0, 0
        while new < LINES_TOO_NEW and (stretch := await self._store.read(partial(look, after=after))).last is not None:
            began = monotonic()
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
        """Return free space to the disk, and empty the log, so that no file contains removed data."""
        self._of.progress = ("returning the space", 0)
        if await self._store.read(connection.can_shrink):
            left = await self._store.read(_free_pages)
            while left:
                began = monotonic()
                cuts = (self._store.write(_cut) for _ in range(CUTS_A_COMMIT))
                left = min(await asyncio.gather(*cuts))
                crash_point("prune.space_returned")
                await self._rest(began)
            self.report.bytes_returned = self.report.bytes_before - await self._store.read(backup.size)
        else:
            self.report.bytes_returned = None
        for _ in range(LOG_TRIES):
            if await self._store.empty_log():
                return
            await asyncio.sleep(LOG_SECONDS)
        log.warning(
            "store.log_not_emptied",
            detail="a process reads the database (a backup?); removed records may stay in its log for some time",
        )

    async def _rest(self, began: float) -> None:
        if self._of.interrupted(self._pauses):
            raise PruneStopped
        await asyncio.sleep(self._pauses * (monotonic() - began))


def _each(
    db: sqlite3.Connection, table: rows.PrunedTable, ids: Sequence[str], age: rows.AgeLimit, busy: Callable[[str], bool]
) -> list[rows.LinkedRecords]:
    return [rows.old_chain(db, table, identity, age, busy) for identity in ids]


def _cut(unit: WriteTransaction) -> int:
    """Remove free pages from the file. Return the number of remaining free pages."""
    unit.moved_pages = True
    unit.db.execute(f"PRAGMA incremental_vacuum({PAGES_A_FUNCTION})").fetchall()
    return _free_pages(unit.db)


def _free_pages(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA freelist_count").fetchone()[0])
