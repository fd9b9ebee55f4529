"""Marks: records that concern the whole database, such as a restore or a confirmation by an operator."""

import sqlite3
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from posd.base.json_types import Moment

T = TypeVar("T")

#: Kinds of marks. A migration adds one more, `journal_begins`.
BACKUP = "backup"  # in a backup: its time, and the version that made it
RESTORED = "restored"
WITNESSED = "witnessed"  # from here on, this database has a witness
GONE_BACK = "gone_back"
KEY_MADE = "callback_key_made"  # the operator replaced the callback key
SEEN = "restore_seen"  # the operator has confirmed every earlier restore
AWAY = "listener_away"  # posd did not listen for too long, and a payment of that time is unsettled: at most one mark
CLOCK = "clock"  # stored state of the wall clock (`clock.rules.StoredClock`): at most one mark
CLOCK_UNSURE = "clock_unsure"  # period without a trusted wall clock; `at` is its start
SHIFT = "shift"  # the operator closed a shift; the detail holds its totals
CLOCK_CONFIRMED = "clock_confirmed"  # the operator confirmed the wall clock
SIGNED = "signed"  # headers of a quarantined body, with which its signature is verified again
CA = "ca"  # the CA that the terminals trust (`upkeep.known_ca.KnownFingerprints`): at most one mark
COMMISSIONED = "commissioned"  # functions that an operator saw working on a terminal; a terminal's newest mark counts


#: Instruction for an operator after a restore that may have lost payments.
COMPARE = (
    "Compare with the slips, the terminals' journals and the acquirer's list. Record what one of them shows as "
    "paid (posd resolve ID approved --amount SUM --terminal SERIAL), and never repeat such a call."
)


class OldFile(StrEnum):
    """How much of the file that a restore replaced could be read."""

    READ = "read"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    MISSING = "missing"


#: Description of `latest`.
LATEST = "the latest known start of a payment, or null. If it is after `at`, one of the two times is wrong"
#: End of a period of missing records if the end is unknown.
NOT_KNOWN_YET = "9999-01-01T00:00:00.000Z"


class MissingRecords(msgspec.Struct, frozen=True):
    """Period from which records of starts may be missing. `since` is None if unknown."""

    since: str | None
    until: str


