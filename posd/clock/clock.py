"""Trust in the wall clock: when it is checked, and what is stored.

The clock is checked every few seconds, and before each action that depends on it (rules: `clock.rules`).

The state is stored in the database every quarter of an hour and at the stop, so that it survives a restart. A payment
stores nothing here. While the clock is not trusted, its times do not change the stored state. So a wrong time has no
effect, and earlier right times stay, even after a power cut. Only the first and the last untrusted time are stored: the
times of records from that period are between them.
"""

import ctypes
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from posd.base.clocks import tick
from posd.base.json_types import Moment
from posd.base.problems import RemedyStep, remedy
from posd.base.times import iso, parse_iso
from posd.clock import rules
from posd.clock.rules import ClockReading, ClockWitness, Doubt, EventTime, Kernel, StoredClock, TerminalTimes
from posd.storage import CommitUncertain, StorageUnavailable, changes, marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store

#: Seconds between two regular readings. Actions that depend on the clock read it too.
LOOK_SECONDS = 10.0
#: Seconds between two writes of the state to the database.
KEEP_SECONDS = 900.0
#: Maximum number of stored periods without a trusted clock. The newest are kept.
MOST_STRETCHES = 100
#: Maximum number of event times in memory, and the years in which a terminal's time is valid.
MOST_SIGHTINGS = 64
YEARS = range(2000, 2200)

#: Steps for an operator if the clock is not trusted.
STEPS = (
    RemedyStep("compare the clock of this machine with another one", "date"),
    RemedyStep("if it is wrong, set it, and posd goes on by itself", 'sudo timedatectl set-time "YYYY-MM-DD HH:MM:SS"'),
    RemedyStep("with a time service", "sudo timedatectl set-ntp true"),
    RemedyStep("if it is right, confirm it", "posd clock confirm --operator NAME"),
)
REMEDY = remedy(STEPS)

log = structlog.get_logger("posd.clock")


class Confirmation(msgspec.Struct, frozen=True):
    """An operator's confirmation of the clock, and the state before it."""

    at: Annotated[Moment, Meta(description="the time that the clock showed")]
    operator: Annotated[str, Meta(description="name of the operator")]
    note: Annotated[str, Meta(description="the reason, empty if none was given")]
    uid: Annotated[int | None, Meta(description="user id of the calling process, null if not known")]
    doubt: Annotated[str, Meta(description="why posd did not trust the clock, empty if it did")]
    highest_before: Annotated[Moment | None, Meta(description="the highest trusted time before the confirmation")]


class Stretch(msgspec.Struct, frozen=True):
    """Period in which posd did not trust the clock. Records of such a period may have wrong times."""

    since: Annotated[Moment, Meta(description="the last trusted time before the period")]
    until: Annotated[Moment | None, Meta(description="when posd trusted the clock again, null if not yet")]
    reason: Annotated[str, Meta(description="the first reason for the doubt")]
    said_from: Annotated[Moment | None, Meta(description="the earliest time that the clock showed meanwhile")] = None
    said_to: Annotated[
        Moment | None,
        Meta(description="the latest time that the clock showed meanwhile; it may have shown up to 15 minutes more"),
    ] = None
    set_ahead: Annotated[
        bool, Meta(description="`true`: the clock was slow even before `since`, and was then set ahead")
    ] = False

    def saying(self, wall: datetime) -> "Stretch":
        """Return the period, extended to include the present time `wall`.

        To save writes, `said_to` advances in steps of at least a quarter of an hour.
        """
        said = iso(wall)
        first, last = self.said_from, self.said_to
        if first is None or last is None:
            return msgspec.structs.replace(self, said_from=said, said_to=said)
        if said < first:
            return msgspec.structs.replace(self, said_from=said)
        if wall > parse_iso(last) + timedelta(seconds=KEEP_SECONDS):
            return msgspec.structs.replace(self, said_to=said)
        return self

    def touches(self, since: str, until: str) -> bool:
        """Return whether a record with a time from `since` to `until` may have been written in this period."""
        if self.since < until and (self.until is None or self.until >= since):
            return True
        if self.said_from is None or self.said_to is None:
            return False
        last = iso(parse_iso(self.said_to) + timedelta(seconds=KEEP_SECONDS))
        return self.said_from < until and last >= since

    def too_early(self, before: str, kept: timedelta) -> Iterator[tuple[str, str]]:
        """Yield ranges of times. A record with a time in such a range may be newer than its time says.

        Yield nothing if the period ended before `before`. `kept`: how long records are kept. If the clock was set ahead
        at the end of the period, it was slow, perhaps even long before the period. Then one range has all times before
        the period, as far back as records are kept.
        """
        if self.until is not None and self.until < before:
            return
        if self.said_from is not None and self.said_to is not None:
            # The clock can be wrong for some seconds before posd detects it.
            margin = timedelta(seconds=LOOK_SECONDS) + timedelta(minutes=1)
            last = parse_iso(self.said_to) + timedelta(seconds=KEEP_SECONDS) + margin
            yield iso(parse_iso(self.said_from) - margin), iso(last)
        if self.set_ahead:
            yield iso(parse_iso(self.since) - kept), self.since


