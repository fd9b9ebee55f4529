"""Recording what posd learnt about a transaction, and freeing its terminal when that ended it."""

from datetime import datetime

from posd.payments import journal, leases
from posd.payments.calls_in_flight import Outstanding
from posd.payments.entries import Entry
from posd.payments.model import Transaction
from posd.records.model import Phase
from posd.storage.batch import Unit


def record(unit: Unit, before: Transaction, entry: Entry, now: datetime, outstanding: Outstanding) -> Transaction:
    """Apply an entry in the commit of its journal row, and free the terminal of what ended; return what it is now."""
    after = journal.record(unit, before, entry, now)
    free_if_ended(unit, after, outstanding)
    hold_if_reopened(unit, before, after)
    return after


def free_if_ended(unit: Unit, transaction: Transaction, outstanding: Outstanding) -> None:
    """Free the terminal of a transaction that is final, unless a call of it is under way (design 4)."""
    if transaction.phase is Phase.FINAL and not outstanding.of(transaction.client_transaction_id):
        leases.give_up(unit, transaction.terminal, transaction.client_transaction_id)


def hold_if_reopened(unit: Unit, before: Transaction, after: Transaction) -> None:
    """Take the terminal for a transaction that turned out to run after all, unless another one has it by now."""
    reopened = before.phase is Phase.FINAL and after.phase is not Phase.FINAL
    if reopened and not after.released and not after.orphan and leases.holder(unit.db, after.terminal) is None:
        leases.take(unit, after.terminal, after.client_transaction_id)
