"""Log new attentions and new ends of print jobs, whatever brought them: it listens to the hub."""

import structlog

from posd.printing.model import PrintAttentionCode, PrintStatus
from posd.printing.rows import Moved
from posd.records.told import listener

log = structlog.get_logger("posd.printing")

#: The terminal contradicts itself: an error. All other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def _tell(change: Moved) -> None:
    """Log what a person should know of a change."""
    before, after = change.before, change.after
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


#: Listens to the hub.
hear = listener(Moved, _tell)
