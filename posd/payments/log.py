"""Log new attentions and new outcomes of payments, whatever brought them: it listens to the hub."""

import structlog

from posd.payments.model import AttentionCode
from posd.payments.record import Moved
from posd.records.told import listener

log = structlog.get_logger("posd.payments")

#: Money may have moved otherwise than somebody believes: these are errors, all other attentions are warnings.
ERRORS = frozenset({AttentionCode.CONFLICTING_FINAL, AttentionCode.OUTCOME_CORRECTED})


def _tell(change: Moved) -> None:
    """Log what a person should know of a change."""
    before, after = change.before, change.after
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


#: Listens to the hub.
hear = listener(Moved, _tell)
