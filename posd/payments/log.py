"""The log lines that a change of a transaction deserves, wherever it came from: new attentions, a new outcome."""

import structlog

from posd.payments.model import AttentionCode, Transaction

log = structlog.get_logger("posd.payments")

#: Money may have moved otherwise than somebody believes: these are errors, all other attentions are warnings.
ERRORS = frozenset({AttentionCode.CONFLICTING_FINAL, AttentionCode.OUTCOME_CORRECTED})


def tell(before: Transaction | None, after: Transaction) -> None:
    """Log what a person should know of the step from `before` (None: it was not known) to `after`."""
    identity, terminal = after.client_transaction_id, after.terminal
    known = {item.code for item in before.attention} if before else set()
    for item in after.attention:
        if item.code not in known:
            (log.error if item.code in ERRORS else log.warning)(
                "payment.attention", transaction=identity, terminal=terminal, code=item.code, detail=item.detail
            )
    old, new = before.outcome if before else None, after.outcome
    if new is not None and (old is None or (old.result, old.status) != (new.result, new.status)):
        log.info(
            "payment.outcome",
            transaction=identity,
            terminal=terminal,
            result=new.result,
            evidence=new.evidence[0].kind,
        )
