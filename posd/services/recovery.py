"""What a daemon does with what an earlier one left (design 4, step 6): nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.core.decisions import interrupted
from posd.core.transactions import Phase, Transaction
from posd.services.telling import tell
from posd.store import leases, transactions
from posd.store.store import Store
from posd.store.writer import Unit

log = structlog.get_logger("posd.recovery")


async def recover(store: Store, now: Callable[[], datetime]) -> None:
    """Put in doubt what was `starting`, and free the terminals of transactions that ended."""

    def work(unit: Unit) -> list[tuple[Transaction, Transaction]]:
        taken_over = []
        for before in transactions.open_ones(unit.db):
            after = before
            if before.phase is Phase.STARTING:
                after = transactions.move(unit, before, interrupted(before, now()), "interrupted")
            taken_over.append((before, after))
        leases.give_up_ended(unit)
        return taken_over

    for before, after in await store.write(work):
        log.info(
            "payment.taken_over",
            transaction=after.client_transaction_id,
            terminal=after.terminal,
            phase=after.phase,
            status=after.status,
        )
        tell(before, after)
