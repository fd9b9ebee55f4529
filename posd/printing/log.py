"""Log new attentions and new ends of print jobs, whatever brought them: it listens to the hub."""

import asyncio
from collections.abc import Sequence

import structlog

from posd.printing.model import PrintAttentionCode, PrintJob, PrintStatus
from posd.printing.rows import Moved
from posd.storage.batch import Change

log = structlog.get_logger("posd.printing")

#: The terminal contradicts itself: an error. All other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def hear(changes: Sequence[Change]) -> None:
    """Take the changes of one COMMIT, on the loop; see `posd.payments.log.hear`."""
    moved = [change for change in changes if isinstance(change, Moved)]
    if moved:
        asyncio.get_running_loop().call_soon(_tell_all, moved)


def _tell_all(moved: Sequence[Moved]) -> None:
    for change in moved:
        _tell(change.before, change.after)


def _tell(before: PrintJob | None, after: PrintJob) -> None:
    """Log what a person should know of the step from `before` (None: it was not known) to `after`."""
    identity, terminal = after.print_job_id, after.terminal
    known = {item.code for item in before.attention} if before else set()
    for item in after.attention:
        if item.code not in known:
            (log.error if item.code in ERRORS else log.warning)(
                "print.attention", print_job=identity, terminal=terminal, code=item.code, detail=item.detail
            )
    old = (before.decided_by, before.status) if before else (None, None)
    if after.decided_by is not None and old != (after.decided_by, after.status):
        (log.info if after.status is PrintStatus.COMPLETED else log.warning)(
            "print.outcome",
            print_job=identity,
            terminal=terminal,
            status=after.status,
            evidence=after.decided_by,
            code=after.error_code,
        )
