"""Shared code of the use cases of payments and print jobs."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
import structlog

from posd.base import clocks
from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.records.model import DecisionEntry, RecordState, tag
from posd.records.quotas import Quotas
from posd.records.table import R, RecordKind
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.storage.marks import MissingRecords
from posd.storage.store import Store
from posd.terminals.fleet import Fleet

log = structlog.get_logger("posd.records")

#: Function that returns the period in which a restore may have lost records, or None.
Missing = Callable[[], MissingRecords | None]


class CallsInFlight:
    """Counter of open calls to terminals, by transaction.

    The counter is changed on the event loop. Code inside a commit reads it too.
    """

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    @contextmanager
    def call(self, client_transaction_id: str) -> Iterator[None]:
        """Count a call as open during the block."""
        self._calls[client_transaction_id] += 1
        try:
            yield
        finally:
            self._calls[client_transaction_id] -= 1
            if not self._calls[client_transaction_id]:
                del self._calls[client_transaction_id]

    def of(self, client_transaction_id: str) -> int:
        """Return the number of open calls of that transaction."""
        return self._calls.get(client_transaction_id, 0)


class ServiceParts(msgspec.Struct, eq=False):
    """Shared parts of the use cases. Tests may omit the parts with a default."""

    store: Store
    fleet: Fleet
    now: Callable[[], datetime]
    outstanding: CallsInFlight = msgspec.field(default_factory=CallsInFlight)
    quotas: Quotas = msgspec.field(default_factory=Quotas)
    #: Returns a random number from 0 to 1, for jitter.
    chance: Callable[[], float] = lambda: 0.5
    #: Seconds since the boot, including sleep.
    elapsed: Callable[[], float] = clocks.elapsed
    #: Seconds of the monotonic clock.
    seconds: Callable[[], float] = clocks.monotonic
    #: Returns why the wall clock is not trusted now, or None.
    clock_doubt: Callable[[], str | None] = lambda: None
    #: Raises Problem if a restore may have lost the record of an unknown id (`upkeep.restore_guard`).
    refuse_unseen: Callable[[], None] = lambda: None
    #: Returns the period in which a restore may have lost records, or None.
    missing: Missing = lambda: None


class RecordService:
    """Base of the use cases."""

    def __init__(self, parts: ServiceParts) -> None:
        self._store = parts.store
        self._fleet = parts.fleet
        self._now = parts.now
        self._outstanding = parts.outstanding
        self._quotas = parts.quotas


# Decisions of an operator. Decisions are audited, and are never a proof.


@contextmanager
def storage_problem(detail: str) -> Iterator[None]:
    """Raise Problem storage_unavailable in place of an error of the store. The error replaces `{error}` in `detail`."""
    try:
        yield
    except (StorageUnavailable, CommitUncertain) as error:
        raise Problem("storage_unavailable", detail.replace("{error}", str(error))) from error


async def decide(
    kind: RecordKind[R, Any],
    store: Store,
    identity: str,
    decision: DecisionEntry,
    work: Callable[[WriteTransaction], R],
) -> R:
    """Commit `work`, which applies an operator's decision. Return the changed record. Raise Problem."""
    crash_point("operator.before_commit")
    with storage_problem(f"not possible now: {{error}}; check the {kind.noun}, and try again. Check the disk"):
        after = await store.write(work)
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
    """Raise Problem not_found if the attention is not open."""
    if record.attention_of(code) is None:
        raise Problem("not_found", f"attention {code} is not open on {identity}")


# Recovery of the records that an earlier daemon left open. Nothing is sent again.


async def take_over(
    kind: RecordKind[R, Any], store: Store, crash: str, work: Callable[[WriteTransaction], list[R]]
) -> list[R]:
    """Commit `work`, which recovers and returns the open records. Log and return these records.

    `crash`: prefix of the names of the crash points.
    """
    crash_point(f"{crash}.before_commit")
    taken_over = await store.write(work)
    crash_point(f"{crash}.committed")
    for item in taken_over:
        log.info(
            f"{kind.word}.taken_over",
            **kind.named(kind.id_of(item)),
            terminal=item.terminal,
            phase=item.phase,
            status=getattr(item, "status", None),
        )
    return taken_over