class Restored(msgspec.Struct, frozen=True):
    """One restore.

    `file`: the backup, or None without one. `replaced`: the replaced file, or None. `taken_over`: number of payments
    taken from the replaced file, because the backup lacks them or has an older state. `by_id`: number of these payments
    for which only the id could be read. `print_jobs` and `print_jobs_by_id` count print jobs in the same way. `ids`:
    number of ids in a list (`--ids`). `ids_taken_over`: number of payments that only the list has.
    """

    at: Annotated[Moment, Meta(description="when")]
    file: Annotated[str | None, Meta(description="the backup, null if there was none")]
    made_at: Annotated[Moment | None, Meta(description="time of the backup")]
    replaced: Annotated[str | None, Meta(description="path of the replaced file")]
    old: Annotated[OldFile, Meta(description="how much of the replaced file could be read")]
    taken_over: Annotated[int, Meta(description="payments taken over from the replaced file")]
    by_id: Annotated[int, Meta(description="of these, payments taken over by their id alone")]
    print_jobs: Annotated[int, Meta(description="print jobs taken over from the replaced file")] = 0
    print_jobs_by_id: Annotated[int, Meta(description="of these, print jobs taken over by their id alone")] = 0
    ids: Annotated[int, Meta(description="number of ids in a list (`posd restore --ids`)")] = 0
    ids_taken_over: Annotated[
        int, Meta(description="ids that only the list had; these payments were taken over in doubt")
    ] = 0
    newest_at: Annotated[
        Moment | None, Meta(description="time of the newest change in the backup, null if there is none")
    ] = None
    latest: Annotated[Moment | None, Meta(description=LATEST)] = None

    @property
    def doubtful(self) -> bool:
        """Whether a payment that is missing from the database may have been started."""
        return self.old is not OldFile.READ or self.ids_taken_over > 0

    @property
    def missing(self) -> MissingRecords | None:
        """Period of possibly missing payments, or None."""
        return MissingRecords(self.newest_at or self.made_at, self.at) if self.doubtful else None

    @property
    def words(self) -> str:
        """Text for the operator: what happened, and the next step."""
        parts = [self._source(), self._old()]
        if self.by_id:
            parts.append(f"Of {self.by_id} only the id could be read; they are in doubt (posd list --attention).")
        if self.print_jobs_by_id:
            what = "1 print job" if self.print_jobs_by_id == 1 else f"{self.print_jobs_by_id} print jobs"
            parts.append(f"Of {what} only the id could be read (posd list --print-jobs --attention).")
        if self.ids:
            parts.append(self._listed())
        if self.doubtful:
            parts.append(
                "posd cannot tell whether a payment that is missing here was started. A till that repeats such a "
                f"call would start it again. {COMPARE}"
            )
        return " ".join(parts)

    def _source(self) -> str:
        if self.file is None:
            return f"This database was created on {self.at}, without a backup."
        return f"This database was restored on {self.at} from {self.file} (made: {self.made_at or 'time unknown'})."

    def _old(self) -> str:
        count = f"{self._counted()} taken over from it."
        match self.old:
            case OldFile.READ:
                return f"The file that it replaced ({self.replaced}) could be read: {count}"
            case OldFile.DAMAGED:
                return f"The file that it replaced ({self.replaced}) could be read only in part: {count}"
            case OldFile.UNREADABLE:
                return f"Nothing could be read of the file that it replaced ({self.replaced})."
            case OldFile.MISSING:
                return "There was no file to take anything over from."

    def _listed(self) -> str:
        named = f"The list of ids named {'1 payment' if self.ids == 1 else f'{self.ids} payments'};"
        if not self.ids_taken_over:
            return f"{named} none of them was missing here."
        missing = "1 of them was" if self.ids_taken_over == 1 else f"{self.ids_taken_over} of them were"
        return (
            f"{named} {missing} not known here. Unknown payments are in doubt (posd list --attention): a till "
            "that repeats such a call is told so and nothing is sent; posd asks the terminals about them."
        )

    def _counted(self) -> str:
        payments = "1 payment" if self.taken_over == 1 else f"{self.taken_over} payments"
        if not self.print_jobs:
            return f"{payments} {'was' if self.taken_over == 1 else 'were'}"
        return f"{payments} and {'1 print job' if self.print_jobs == 1 else f'{self.print_jobs} print jobs'} were"


class GoneBack(msgspec.Struct, frozen=True):
    """Mark that the database was behind its witness at a start of posd, or was replaced by another one."""

    at: Annotated[Moment, Meta(description="when it was found")]
    reason: Annotated[str, Meta(description="how it was found, in words")]
    taken_over: Annotated[int, Meta(description="payments that only the witness had")]
    newest_at: Annotated[Moment | None, Meta(description="time of the database's newest change, or null")] = None
    latest: Annotated[Moment | None, Meta(description=LATEST)] = None

    @property
    def missing(self) -> MissingRecords:
        """Period of possibly missing payments."""
        return MissingRecords(self.newest_at, self.at)

    @property
    def words(self) -> str:
        """Text for the operator: what happened, and the next step."""
        count = "1 payment was" if self.taken_over == 1 else f"{self.taken_over} payments were"
        return (
            f"This database has gone back in time (found on {self.at}): {self.reason}. {count} taken over in "
            "doubt from the witness beside it; posd asks the terminals about them. Other events since then are "
            f"not known here. {COMPARE}"
        )