@dataclass(eq=False)
class WallClock:
    """Guard of the wall clock. Call `begin` before any use, run `run` as a task, and call `keep` at the stop.

    `limit`: the largest step of the clock that needs no confirmation. `built`: date of this build. `elapsed`: seconds
    since the boot, including sleep.
    """

    store: Store
    limit: timedelta
    built: datetime
    now: Callable[[], datetime]
    elapsed: Callable[[], float]
    kernel_state: Callable[[float], Kernel]
    #: The highest trusted time and the confirmed time, or None before the first trusted reading.
    known: StoredClock | None = field(default=None, init=False)
    _written: StoredClock | None = field(default=None, init=False)
    _reference: ClockReading | None = field(default=None, init=False)
    _heard: deque[tuple[str, str, str, float]] = field(
        default_factory=partial(deque, maxlen=MOST_SIGHTINGS), init=False
    )
    _listeners: list[Callable[[], None]] = field(default_factory=list, init=False)
    #: Reason why the clock was not trusted at the last reading, or None.
    reason: Doubt | None = field(default=None, init=False)
    _detail: str = field(default="", init=False)
    #: The present period without a trusted clock, or None.
    stretch: Stretch | None = field(default=None, init=False)
    #: Earlier periods, the newest first.
    past: deque[Stretch] = field(default_factory=partial(deque, maxlen=MOST_STRETCHES), init=False)
    _unwritten: list[Stretch] = field(default_factory=list, init=False)
    #: Last trusted time before the clock was set ahead, or None.
    _ahead_of: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._looked = self.elapsed()
        self.reading = self._read()

    async def begin(self) -> None:
        """Load the stored state, and read the clock. Raise StorageUnavailable."""
        newest = await self.store.read(changes.newest_at)
        self._written = await self.store.read(_kept)
        self.known = rules.beginning(self._written, None if newest is None else parse_iso(newest))
        found = await self.store.read(stretches)
        self.stretch = next((item for item in found if item.until is None), None)
        self.past.extend(item for item in found if item.until is not None)
        self.look()

    async def run(self) -> None:
        """Read the clock regularly, and store the state, until cancelled."""
        kept = self.elapsed() - KEEP_SECONDS
        while True:
            self.look()
            if self._unwritten or self.elapsed() - kept >= KEEP_SECONDS:
                await self.keep()
                kept = self.elapsed()
            await tick(LOOK_SECONDS)

    async def keep(self) -> None:
        """Store the state in the database. After a disk error the next call tries again."""
        self.look()
        kept, noted = self.known, tuple(self._unwritten)
        if kept == self._written and not noted:
            return
        with suppress(StorageUnavailable, CommitUncertain):
            await self.store.write(partial(_keep, kept=kept, noted=noted))
            self._written = kept
            self._unwritten = self._unwritten[len(noted) :]

    def is_sure(self) -> bool:
        """Return whether the clock is trusted."""
        self.look()
        return self.reason is None

    @property
    def doubt(self) -> str | None:
        """Reason why the clock is not trusted, as text, or None."""
        self.look()
        return None if self.reason is None else self._detail

    @property
    def confirmed(self) -> datetime:
        """The confirmed time (see `clock.rules`), from which the age of records is computed."""
        self.look()
        return self.built if self.known is None else self.known.confirmed

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the clock is trusted again."""
        self._listeners.append(listener)

    def heard(self, terminal: str, payment: str, occurred_at: str) -> None:
        """Record the time of a terminal's event, as evidence."""
        # The time is parsed later, because this function runs for each event.
        self._heard.append((terminal, payment, occurred_at, self.elapsed()))

    def look(self) -> None:
        """Read the clocks, and check whether the wall clock can be trusted."""
        reading = self.reading = self._read()
        passed, self._looked = max(0.0, reading.elapsed - self._looked), reading.elapsed
        found = rules.doubt(reading, self.known, self._reference, self.built, self.limit)
        # Payments call this function too, so evidence is read only if it is needed.
        asked = rules.asks(found, reading, self.known)
        witness = rules.witness(self.kernel, self.terminals) if asked else None
        if witness is not None and found in rules.ENDED_BY_WITNESS:
            self._ahead_of = self._set_ahead(reading)
            self._reference, found = None, None
        if found is None:
            self._believe(reading, passed, witness)
        else:
            self._detail = rules.words(found, reading, self.known, self._reference, self.built)
        self._tell(found, witness)

    @property
    def kernel(self) -> Kernel:
        """The kernel's state of the wall clock, for the last reading."""
        return self.kernel_state(self.reading.wall.timestamp())

    @property
    def terminals(self) -> TerminalTimes:
        """Evidence for the last reading from the events of the last hour."""
        sightings = [
            EventTime(terminal, payment, occurred, elapsed)
            for terminal, payment, text, elapsed in self._heard
            if (occurred := _occurred(text)) is not None
        ]
        return rules.heard(sightings, self.reading, self.limit)

    def _believe(self, reading: ClockReading, passed: float, witness: ClockWitness | None) -> None:
        self.known = rules.moved(self.known, reading, passed, confirmed=witness is not None)
        reference = self._reference
        if reference is None or reading.elapsed - reference.elapsed >= rules.REFERENCE_SECONDS:
            self._reference = reading

    def _tell(self, found: Doubt | None, witness: ClockWitness | None) -> None:
        """Record and log that the trust in the clock changed. Call the listeners if the clock is trusted again."""
        before, self.reason = self.reason, found
        ended, ahead_of = self.stretch, self._ahead_of
        if found is None and ended is None and ahead_of is not None:  # set ahead, and already confirmed
            ended = Stretch(ahead_of, None, Doubt.STEPPED_AHEAD)
        if found is None and ended is not None:
            over = msgspec.structs.replace(ended, until=iso(self.reading.wall), set_ahead=ahead_of is not None)
            self.past.appendleft(over)
            self._unwritten.append(over)
            self.stretch = self._ahead_of = None
        if found is not None:
            self._note(found)
        if found is before:
            return
        if found is not None:
            log.warning("clock.unsure", reason=found, detail=self._detail)
            return
        log.info("clock.sure", reason=witness or "itself")
        for listener in self._listeners:
            listener()

    def _set_ahead(self, reading: ClockReading) -> str | None:
        """Return the last trusted time before a large step ahead, or None if this process has seen no such step.

        The clock was slow before such a step.
        """
        if self._reference is None or self.known is None or rules.step(reading, self._reference) <= self.limit:
            return None
        return iso(self.known.highest)

    def _note(self, found: Doubt) -> None:
        """Start or extend the period without a trusted clock."""
        known = self.stretch
        if known is None:
            known = Stretch(iso(self.reading.wall if self.known is None else self.known.highest), None, found)
        self.stretch = known.saying(self.reading.wall)
        if self.stretch is not known:
            self._unwritten = [item for item in self._unwritten if item.since != known.since or item.until is not None]
            self._unwritten.append(self.stretch)

    async def confirm(self, operator: str, note: str, uid: int | None) -> Confirmation:
        """Record an operator's confirmation of the clock. Raise StorageUnavailable or CommitUncertain."""
        self.look()
        reading, before = self.reading, self.known
        kept = rules.by_person(reading, self.built)
        said = Confirmation(
            iso(reading.wall),
            operator,
            note,
            uid,
            "" if self.reason is None else self._detail,
            None if before is None else iso(before.highest),
        )
        await self.store.write(partial(_confirm, kept=kept, said=said))
        self._ahead_of = self._set_ahead(reading)
        self.known = self._written = kept
        self._reference = reading
        log.info("clock.confirmed", uid=uid)
        self.look()
        return said

    def _read(self) -> ClockReading:
        return ClockReading(self.now(), self.elapsed())


