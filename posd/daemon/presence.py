"""Whether posd listened while payments were open: notices what no event can tell (see `daemon.downtime`).

The last moment at which posd was surely there has to be known after a power cut, without a write to the flash for it.
Every change of a payment says so by itself, in the database. Beside that, while payments are open and the listener
accepts, posd touches a file every half a minute: only its time changes, nothing is synced, and what the power takes of
it makes an absence look longer, never shorter. With nothing open it does not wake at all. An orderly stop touches it
too. The file holds the id of the machine's boot: after another one the clock may be set right only later, so the length
is judged anew with the clock of each look.

While posd runs, the clock that goes on when the machine sleeps tells of a suspended machine, and of a loop that stood
still; a listener that cannot accept is away as if posd were.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from posd.base.clocks import monotonic
from posd.base.times import iso, parse_iso
from posd.clock import kernel
from posd.daemon import downtime
from posd.daemon.downtime import Absence, Cause, Seen
from posd.payments import rows
from posd.payments.record import Moved
from posd.records.model import Phase
from posd.storage import changes, marks
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit

#: How often posd says that it is there, while payments are open; in seconds.
BEAT_SECONDS = 30.0
#: The id of this boot of the machine (Linux), the same in every process until the next; and the variable in which the
#: unit hands it to a service that may not see the file (ProcSubset=pid). One has hyphens, the other has not.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_VARIABLE = "POSD_BOOT_ID"

log = structlog.get_logger("posd.presence")


class _Return(msgspec.Struct, frozen=True):
    """A start with payments open: the last sign of life before it, and whether the machine was booted since."""

    last_sign: datetime
    rebooted: bool
    payments: Mapping[str, str | None]


class Clock(msgspec.Struct, frozen=True):
    """The wall clock, and two monotonic ones: `awake` stops while the machine is suspended, `elapsed` does not."""

    now: Callable[[], datetime]
    awake: Callable[[], float] = monotonic
    elapsed: Callable[[], float] = kernel.elapsed


class Presence:
    """`begin` before anything is recorded, `run` as a task, `end` when the listener closes."""

    def __init__(self, store: Store, path: Path, accepting: Callable[[], bool], clock: Clock) -> None:
        """`path`: the file that is touched. `accepting`: whether terminals can connect now."""
        self._store = store
        self._path = path
        self._accepting = accepting
        self._clock = clock
        self._began_at, self._began = clock.now(), clock.elapsed()
        self._open: set[str] = set()
        self._opened = asyncio.Event()
        self._here, self._awake = clock.elapsed(), clock.awake()  # when it last was surely there
        self._deaf = False
        self._return: _Return | None = None
        self._absence: Absence | None = None
        self._seen: Seen | None = None
        #: How often it was away too long since the start of the process.
        self.absences = 0
        store.hub.listen(self._changed, Moved)

    async def begin(self) -> None:
        """Look at what an earlier process left: what was open, when it last was there. Raise StorageUnavailable."""
        self._absence = await self._store.read(_kept)
        opened = await self._store.read(_open)
        newest = await self._store.read(changes.newest_at)
        touched, boot = self._last_touch()
        self._open = set(opened)
        self._write_boot(boot)
        signs = [parse_iso(newest)] if newest is not None else []
        signs += [touched] if touched is not None else []
        if opened and signs:
            self._return = _Return(max(signs), boot not in (None, _boot_id()), opened)
        self._note_open()

    async def run(self) -> None:
        """Say from time to time that posd is there, while payments are open, until cancelled."""
        await self.look()
        while True:
            await self._opened.wait()
            self._here, self._awake = self._clock.elapsed(), self._clock.awake()
            while self._open:
                await asyncio.sleep(BEAT_SECONDS)
                await self.beat()
            self._opened.clear()

    async def beat(self) -> None:
        """Note that posd is there; find out whether it was, since the last time."""
        if not self._accepting():
            self._deaf = True
            return
        here, awake = self._clock.elapsed(), self._clock.awake()
        gap, slept = here - self._here, (here - self._here) - (awake - self._awake)
        self._here, self._awake = here, awake
        if self._deaf:
            cause = Cause.DEAF
        else:
            cause, gap = (Cause.SUSPENDED if slept > BEAT_SECONDS else Cause.HELD_UP), gap - BEAT_SECONDS
        self._deaf = False
        self._touch()
        if self._open and downtime.too_long(gap):
            with suppress(StorageUnavailable):
                opened = await self._store.read(_open)
                await self._found(Absence(cause, gap, iso(self._clock.now()), opened), here)
        await self.look()

    def end(self) -> None:
        """Note that posd is there for the last time."""
        if self._open and self._accepting():
            self._touch()

    async def look(self) -> tuple[Absence, Sequence[str]] | None:
        """Return the newest absence that still matters, and the payments of it that are not settled."""
        try:
            if self._return is not None:
                await self._judge(self._return)
            if self._absence is None:
                return None
            await self._follow_clock(self._absence)
            left = await self._store.read(self._unsettled)
        except StorageUnavailable:
            return None if self._absence is None else (self._absence, list(self._absence.payments))
        if not left:
            log.info("listener.caught_up", count=len(self._absence.payments))
            self._absence = self._seen = None
            await self._keep(None)
            return None
        return self._absence, list(left)

    async def _follow_clock(self, known: Absence) -> None:
        """Tell and keep by the clock as it is now when the absence was, where the clock was set since."""
        if self._seen is None:
            return
        again = self._seen.now(self._clock.now(), self._clock.elapsed())
        if abs(parse_iso(again.until) - parse_iso(known.until)) > kernel.SET:
            self._absence = again
            await self._keep(again)

    async def _judge(self, item: _Return) -> None:
        """Find out how long posd did not listen before this process."""
        running = timedelta(seconds=self._clock.elapsed() - self._began)
        back = self._clock.now() - running if item.rebooted else self._began_at
        seconds = downtime.away(item.last_sign, back)
        if downtime.too_long(seconds):
            self._return = None
            absence = Absence(Cause.STOPPED, seconds, iso(back), dict(item.payments))
            await self._found(absence, self._began, item.last_sign)
        elif not item.rebooted or not item.payments.keys() & self._open:
            self._return = None

    async def _found(self, found: Absence, ended: float, last_sign: datetime | None = None) -> None:
        """Take an absence that has just ended, at `ended` by the clock that no one sets."""
        self.absences += 1
        old = self._absence
        if old is not None:
            left = await self._store.read(self._unsettled)
            old = msgspec.structs.replace(old, payments=left)
        self._absence = downtime.merged(old, found)
        self._seen = Seen(found, ended, last_sign, old)
        log.warning(
            "listener.was_away",
            reason=found.cause,
            count=len(found.payments),
            seconds=None if found.seconds is None else round(found.seconds),
            detail=f"{downtime.words(found, len(found.payments))}: {downtime.todo(list(found.payments))}",
        )
        await self._keep(self._absence)

    async def _keep(self, item: Absence | None) -> None:
        """Keep it over a restart, or forget it; where the disk does not take that, the next restart judges anew."""

        def work(unit: Unit) -> None:
            marks.clear(unit.db, marks.AWAY)
            if item is not None:
                marks.add(unit.db, iso(self._clock.now()), marks.AWAY, item)

        with suppress(StorageUnavailable, CommitUncertain):
            await self._store.write(work)

    def _unsettled(self, db: sqlite3.Connection) -> dict[str, str | None]:
        """Return the payments of the absence that are not settled."""
        item = self._absence
        left: dict[str, str | None] = {}
        for identity, searched in item.payments.items() if item else ():
            known = rows.get(db, identity)
            assert item is not None  # noqa: S101 - it has payments
            ended = known is None or known.phase is Phase.FINAL
            if not downtime.settled(item, identity, ended=ended, last_search=known.last_search if known else None):
                left[identity] = searched
        return left

    def _changed(self, changed: Sequence[Moved]) -> None:
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
        """Set the time of the file; the disk may be full, and nothing depends on it until the next start."""
        moment = self._clock.now().timestamp()
        with suppress(OSError):
            os.utime(self._path, (moment, moment))

    def _last_touch(self) -> tuple[datetime | None, str | None]:
        """Return when the file was touched last, and the boot that it names; None for what is not there."""
        try:
            touched = datetime.fromtimestamp(self._path.stat().st_mtime, UTC)
            return touched, self._path.read_text("ascii").strip() or None
        except (OSError, ValueError, OverflowError):
            return None, None

    def _write_boot(self, known: str | None) -> None:
        """Name this boot in the file, where it names another."""
        current = _boot_id()
        with suppress(OSError):
            if known != current:
                self._path.write_text(current + "\n", "ascii")
            if known != current or self._open:
                self._touch()


def _boot_id() -> str:
    handed = os.environ.get(BOOT_ID_VARIABLE, "")
    with suppress(OSError):
        handed = handed or BOOT_ID.read_text("ascii").strip()
    return handed.replace("-", "")


def _open(db: sqlite3.Connection) -> dict[str, str | None]:
    """Return the open payments: id -> when each was searched for last."""
    found = rows.open_ones(db)
    return {item.client_transaction_id: item.last_search.at if item.last_search else None for item in found}


def _kept(db: sqlite3.Connection) -> Absence | None:
    """Return the absence that an earlier process left unsettled."""
    detail = marks.newest_detail(db, marks.AWAY)
    return None if detail is None else msgspec.json.decode(detail, type=Absence)