def add(db: sqlite3.Connection, at: str, kind: str, detail: Any) -> None:
    """Add a mark. `detail` is stored as JSON."""
    db.execute(
        "INSERT INTO marks (at, kind, detail) VALUES (?, ?, ?)", (at, kind, msgspec.json.encode(detail).decode())
    )


def newest(db: sqlite3.Connection, kind: str) -> str | None:
    """Return the time of the newest mark of a kind, or None."""
    row = db.execute("SELECT at FROM marks WHERE kind = ? ORDER BY rowid DESC LIMIT 1", (kind,)).fetchone()
    return row[0] if row else None


def newest_detail(db: sqlite3.Connection, kind: str, detail: type[T]) -> T | None:
    """Return the detail of the newest mark of a kind, or None. Raise ValueError if the mark is damaged."""
    row = db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid DESC LIMIT 1", (kind,)).fetchone()
    return msgspec.json.decode(row[0], type=detail) if row else None


def details(db: sqlite3.Connection, kind: str) -> list[str]:
    """Return the details of the marks of a kind, oldest first, as JSON."""
    return [row[0] for row in db.execute("SELECT detail FROM marks WHERE kind = ? ORDER BY rowid", (kind,))]


def replace(db: sqlite3.Connection, at: str, kind: str, detail: Any) -> None:
    """Replace every mark of a kind by one. If `detail` is None, only remove them."""
    db.execute("DELETE FROM marks WHERE kind = ?", (kind,))
    if detail is not None:
        add(db, at, kind, detail)


def unseen_restores(db: sqlite3.Connection) -> list[Restored]:
    """Return the restores that the operator has not confirmed, oldest first."""
    return [msgspec.json.decode(detail, type=Restored) for detail in _unseen(db, RESTORED)]


def unseen_gone_back(db: sqlite3.Connection) -> list[GoneBack]:
    """Return the unconfirmed steps back in time of the database, oldest first."""
    return [msgspec.json.decode(detail, type=GoneBack) for detail in _unseen(db, GONE_BACK)]


def missing_records(db: sqlite3.Connection, since: str) -> MissingRecords | None:
    """Return the period from which records may be missing because of restores, or None.

    A restore whose period ends before `since` is omitted. Confirmed restores count too.
    """
    query = "SELECT kind, rowid, detail FROM marks WHERE kind IN (?, ?)"
    found: list[MissingRecords] = []
    for kind, rowid, detail in db.execute(query, (RESTORED, GONE_BACK)).fetchall():
        named: type[Restored | GoneBack] = Restored if kind == RESTORED else GoneBack
        mark = msgspec.json.decode(detail, type=named)
        if mark.missing is not None and (until := _end_of_missing(db, rowid, mark)) >= since:
            found.append(MissingRecords(mark.missing.since, until))
    if not found:
        return None
    known = [item.since for item in found if item.since is not None]
    return MissingRecords(min(known) if len(known) == len(found) else None, max(item.until for item in found))


def _end_of_missing(db: sqlite3.Connection, rowid: int, mark: Restored | GoneBack) -> str:
    """Return the end of the period of missing records of a mark. `rowid`: row of the mark.

    If the mark is older than the newest known start, one of the two times is wrong. Then the period has no end before
    the operator's confirmation.
    """
    if mark.latest is None or mark.latest <= mark.at:
        return mark.at
    query = "SELECT at FROM marks WHERE kind = ? AND rowid > ? ORDER BY rowid LIMIT 1"
    seen = db.execute(query, (SEEN, rowid)).fetchone()
    return max(mark.latest, seen[0]) if seen else NOT_KNOWN_YET


def _unseen(db: sqlite3.Connection, kind: str) -> list[str]:
    rows = db.execute(
        "SELECT detail FROM marks WHERE kind = ?"
        " AND rowid > (SELECT coalesce(max(rowid), 0) FROM marks WHERE kind = ?) ORDER BY rowid",
        (kind, SEEN),
    )
    return [row[0] for row in rows]
