"""What a daemon does with the print jobs that an earlier one left (design 4, step 6): nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.base.crashpoints import crash_point
from posd.printing import rows
from posd.printing.entries import Interrupted
from posd.printing.log import tell
from posd.printing.model import PrintJob
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.storage.store import Store

log = structlog.get_logger("posd.recovery")


async def recover(store: Store, now: Callable[[], datetime]) -> list[PrintJob]:
    """Put in doubt what was `starting`; what still waited in line was provably not sent, and ends so.

    Return what is open: the spooler's work.
    """

    def work(unit: Unit) -> list[tuple[PrintJob, PrintJob]]:
        taken_over = []
        for before in rows.open_ones(unit.db):
            after = before
            if before.phase is Phase.STARTING:
                after = rows.record(unit, before, Interrupted(before.queued), now())
            taken_over.append((before, after))
        return taken_over

    crash_point("print_recovery.before_commit")
    taken_over = await store.write(work)
    crash_point("print_recovery.committed")
    for before, after in taken_over:
        log.info(
            "print.taken_over",
            print_job=after.print_job_id,
            terminal=after.terminal,
            phase=after.phase,
            status=after.status,
        )
        tell(before, after)
    return [after for _, after in taken_over if after.phase is not Phase.FINAL]
