"""Taking over from the database that a restore replaces: what was started once is never forgotten.

Print jobs are taken over in the same way, in `posd.upkeep.print_jobs`.

A transaction that the backup does not have, or has in an older state, is copied in full. Where its row cannot be read,
it is derived again from its events and its journal, as far as these are there; where nothing is there but the id, it is
recorded in doubt.
"""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from posd.base.times import iso
from posd.payments import journal, reprocess, rows
from posd.payments.entries import TakenOver
from posd.payments.model import Transaction
from posd.payments.record import CallsInFlight, Rederived, begin, move, note, record
from posd.payments.wire import read_event
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.storage.opening import connect_reader
from posd.upkeep import merge, print_jobs
from posd.upkeep.merge import CHANGES, EVENTS, JOURNAL, UNREADABLE, Row
from posd.upkeep.print_jobs import TakenJobs


class Taken(msgspec.Struct, frozen=True):
    """What was taken over: payments that were missing or older, and how many of them by no more than their id."""

    payments: int = 0
    by_id: int = 0
    prints: TakenJobs = TakenJobs()


def take_over(
    db: sqlite3.Connection, old: Path, ids: Collection[str], print_ids: Collection[str], *, sound: bool, now: datetime
) -> Taken:
    """Take over from `old`, a database of the same schema, into `db`, a file that nobody else uses (opened by URI).

    `ids` and `print_ids` are of transactions and print jobs of which `old` may have no row. `sound` says that `old` is
    whole: no row of it is missing. Raise sqlite3.Error where it cannot be read at all.
    """
    with closing(connect_reader(old)) as reader, merge.attached(db, old):
        reader.text_factory = merge.text
        merge.number_above(db, sound=sound)
        merge.keep_removed(db)
        taken = _TakeOver(db, reader, now, sound=sound).run(ids)
        prints = print_jobs.take_over(db, reader, print_ids, sound=sound, now=now)
        return msgspec.structs.replace(taken, prints=prints)


class _TakeOver:
    def __init__(self, db: sqlite3.Connection, old: sqlite3.Connection, now: datetime, *, sound: bool) -> None:
        self._db = db
        self._old = old  # for functions that know nothing of an attached database
        self._unit = Unit(db)
        self._now = now
        self._sound = sound

    def run(self, ids: Collection[str]) -> Taken:
        newer = merge.newer(self._db)
        unreadable = {identity for identity in newer if not self._readable(identity)}
        if not self._sound:
            unreadable |= merge.without_row(self._db) | {
                item for item in ids if not (merge.in_old(self._db, item) or merge.is_removed(self._db, item))
            }
        for identity in unreadable.intersection(newer):
            del newer[identity]
        doubtful = [identity for identity in sorted(unreadable) if self._may_derive(identity)]
        missing = {identity for identity in doubtful if merge.rowid(self._db, identity) is None}

        merge.append(self._db, CHANGES, (*newer, *doubtful))
        for identity in newer:
            merge.copy_row(self._db, identity)
        histories = merge.histories(self._db, missing, CHANGES)
        for identity in sorted(missing):
            self._insert_by_id(identity, histories.get(identity, []))
        of_events = merge.append(self._db, EVENTS, (*newer, *doubtful))
        of_journal = merge.append(self._db, JOURNAL, (*newer, *doubtful))
        begins_after = merge.begins_after(self._old)
        for identity, (place, final_event) in newer.items():
            merge.set_final(self._db, identity, of_events.numbers.get(final_event))
            if place <= begins_after or not (self._sound or self._follows(identity)):
                merge.number_below(self._db, identity)
        grown = of_events.grown | of_journal.grown
        derived = {identity for identity in doubtful if identity in grown and self._derive_again(identity)}
        merge.take_leases(self._db, list(self._holding(newer)), sound=self._sound)
        for identity, *_ in merge.history_behind(self._db):
            self._note(identity)  # the newest change of it could not be read
        merge.copy_the_rest(self._db)
        return Taken(len(newer) + len(derived | missing), len(missing - derived))

    def _readable(self, identity: str) -> bool:
        try:
            return rows.get(self._old, identity) is not None
        except UNREADABLE:
            return False

    def _may_derive(self, identity: str) -> bool:
        """Whether its state may come from events and journal: not where the record here is of before the journal."""
        place = merge.rowid(self._db, identity)
        return place is None or place > merge.begins_after(self._db)

    def _follows(self, identity: str) -> bool:
        """Whether a transaction is as it follows from its record: nothing of that is missing."""
        item = self._derived(identity)
        return item is not None and not reprocess.difference(item)

    def _derived(self, identity: str) -> reprocess.Derived | None:
        stored = rows.get(self._db, identity)
        assert stored is not None  # noqa: S101 - it was there, or was just written
        try:
            return reprocess.derive(self._db, stored)
        except (*UNREADABLE, AssertionError):
            return None

    def _insert_by_id(self, identity: str, history: Sequence[Row]) -> None:
        """Record a transaction of which no row could be read: in doubt, until its events or a person say more."""
        reason = "a restore found its id in the replaced database, and could not read its record"
        if history:
            last = history[-1]
            state = last["result"] or last["status"] or "no state"
            reason += f" (the last known of it: {last['phase']}, {state}, {last['at']})"
        created_at = history[0]["at"] if history else iso(self._now)
        found = Transaction(
            client_transaction_id=identity,
            terminal=self._terminal(identity, [change["terminal"] for change in history]),
            type=None,
            created_at=created_at,
            updated_at=created_at,
            phase=Phase.STARTING,
        )
        begin(self._unit, found, "taken_over")
        record(self._unit, found, TakenOver(reason), self._now, CallsInFlight())

    def _note(self, identity: str) -> None:
        found = rows.get(self._db, identity)
        assert found is not None  # noqa: S101 - its id comes from its row
        note(self._unit, found, "taken_over", iso(self._now))

    def _terminal(self, identity: str, named: Sequence[str | None]) -> str:
        """Return the terminal that was asked, as far as anything tells it."""
        lease = self._old.execute("SELECT terminal FROM leases WHERE client_transaction_id = ?", (identity,))
        serials = [*named, *(row[0] for row in lease)]
        for event in journal.events(self._old, identity):
            with suppress(*UNREADABLE):
                serials.append(read_event(event.body).terminal.serial_number)
        return next((serial for serial in serials if serial), "")

    def _derive_again(self, identity: str) -> bool:
        """Derive a transaction from what is now recorded of it; tell whether that changed it."""
        item = self._derived(identity)
        if item is None or not reprocess.difference(item):
            return False
        stored = item.stored
        after = msgspec.structs.replace(item.derived, revision=stored.revision, last_search=stored.last_search)
        move(self._unit, stored, after, Rederived("taken_over", item.events, item.verdicts), CallsInFlight())
        return True

    def _holding(self, taken: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield who may hold which terminal though no lease could be read: what is open and not released, newest first.

        An orphan never had its terminal, and of a whole file the leases are known.
        """
        for identity in () if self._sound else reversed(list(taken)):
            item = rows.get(self._db, identity)
            if item is not None and item.phase is not Phase.FINAL and not (item.released or item.orphan):
                yield item.terminal, identity
