"""Log new attentions and new outcomes of payments, whatever brought them: it listens to the hub."""

import asyncio
from collections.abc import Sequence

import structlog

from posd.payments.model import AttentionCode, Transaction
from posd.payments.record import Moved
from posd.storage.batch import Change

log = structlog.get_logger("posd.payments")

#: Money may have moved otherwise than somebody believes: these are errors, all other attentions are warnings.
ERRORS = frozenset({AttentionCode.CONFLICTING_FINAL, AttentionCode.OUTCOME_CORRECTED})


def hear(changes: Sequence[Change]) -> None:
    """Take the changes of one COMMIT, on the loop.

    Whoever waited for the COMMIT goes on first, and logs what it was about: then come its effects.
    """
    moved = [change for change in changes if isinstance(change, Moved)]
    if moved:
        asyncio.get_running_loop().call_soon(_tell_all, moved)


def _tell_all(moved: Sequence[Moved]) -> None:
    for change in moved:
        _tell(change.before, change.after)


def _tell(before: Transaction | None, after: Transaction) -> None:
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
