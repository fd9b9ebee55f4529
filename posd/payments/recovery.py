"""What a daemon does with what an earlier one left (architecture, The way of a payment): nothing is sent again."""

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.entries import Interrupted
from posd.payments.model import Transaction
from posd.payments.record import record
from posd.payments.schedule import CLOSED_SECONDS
from posd.records.model import Phase
from posd.records.service import CallsInFlight, take_over
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction


async def recover(store: Store, now: Callable[[], datetime]) -> list[Transaction]:
    """Put in doubt what was `starting`, and free the terminals of transactions that ended.

    Return what is open, what ended against the lifecycle without having been asked for, and what a person closed not
    long ago: the reconciler's work.
    """

    def work(unit: WriteTransaction) -> list[Transaction]:
        taken_over = []
        for found in rows.open_ones(unit.db):
            starting = found.phase is Phase.STARTING
            taken_over.append(record(unit, found, Interrupted(), now(), CallsInFlight()) if starting else found)
        rows.give_up_ended_leases(unit)
        return taken_over

    taken_over = await take_over(rows.PAYMENT, store, "recovery", work)
    to_ask_once = await store.read(rows.to_ask_once)
    since = iso(now() - timedelta(seconds=CLOSED_SECONDS))
    closed = await store.read(partial(_closed, since=since))
    return [*taken_over, *to_ask_once, *closed]


def _closed(db: sqlite3.Connection, since: str) -> list[Transaction]:
    found = (rows.get(db, identity) for identity in journal.closed_by_person(db, since))
    return [item for item in found if item and item.outcome and not item.outcome.stated_by_terminal]