def _occurred(text: str) -> datetime | None:
    """Return the time in an event, or None if it is invalid."""
    with suppress(ValueError, OverflowError):
        occurred = parse_iso(text)
        return occurred if occurred.year in YEARS else None
    return None


def _kept(db: sqlite3.Connection) -> StoredClock | None:
    return marks.newest_detail(db, marks.CLOCK, StoredClock)


def _keep(unit: WriteTransaction, kept: StoredClock | None, noted: Sequence[Stretch] = ()) -> None:
    if kept is not None:
        marks.replace(unit.db, iso(kept.highest), marks.CLOCK, kept)
    for item in noted:
        unit.db.execute("DELETE FROM marks WHERE kind = ? AND at = ?", (marks.CLOCK_UNSURE, item.since)).close()
        marks.add(unit.db, item.since, marks.CLOCK_UNSURE, item)
    if noted:
        unit.db.execute(
            "DELETE FROM marks WHERE kind = ? AND rowid NOT IN"
            " (SELECT rowid FROM marks WHERE kind = ? ORDER BY rowid DESC LIMIT ?)",
            (marks.CLOCK_UNSURE, marks.CLOCK_UNSURE, MOST_STRETCHES),
        ).close()


def _confirm(unit: WriteTransaction, kept: StoredClock, said: Confirmation) -> None:
    _keep(unit, kept)
    marks.add(unit.db, said.at, marks.CLOCK_CONFIRMED, said)


