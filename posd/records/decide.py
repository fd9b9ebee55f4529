"""What a person decides about a payment or a print job: audited, and never a proof."""

from collections.abc import Callable

import structlog

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.records.entries import DecisionEntry, tag
from posd.records.model import RecordState
from posd.records.table import R, RecordKind
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction

log = structlog.get_logger("posd.operators")


async def decide(
    kind: RecordKind[R], store: Store, identity: str, decision: DecisionEntry, work: Callable[[WriteTransaction], R]
) -> R:
    """Commit what `work` makes of a person's decision; return the record as it then stands. Raise Problem."""
    crash_point("operator.before_commit")
    try:
        after = await store.write(work)
    except (StorageUnavailable, CommitUncertain) as error:
        detail = f"cannot do it now: {error}; look at the {kind.noun}, and try again. Check the disk"
        raise Problem("storage_unavailable", detail) from error
    crash_point("operator.committed")
    log.info(
        f"{kind.word}.operator",
        **kind.named(identity),
        terminal=after.terminal,
        kind=tag(decision),
        uid=decision.uid,
        code=getattr(decision, "code", None),
        result=getattr(decision, "result", None),
    )
    return after


def require_attention(record: RecordState, code: str, identity: str) -> None:
    """Raise Problem not_found where an attention is not open."""
    if record.attention_of(code) is None:
        raise Problem("not_found", f"attention {code} is not open on {identity}")
