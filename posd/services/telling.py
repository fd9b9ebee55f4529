"""The log lines that a change of a transaction deserves, wherever it came from: new attentions, a new outcome."""

import structlog

from posd.core.transactions import Transaction

log = structlog.get_logger("posd.payments")


def tell(before: Transaction | None, after: Transaction) -> None:
    """Log what a person should know of the step from `before` (None: it was not known) to `after`."""
    identity, terminal = after.client_transaction_id, after.terminal
    known = {item.code for item in before.attention} if before else set()
    for item in after.attention:
        if item.code not in known:
            log.warning(
                "payment.attention", transaction=identity, terminal=terminal, code=item.code, detail=item.detail
            )
    outcome = after.outcome
    if outcome is not None and (before is None or before.outcome != outcome):
        log.info(
            "payment.outcome",
            transaction=identity,
            terminal=terminal,
            result=outcome.result,
            evidence=outcome.evidence[0].kind,
        )
