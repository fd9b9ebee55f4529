"""Recording the intent of a transaction: every guard against paying twice, in one commit with the lease."""

from datetime import tzinfo
from itertools import islice

import msgspec

from posd.base.problems import Problem
from posd.config.profile import resolve_path
from posd.payments import chain_rows, leases, rows
from posd.payments.calls_in_flight import CallsInFlight
from posd.payments.chain_guards import place
from posd.payments.model import OperationType, Transaction, may_be_paid
from posd.payments.record import begin
from posd.payments.request import start_body
from posd.records import pruned
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.terminals.fleet import Fleet

#: Transactions that a `sale_conflict` names; a sale has one or two, and a till that always says the same has all.
MAX_CONFLICTS_SHOWN = 20


class Intended(msgspec.Struct, frozen=True):
    """A transaction whose intent is recorded, and the request that starts it, ready to be sent."""

    transaction: Transaction
    method: str
    url: str
    body: bytes


class Existing(msgspec.Struct, frozen=True):
    """The id was there already when the intent was to be recorded."""

    transaction: Transaction


class Intents:
    """Records intents, inside a commit. `zone` is the merchant's: its calendar decides what a void is."""

    def __init__(self, fleet: Fleet, outstanding: CallsInFlight, zone: tzinfo) -> None:
        self._fleet = fleet
        self._outstanding = outstanding
        self._zone = zone

    def record(self, unit: Unit, draft: Transaction, callback_url: str) -> Intended | Existing:
        """Take the terminal and record the transaction, or return what is known under its id.

        Raise Problem where one of the guards refuses it: nothing is recorded.
        """
        existing = rows.get(unit.db, draft.client_transaction_id)
        if existing is not None:
            return Existing(existing)
        pruned.refuse_payment(unit.db, draft.client_transaction_id)  # pruned
        transaction = place(unit, draft, self._zone)  # unknown_original, already_derived
        intended = self._request(transaction, callback_url)  # nothing of it can fail once the intent is on disk
        self._refuse_sale(unit, transaction)  # sale_conflict
        self._refuse_busy(unit, transaction)  # terminal_busy
        begin(unit, transaction, "intent")
        leases.take(unit, transaction.terminal, transaction.client_transaction_id)
        return intended

    def _request(self, transaction: Transaction, callback_url: str) -> Intended:
        """Return the one request that starts it."""
        table = self._fleet.rows(transaction.terminal)
        row = table[transaction.type or OperationType.CHARGE]
        path = resolve_path(row, terminal_serial=transaction.terminal)
        return Intended(transaction, row.method, f"{transaction.sent_to}{path}", start_body(transaction, callback_url))

    def _refuse_sale(self, unit: Unit, transaction: Transaction) -> None:
        """Raise Problem where another transaction of the sale is open, approved or unsettled, on any terminal.

        Those of its own chain are of the same sale and no second payment for it; `place` guards them.
        """
        if transaction.sale is None or transaction.repeat:
            return
        chain = set(chain_rows.family(unit.db, transaction)) if transaction.derives_from else set()
        claims = (
            other
            for other in rows.of_sale(unit.db, transaction.sale)
            if may_be_paid(other) and other.client_transaction_id not in chain
        )
        others = [other.client_transaction_id for other in islice(claims, MAX_CONFLICTS_SHOWN)]
        if others:
            raise Problem(
                "sale_conflict",
                f"cannot start: sale {transaction.sale} already has a payment that is open or approved "
                f"({', '.join(others)}); look at it first. If this is a further payment for the same sale, say so "
                'with "repeat": true',
                transactions=others,
            )

    def _refuse_busy(self, unit: Unit, transaction: Transaction) -> None:
        """Raise Problem where another transaction holds the terminal, and is open or has a call under way."""
        holder = leases.holder(unit.db, transaction.terminal)
        blocking = rows.get(unit.db, holder) if holder else None
        if blocking is None:
            return
        identity = blocking.client_transaction_id
        if blocking.phase is not Phase.FINAL or self._outstanding.of(identity):
            raise Problem(
                "terminal_busy",
                f"cannot start: terminal {transaction.terminal} is still busy with {identity} "
                f"({blocking.status or blocking.phase} since {blocking.updated_at}); wait for it, abort it "
                f"(posd abort {identity}) or free the terminal (posd release {identity})",
                blocking_transaction=identity,
            )
