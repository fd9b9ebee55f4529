"""What a daemon does with what an earlier one left (design 4, step 6): nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.core.entries import Interrupted
from posd.core.transactions import Phase, Transaction
from posd.crashpoints import crash_point
from posd.services.telling import tell
from posd.store import journal, leases, transactions
from posd.store.store import Store
from posd.store.writer import Unit

log = structlog.get_logger("posd.recovery")


async def recover(store: Store, now: Callable[[], datetime]) -> list[Transaction]:
    """Put in doubt what was `starting`, and free the terminals of transactions that ended.

    Return what is open, and what ended against the lifecycle without having been asked for: the reconciler's work.
    """

    def work(unit: Unit) -> list[tuple[Transaction, Transaction]]:
        taken_over = []
        for before in transactions.open_ones(unit.db):
            after = before
            if before.phase is Phase.STARTING:
                after = journal.record(unit, before, Interrupted(), now())
            taken_over.append((before, after))
        leases.give_up_ended(unit)
        return taken_over

    crash_point("recovery.before_commit")
    taken_over = await store.write(work)
    crash_point("recovery.committed")
    for before, after in taken_over:
        log.info(
            "payment.taken_over",
            transaction=after.client_transaction_id,
            terminal=after.terminal,
            phase=after.phase,
            status=after.status,
        )
        tell(before, after)
    to_ask_once = await store.read(transactions.to_ask_once)
    return [*(after for _, after in taken_over), *to_ask_once]
