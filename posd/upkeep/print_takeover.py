"""Taking over the print jobs of the database that a restore replaces: an id that was sent is never sent again.

The rules are those for payments (`posd.upkeep.takeover`): newer states are copied in full; where a row cannot be
read, the job is derived from its journal; where nothing is there but the id, it is recorded in doubt.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from posd.base.times import iso
from posd.printing import record, rows
from posd.printing.entries import TakenOver
from posd.printing.model import PrintJob
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.upkeep import merge, print_merge
from posd.upkeep.merge import UNREADABLE, Row
from posd.upkeep.print_merge import CHANGES, JOURNAL


class TakenJobs(msgspec.Struct, frozen=True):
    """What was taken over: print jobs that were missing or older, and how many of them by no more than their id."""

    jobs: int = 0
    by_id: int = 0


def take_over(
    db: sqlite3.Connection, old: sqlite3.Connection, ids: Iterable[str], *, sound: bool, now: datetime
) -> TakenJobs:
    """Take over from the attached `old` into `db`, inside its transaction; see `posd.upkeep.takeover.take_over`."""
    return _TakeOver(db, old, now, sound=sound).run(ids)


class _TakeOver:
    def __init__(self, db: sqlite3.Connection, old: sqlite3.Connection, now: datetime, *, sound: bool) -> None:
        self._db = db
        self._old = old
        self._unit = Unit(db)
        self._now = now
        self._sound = sound

    def run(self, ids: Iterable[str]) -> TakenJobs:
        newer = print_merge.newer(self._db)
        unreadable = {identity for identity in newer if not self._readable(identity)}
        if not self._sound:
            named = {
                identity
                for identity in ids
                if not (print_merge.in_old(self._db, identity) or print_merge.is_removed(self._db, identity))
            }
            unreadable |= named | print_merge.without_row(self._db)
        newer = [identity for identity in newer if identity not in unreadable]
        doubtful = [identity for identity in sorted(unreadable) if self._may_derive(identity)]
        missing = {identity for identity in doubtful if print_merge.rowid(self._db, identity) is None}

        merge.append(self._db, CHANGES, (*newer, *doubtful))
        print_merge.copy_rows(self._db, newer)
        histories = merge.histories(self._db, missing, CHANGES)
        for identity in sorted(missing):
            self._insert_by_id(identity, histories.get(identity, []))
        grown = merge.append(self._db, JOURNAL, (*newer, *doubtful)).grown
        for identity in newer:
            if print_merge.old_rowid(self._db, identity) <= 0 or not (self._sound or self._follows(identity)):
                print_merge.number_below(self._db, identity)
        derived = {identity for identity in doubtful if identity in grown and self._derive_again(identity)}
        for identity, *_ in print_merge.history_behind(self._db):
            self._note(identity)  # the newest change of it could not be read
        return TakenJobs(len(newer) + len(derived | missing), len(missing - derived))

    def _readable(self, identity: str) -> bool:
        try:
            return rows.get(self._old, identity) is not None
        except UNREADABLE:
            return False

    def _may_derive(self, identity: str) -> bool:
        """Whether its state may come from its journal: not where a part of that was lost before."""
        place = print_merge.rowid(self._db, identity)
        return place is None or place > 0

    def _follows(self, identity: str) -> bool:
        """Whether a job is as it follows from its record: nothing of that is missing."""
        stored = self._get(identity)
        derived = self._derived(stored)
        return derived is not None and not record.difference(stored, derived)

    def _get(self, identity: str) -> PrintJob:
        stored = rows.get(self._db, identity)
        assert stored is not None  # noqa: S101 - it was there, or was just written
        return stored

    def _derived(self, stored: PrintJob) -> PrintJob | None:
        try:
            return record.derive(self._db, stored)
        except UNREADABLE:
            return None

    def _insert_by_id(self, identity: str, history: Sequence[Row]) -> None:
        """Record a job of which no row could be read: in doubt, until its journal or the terminal says more."""
        reason = "a restore found its id in the replaced database, and could not read its record"
        if history:
            last = history[-1]
            reason += f" (the last known of it: {last['phase']}, {last['status'] or 'no state'}, {last['at']})"
        created_at = history[0]["at"] if history else iso(self._now)
        found = PrintJob(
            print_job_id=identity,
            terminal=next((change["terminal"] for change in history if change["terminal"]), None),
            created_at=created_at,
            updated_at=created_at,
            phase=Phase.STARTING,
        )
        rows.insert(self._unit, found, "taken_over")
        rows.record(self._unit, found, TakenOver(reason), self._now)

    def _note(self, identity: str) -> None:
        rows.note(self._unit, self._get(identity), "taken_over", iso(self._now))

    def _derive_again(self, identity: str) -> bool:
        """Derive a job from what is now recorded of it; tell whether that changed it."""
        stored = self._get(identity)
        derived = self._derived(stored)
        if derived is None or not record.difference(stored, derived):
            return False
        rows.move(self._unit, stored, msgspec.structs.replace(derived, revision=stored.revision), "taken_over")
        return True
