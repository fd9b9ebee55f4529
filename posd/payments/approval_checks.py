"""What approvals are held against as they come (`payments.outcomes`): the currencies of a terminal, and the clock."""

import sqlite3
from collections.abc import Callable
from datetime import datetime

from posd.payments import chains, rows
from posd.payments.entries import Unlikely
from posd.payments.lifecycle import APPROVAL
from posd.payments.model import Result, Transaction
from posd.payments.outcomes import unlikely
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event


class ApprovalChecks:
    """Holds approvals against their requests as they come, and remembers the currencies of each terminal."""

    def __init__(self, currency: str, clock_sure: Callable[[], bool]) -> None:
        """`currency` of the merchant; empty: those that the terminal's approvals have had so far."""
        self._currency = currency
        self._clock_sure = clock_sure
        self._seen: dict[str, frozenset[str]] = {}

    def about(
        self,
        db: sqlite3.Connection,
        before: Transaction,
        after: Transaction,
        event: TransactionEvent,
        came_at: datetime | None,
    ) -> Unlikely | None:
        """Return what contradicts the request, if by the event the payment is approved since now; else None.

        `came_at` is None if posd did not trust the clock at arrival, or if not known.
        """
        if not _approves(before, after, event):
            return None
        currencies = self._currencies(db, after, event.currency, remembers=before.updates_terminal)
        found = unlikely(after, event, currencies, came_at, chains.another_with_reference(db, after))
        return Unlikely(*found) if found is not None else None

    def believed(self, event: TransactionEvent, at: datetime) -> datetime | None:
        """Return the arrival time of an event, None if posd does not trust the clock or no rule asks."""
        return at if event.status == APPROVAL and self._clock_sure() else None

    def currencies(self, db: sqlite3.Connection, terminal: str) -> frozenset[str]:
        """Return the merchant's currency, or else those that the terminal's approvals have had so far."""
        if self._currency:
            return frozenset({self._currency})
        if terminal not in self._seen:
            self._seen[terminal] = _of_approvals(db, terminal)
        return self._seen[terminal]

    def _currencies(
        self, db: sqlite3.Connection, transaction: Transaction, said: str | None, *, remembers: bool
    ) -> frozenset[str]:
        """Return those that an approval may have. The database is asked at the first one, and where it has another."""
        if said is None or self._currency:
            return frozenset({self._currency} - {""})
        seen = self._seen.get(transaction.terminal, frozenset())
        if said.upper() not in seen:
            seen = _of_approvals(db, transaction.terminal, but=transaction.client_transaction_id)
            if seen or remembers:
                self._seen[transaction.terminal] = seen or frozenset({said.upper()})
        return seen


def _approves(before: Transaction, after: Transaction, event: TransactionEvent) -> bool:
    """Whether an outcome rests on this approval since now."""
    if event.status != APPROVAL or after.outcome is None or after.outcome.result is not Result.APPROVED:
        return False
    known = {item.event_id for item in before.outcome.evidence} if before.outcome else set()
    return event.event_id in {item.event_id for item in after.outcome.evidence} - known


def _of_approvals(db: sqlite3.Connection, terminal: str, but: str = "") -> frozenset[str]:
    found = (_currency(body) for body in rows.approvals(db, terminal, but=but))
    return frozenset(currency.upper() for currency in found if currency is not None)


def _currency(body: bytes) -> str | None:
    try:
        return read_event(body).currency
    except NotAnEvent:
        return None
