"""What a person decides about a print job (local API: resolve, acknowledge): audited, and never a proof."""

from functools import partial

from posd.base.problems import Problem
from posd.printing import record, rows
from posd.printing.entries import Dismissed
from posd.printing.model import PrintJob
from posd.printing.request import Decision
from posd.printing.start import Printing
from posd.records.model import Phase
from posd.records.service import RecordService, ServiceParts, decide, require_attention
from posd.records.table import PRUNED_PRINT_JOBS
from posd.storage.writer import WriteTransaction


class PrintOperators(RecordService):
    """Use cases of people."""

    def __init__(self, parts: ServiceParts, printing: Printing) -> None:
        super().__init__(parts)
        self._printing = printing

    async def decide(self, print_job_id: str, decision: Decision) -> PrintJob:
        """Apply a person's decision; return the job as it then stands. Raise Problem."""
        work = partial(self._decide, identity=print_job_id, decision=decision)
        return await decide(rows.PRINT_JOB, self._store, print_job_id, decision, work)

    def _decide(self, unit: WriteTransaction, identity: str, decision: Decision) -> PrintJob:
        before = rows.find(unit.db, identity)
        if before is None:
            raise PRUNED_PRINT_JOBS.missing(unit.db, identity)
        if isinstance(decision, Dismissed):
            require_attention(before, decision.code, identity)
        elif before.phase is Phase.FINAL:
            how = before.status or "it was not accepted"
            raise Problem("already_final", f"it has already ended ({how})")
        elif before.phase is Phase.STARTING or self._printing.under_way(before.print_job_id):
            raise Problem(
                "call_outstanding",
                f"it waits for its turn at terminal {before.terminal}, or is being sent; try again when that is over",
            )
        return record.record(unit, before, decision, self._now())
