"""What a person decides (local API: release, resolve, acknowledge): audited, and never a proof.

The name that the caller gives is kept beside the user id of the process at the other end of the socket.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.payments import rows
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.model import Transaction
from posd.payments.record import CallsInFlight, record
from posd.records import pruned
from posd.records.model import Phase
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit

log = structlog.get_logger("posd.operators")

Decision = Released | Resolved | Dismissed


class Operators:
    """Use cases of people."""

    def __init__(self, store: Store, outstanding: CallsInFlight, now: Callable[[], datetime]) -> None:
        self._store = store
        self._outstanding = outstanding
        self._now = now

    async def decide(self, client_transaction_id: str, decision: Decision) -> Transaction:
        """Apply a person's decision; return the transaction as it then stands. Raise Problem."""
        work = partial(self._decide, client_transaction_id=client_transaction_id, decision=decision)
        crash_point("operator.before_commit")
        try:
            after = await self._store.write(work)
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"cannot do it now: {error}; look at the transaction, and try again. Check the disk"
            raise Problem("storage_unavailable", detail) from error
        crash_point("operator.committed")
        log.info(
            "payment.operator",
            transaction=client_transaction_id,
            terminal=after.terminal,
            kind=decision.__struct_config__.tag,
            uid=decision.uid,
            code=decision.code if isinstance(decision, Dismissed) else None,
            result=decision.result if isinstance(decision, Resolved) else None,
        )
        return after

    def _decide(self, unit: Unit, client_transaction_id: str, decision: Decision) -> Transaction:
        before = rows.get(unit.db, client_transaction_id)
        if before is None:
            raise pruned.missing_payment(unit.db, client_transaction_id)
        if isinstance(decision, Dismissed):
            if before.attention_of(decision.code) is None:
                raise Problem("not_found", f"attention {decision.code} is not open on {client_transaction_id}")
        else:
            self._require_open_and_quiet(before)
        after = record(unit, before, decision, self._now(), self._outstanding)
        if isinstance(decision, Released):
            rows.give_up_leases(unit, client_transaction_id)
        return after

    def _require_open_and_quiet(self, transaction: Transaction) -> None:
        """Raise Problem where it has ended, or where a call to its terminal is under way."""
        if transaction.phase is Phase.FINAL and transaction.outcome is not None:
            raise Problem("already_final", f"it has already ended ({transaction.outcome.result})")
        # A start whose answer is there is still being recorded until it has left `starting`.
        if self._outstanding.of(transaction.client_transaction_id) or transaction.phase is Phase.STARTING:
            raise Problem(
                "call_outstanding",
                f"a call to terminal {transaction.terminal} is under way for it; try again when it has returned, "
                "within half a minute",
            )
