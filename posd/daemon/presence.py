"""Detection of times when posd did not listen while payments were open (see `daemon.downtime`).

The last sign of life must survive a power cut, without an additional sync. Every change of a payment in the database is
a sign of life. While payments are open and the listener accepts, posd also touches a file every half minute. A touch
changes only the time of the file. If a power cut loses a touch, the computed absence is longer, and never shorter.
Without open payments the process does not wake up. An orderly stop touches the file too. The file contains the id of
the machine's boot. After another boot the clock may be corrected late, so each check computes the length again.

While posd runs, it uses the boot clock, which includes sleep, to detect a suspension of the machine and a blocked event
loop. A listener that cannot accept counts as absent.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from posd.base.clocks import SET, monotonic
from posd.base.problems import remedy
from posd.base.times import iso, parse_iso
from posd.daemon import downtime
from posd.daemon.downtime import Absence, DowntimeCause, EndedAbsence
from posd.payments import rows
from posd.payments.record import TransactionChanged
from posd.records.model import Phase
from posd.storage import CommitUncertain, StorageUnavailable, changes, marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store

#: Seconds between two touches while payments are open.
BEAT_SECONDS = 30.0
#: File with the id of this boot (Linux).
#:
#: A service without access to the file (ProcSubset=pid) receives the id from its unit, in BOOT_ID_VARIABLE. The id has
#: hyphens in one of the two places, and none in the other.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_VARIABLE = "POSD_BOOT_ID"

log = structlog.get_logger("posd.presence")


@dataclass(eq=False)
class Presence:
    """Detector of absences.

    Call `begin` before anything is recorded, `run` as a task, and `end` when the listener closes.

    `path`: file that is touched as a sign of life. `accepting`: returns whether terminals can connect. `now`: the wall
    clock. `elapsed` and `awake`: monotonic seconds; `awake` stops while the machine is suspended.
    """

    store: Store
    path: Path
    accepting: Callable[[], bool]
    now: Callable[[], datetime]
    elapsed: Callable[[], float]
    awake: Callable[[], float] = monotonic
    #: Absence before this process, until its length is determined.
    _return: EndedAbsence | None = field(default=None, init=False)
    _rebooted: bool = field(default=False, init=False)
    _absence: Absence | None = field(default=None, init=False)
    _seen: EndedAbsence | None = field(default=None, init=False)
    #: Number of absences above the harmless length since the start of the process.
    absences: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._began = self.elapsed()
        self._open: set[str] = set()
        self._opened = asyncio.Event()
        self._here, self._awake = self.elapsed(), self.awake()  # last time when posd was certainly present
        self._deaf = False

    async def begin(self) -> None:
        """Read the state of an earlier process: open payments, and last sign of life. Raise StorageUnavailable."""
        self._absence = await self.store.read(_kept)
        opened = await self.store.read(_open)
        newest = await self.store.read(changes.newest_at)
        touched, boot = self._last_touch()
        self._open = set(opened)
        self._write_boot(boot)
        signs = [parse_iso(newest)] if newest is not None else []
        signs += [touched] if touched is not None else []
        if opened and signs:
            self._return = EndedAbsence(Absence("stopped", None, "", opened), self._began, max(signs), None)
            self._rebooted = boot not in (None, _boot_id())
        self._note_open()

    async def run(self) -> None:
        """Touch the file regularly while payments are open, until cancelled."""
        await self.look()
        while True:
            await self._opened.wait()
            self._here, self._awake = self.elapsed(), self.awake()
            while self._open:
                await asyncio.sleep(BEAT_SECONDS)
                await self.beat()
            self._opened.clear()

    async def beat(self) -> None:
        """Record a sign of life, and detect an absence since the last one."""
        if not self.accepting():
            self._deaf = True
            return
        here, awake = self.elapsed(), self.awake()
        gap, slept = here - self._here, (here - self._here) - (awake - self._awake)
        self._here, self._awake = here, awake
        cause: DowntimeCause = "deaf"
        if not self._deaf:
            cause = "suspended" if slept > BEAT_SECONDS else "held_up"
            gap -= BEAT_SECONDS
        self._deaf = False
        self._touch()
        if self._open and downtime.too_long(gap):
            with suppress(StorageUnavailable):
                opened = await self.store.read(_open)
                await self._found(Absence(cause, gap, iso(self.now()), opened), here)
        await self.look()

    def end(self) -> None:
        """Record the last sign of life."""
        if self._open and self.accepting():
            self._touch()

    async def look(self) -> tuple[Absence, Sequence[str]] | None:
        """Return the newest absence that still has unsettled payments, and those payments."""
        try:
            if self._return is not None:
                await self._judge(self._return)
            if self._absence is None:
                return None
            await self._follow_clock(self._absence)
            left = await self.store.read(self._unsettled)
        except StorageUnavailable:
            return None if self._absence is None else (self._absence, list(self._absence.payments))
        if not left:
            log.info("listener.caught_up", count=len(self._absence.payments))
            self._absence = self._seen = None
            await self._keep(None)
            return None
        return self._absence, list(left)

    async def _follow_clock(self, known: Absence) -> None:
        """Update the times of the absence after the clock was set."""
        if self._seen is None:
            return
        again = self._seen.now(self.now(), self.elapsed())
        if abs(parse_iso(again.until) - parse_iso(known.until)) > SET:
            self._absence = again
            await self._keep(again)

    async def _judge(self, item: EndedAbsence) -> None:
        """Determine the length of the absence before this process."""
        absence = item.now(self.now(), self.elapsed())
        if downtime.too_long(absence.seconds):
            self._return = None
            await self._found(absence, item.ended, item.last_sign)
        elif not self._rebooted or not absence.payments.keys() & self._open:
            self._return = None

    async def _found(self, found: Absence, ended: float, last_sign: datetime | None = None) -> None:
        """Record an absence that ended at `ended`, on the boot clock."""
        self.absences += 1
        old = self._absence
        if old is not None:
            left = await self.store.read(self._unsettled)
            old = msgspec.structs.replace(old, payments=left)
        self._absence = downtime.merged(old, found)
        self._seen = EndedAbsence(found, ended, last_sign, old)
        log.warning(
            "listener.was_away",
            reason=found.cause,
            count=len(found.payments),
            seconds=None if found.seconds is None else round(found.seconds),
            detail=f"{downtime.words(found, len(found.payments))}: {remedy(downtime.steps(list(found.payments)))}",
        )
        await self._keep(self._absence)

    async def _keep(self, item: Absence | None) -> None:
        """Store the absence, so that it survives a restart, or remove the stored absence.

        If the disk fails, the next start computes it again.
        """

        def work(unit: WriteTransaction) -> None:
            marks.replace(unit.db, iso(self.now()), marks.AWAY, item)

        with suppress(StorageUnavailable, CommitUncertain):
            await self.store.write(work)

    def _unsettled(self, db: sqlite3.Connection) -> dict[str, str | None]:
        """Return the unsettled payments of the absence."""
        item = self._absence
        left: dict[str, str | None] = {}
        for identity, searched in item.payments.items() if item else ():
            known = rows.get(db, identity)
            assert item is not None  # noqa: S101 - an unsettled absence has payments
            ended = known is None or known.phase is Phase.FINAL
            if not downtime.settled(item, identity, ended=ended, last_search=known.last_search if known else None):
                left[identity] = searched
        return left

    def changed(self, changed: Sequence[TransactionChanged]) -> None:
        for change in changed:
            if change.phase == Phase.FINAL:
                self._open.discard(change.id)
            else:
                self._open.add(change.id)
        self._note_open()

    def _note_open(self) -> None:
        if self._open:
            self._opened.set()

    def _touch(self) -> None:
        """Set the time of the file. A full disk is ignored, because only the next start needs the time."""
        moment = self.now().timestamp()
        with suppress(OSError):
            os.utime(self.path, (moment, moment))

    def _last_touch(self) -> tuple[datetime | None, str | None]:
        """Return the last touch of the file and its boot id. Each is None if missing."""
        try:
            touched = datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
            return touched, self.path.read_text("ascii").strip() or None
        except (OSError, ValueError, OverflowError):
            return None, None

    def _write_boot(self, known: str | None) -> None:
        """Write the id of this boot to the file, if it has another id."""
        current = _boot_id()
        with suppress(OSError):
            if known != current:
                self.path.write_text(current + "\n", "ascii")
            if known != current or self._open:
                self._touch()


def _boot_id() -> str:
    handed = os.environ.get(BOOT_ID_VARIABLE, "")
    with suppress(OSError):
        handed = handed or BOOT_ID.read_text("ascii").strip()
    return handed.replace("-", "")


def _open(db: sqlite3.Connection) -> dict[str, str | None]:
    """Return open payments as id -> time of the newest search."""
    found = rows.open_ones(db)
    return {item.client_transaction_id: item.last_search.at if item.last_search else None for item in found}


def _kept(db: sqlite3.Connection) -> Absence | None:
    """Return the absence that an earlier process stored, or None."""
    return marks.newest_detail(db, marks.AWAY, Absence)
