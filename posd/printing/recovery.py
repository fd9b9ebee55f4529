"""What a daemon does with the print jobs that an earlier one left: nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

from posd.printing import record, rows
from posd.printing.entries import Interrupted
from posd.printing.model import PrintJob
from posd.records.model import Phase
from posd.records.service import take_over
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction


async def recover(store: Store, now: Callable[[], datetime]) -> list[PrintJob]:
    """Put in doubt what was `starting`; what still waited in line was provably not sent, and ends so.

    Return what is open: the spooler's work.
    """

    def work(unit: WriteTransaction) -> list[PrintJob]:
        taken_over = []
        for found in rows.open_ones(unit.db):
            starting = found.phase is Phase.STARTING
            taken_over.append(record.record(unit, found, Interrupted(found.queued), now()) if starting else found)
        return taken_over

    taken_over = await take_over(rows.PRINT_JOB, store, "print_recovery", work)
    return [item for item in taken_over if item.phase is not Phase.FINAL]
