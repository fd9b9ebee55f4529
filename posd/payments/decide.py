"""Operators' decisions (local API: release, resolve, acknowledge). Decisions are audited, and are never a proof.

`resolve` also records a payment that a restore lost. posd has no record of a request for such a payment. The caller's
name is stored with the user id of the calling process.
"""

from functools import partial

from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.base.times import iso
from posd.payments import rows
from posd.payments.entries import Dismissed, Released
from posd.payments.model import Transaction
from posd.payments.record import begin, record
from posd.payments.request import Decision, PaymentFacts, contradicted
from posd.records.model import Phase
from posd.records.request import RequestFault, check
from posd.records.service import RecordService, ServiceParts, decide, require_attention
from posd.records.start import not_here, require_same
from posd.storage.batch import WriteTransaction


class Operators(RecordService):
    """Use cases of operators."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._missing = parts.missing

    async def decide(
        self, client_transaction_id: str, decision: Decision, facts: PaymentFacts | None = None
    ) -> Transaction:
        """Apply an operator's decision. Return the changed transaction. Raise Problem.

        `facts`: the operator's data about the payment.
        """
        work = partial(self._decide, client_transaction_id=client_transaction_id, decision=decision, facts=facts)
        return await decide(rows.PAYMENT, self._store, client_transaction_id, decision, work)

    def _decide(
        self, unit: WriteTransaction, client_transaction_id: str, decision: Decision, facts: PaymentFacts | None
    ) -> Transaction:
        before = rows.get(unit.db, client_transaction_id)
        if before is None:
            before = self._begin_lost(unit, client_transaction_id, facts)
        elif isinstance(decision, Dismissed):
            require_attention(before, decision.code, client_transaction_id)
        else:
            self._require_open_and_quiet(before)
            differing = list(contradicted(before, facts)) if facts else ()
            require_same(client_transaction_id, differing, used_for="request", new_id_for="payment")
        after = record(unit, before, decision, self._now(), self._outstanding)
        if isinstance(decision, Released):
            rows.give_up_leases(unit, client_transaction_id)
        return after

    def _begin_lost(self, unit: WriteTransaction, identity: str, facts: PaymentFacts | None) -> Transaction:
        """Record an unknown payment that a restore may have lost. Raise Problem."""
        missing = self._missing()
        problem = not_here(rows.PAYMENT.missing(unit.db, identity), missing)
        if facts is None or missing is None or problem.code != "not_found":
            raise problem
        if facts.amount == b"{}":
            lacks = RequestFault(
                "/amount", f"is required: {identity} is not known here, but a restore may have lost it"
            )
            check((lacks,), "cannot resolve")
        terminal, at = self._fleet.resolve(facts.terminal), iso(self._now())
        lost = Transaction(
            client_transaction_id=identity,
            terminal=terminal.serial,
            type=facts.type or OperationType.CHARGE,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            sale=facts.sale,
            amount=facts.amount,
            original=facts.original,
            derives_from=facts.original if facts.original and rows.get(unit.db, facts.original) else None,
            answer_unit=terminal.answer_unit,
        )
        begin(unit, lost, "orphan")
        return lost

    def _require_open_and_quiet(self, transaction: Transaction) -> None:
        """Raise Problem if the transaction has ended, or has an open call to its terminal."""
        if transaction.phase is Phase.FINAL and transaction.outcome is not None:
            raise Problem("already_final", f"it has already ended ({transaction.outcome.result})")
        # A transaction in phase `starting` has an open start call until the reply is recorded.
        if self._outstanding.of(transaction.client_transaction_id) or transaction.phase is Phase.STARTING:
            raise Problem(
                "call_outstanding",
                f"a call to terminal {transaction.terminal} is under way for it; try again when it has returned, "
                "within half a minute",
            )
