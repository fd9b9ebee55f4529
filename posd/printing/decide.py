"""What a person decides about a print job (local API: resolve, acknowledge): audited, and never a proof."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.printing import record, rows
from posd.printing.entries import Dismissed, Resolved
from posd.printing.model import PrintJob
from posd.printing.request import Decision
from posd.printing.start import Printing
from posd.records import pruned
from posd.records.model import Phase
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit

log = structlog.get_logger("posd.operators")


class PrintOperators:
    """Use cases of people."""

    def __init__(self, store: Store, printing: Printing, now: Callable[[], datetime]) -> None:
        self._store = store
        self._printing = printing
        self._now = now

    async def decide(self, print_job_id: str, decision: Decision) -> PrintJob:
        """Apply a person's decision; return the job as it then stands. Raise Problem."""
        crash_point("operator.before_commit")
        try:
            after = await self._store.write(partial(self._decide, identity=print_job_id, decision=decision))
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"cannot do it now: {error}; look at the print job, and try again. Check the disk"
            raise Problem("storage_unavailable", detail) from error
        crash_point("operator.committed")
        log.info(
            "print.operator",
            print_job=print_job_id,
            terminal=after.terminal,
            kind=decision.__struct_config__.tag,
            uid=decision.uid,
            code=decision.code if isinstance(decision, Dismissed) else None,
            result=decision.result if isinstance(decision, Resolved) else None,
        )
        return after

    def _decide(self, unit: Unit, identity: str, decision: Decision) -> PrintJob:
        before = rows.find(unit.db, identity)
        if before is None:
            raise pruned.missing_print_job(unit.db, identity)
        if isinstance(decision, Dismissed):
            if before.attention_of(decision.code) is None:
                raise Problem("not_found", f"attention {decision.code} is not open on {identity}")
        elif before.phase is Phase.FINAL:
            how = before.status or "it was not accepted"
            raise Problem("already_final", f"it has already ended ({how})")
        elif before.phase is Phase.STARTING or self._printing.under_way(before.print_job_id):
            raise Problem(
                "call_outstanding",
                f"it waits for its turn at terminal {before.terminal}, or is being sent; try again when that is over",
            )
        return record.record(unit, before, decision, self._now())
