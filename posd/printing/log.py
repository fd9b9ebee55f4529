"""The log lines that a change of a print job deserves, wherever it came from: new attentions, a new end."""

import structlog

from posd.printing.model import PrintAttentionCode, PrintJob, PrintStatus

log = structlog.get_logger("posd.printing")

#: The terminal contradicts itself: an error. All other attentions are warnings.
ERRORS = frozenset({PrintAttentionCode.CONFLICTING_FINAL})


def tell(before: PrintJob | None, after: PrintJob) -> None:
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
