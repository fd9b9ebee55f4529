"""What a daemon does with the print jobs that an earlier one left (design 4, step 6): nothing is sent again."""

from collections.abc import Callable
from datetime import datetime

import structlog

from posd.core.print_entries import Interrupted
from posd.core.printing import PrintJob
from posd.core.transactions import Phase
from posd.crashpoints import crash_point
from posd.services.print_telling import tell
from posd.store import print_jobs
from posd.store.batch import Unit
from posd.store.store import Store

log = structlog.get_logger("posd.recovery")


async def recover(store: Store, now: Callable[[], datetime]) -> list[PrintJob]:
    """Put in doubt what was `starting`; what still waited in line was provably not sent, and ends so.

    Return what is open: the spooler's work.
    """

    def work(unit: Unit) -> list[tuple[PrintJob, PrintJob]]:
        taken_over = []
        for before in print_jobs.open_ones(unit.db):
            after = before
            if before.phase is Phase.STARTING:
                after = print_jobs.record(unit, before, Interrupted(before.queued), now())
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
