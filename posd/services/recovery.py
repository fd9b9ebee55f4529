"""What a daemon does with what an earlier one left (design 4, step 6): nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.core.decisions import interrupted
from posd.core.transactions import Phase
from posd.store import leases, transactions
from posd.store.store import Store
from posd.store.writer import Unit

log = structlog.get_logger("posd.recovery")


async def recover(store: Store, now: Callable[[], datetime]) -> None:
    """Put in doubt what was `starting`, and free the terminals of transactions that ended."""

    def work(unit: Unit) -> list[str]:
        doubtful = []
        for transaction in transactions.open_ones(unit.db):
            if transaction.phase is Phase.STARTING:
                transactions.move(unit, transaction, interrupted(transaction, now()), "interrupted")
                doubtful.append(transaction.client_transaction_id)
        leases.give_up_ended(unit)
        return doubtful

    for identity in await store.write(work):
        log.warning("payment.in_doubt", transaction=identity, reason="posd was interrupted while it sent the request")