def stretches(db: sqlite3.Connection) -> list[Stretch]:
    """Return the periods without a trusted clock, the newest first."""
    rows = db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid DESC", (marks.CLOCK_UNSURE,))
    return [msgspec.json.decode(row[0], type=Stretch) for row in rows]


def last_confirmation(db: sqlite3.Connection) -> Confirmation | None:
    """Return the newest confirmation of an operator, or None."""
    return marks.newest_detail(db, marks.CLOCK_CONFIRMED, Confirmation)


# The kernel's state of the wall clock (adjtimex(2)): whether a time service controls the clock. Reading it needs no
# privilege.
#
# The kernel clears this state when the clock is set by hand, and when the service makes no correction for too long. A
# sandbox may forbid the call, as the systemd unit of the package does (ProtectClock=). Then posd reads the time of a
# file that systemd-timesyncd touches after each correction.

#: Return value of adjtimex, and bit of its status, for a clock that no time service controls.
TIME_ERROR = 5
STA_UNSYNC = 0x0040
#: The kernel's state is not used if its clock and this process's clock differ by more than this (s).
SAME_CLOCK_SECONDS = 5.0

#: File that systemd-timesyncd touches after each correction, and its longest pause (PollIntervalMaxSec=, 2048 s) with a
#: margin.
TIMESYNC = Path("/run/systemd/timesync/synchronized")
TIMESYNC_SECONDS = 2400.0


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2), up to the time. `rest` covers the other members."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("fraction", ctypes.c_long),
        ("rest", ctypes.c_long * 32),
    )


def kernel_state(now: float) -> Kernel:
    """Return the kernel's state of the wall clock. `now`: the present time of that clock (seconds since 1970)."""
    timex = _Timex()  # modes 0: read only
    try:
        found = int(ctypes.CDLL(None).adjtimex(ctypes.byref(timex)))
    except (OSError, AttributeError):
        found = -1
    if found < 0 or abs(timex.seconds - now) > SAME_CLOCK_SECONDS:
        return _timesync(now)
    if found == TIME_ERROR or timex.status & STA_UNSYNC:
        return Kernel.UNSYNCHRONISED
    return Kernel.SYNCHRONISED


def _timesync(now: float) -> Kernel:
    try:
        touched = TIMESYNC.stat().st_mtime
    except OSError:
        return Kernel.UNKNOWN
    return Kernel.SYNCHRONISED if -SAME_CLOCK_SECONDS <= now - touched <= TIMESYNC_SECONDS else Kernel.UNKNOWN
