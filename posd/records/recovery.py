"""What a daemon does with the records that an earlier one left open: nothing is sent again."""

from collections.abc import Callable
from operator import attrgetter

import structlog

from posd.base.crashpoints import crash_point
from posd.records.table import R, RecordKind
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction

log = structlog.get_logger("posd.recovery")

_status = attrgetter("status")  # a field of the one kind, and derived in the other


async def take_over(
    kind: RecordKind[R], store: Store, crash: str, work: Callable[[WriteTransaction], list[R]]
) -> list[R]:
    """Commit what `work` makes of the open records; return and log them. `crash` begins the crash points' names."""
    crash_point(f"{crash}.before_commit")
    taken_over = await store.write(work)
    crash_point(f"{crash}.committed")
    for item in taken_over:
        log.info(
            f"{kind.word}.taken_over",
            **kind.named(kind.table.id_of(item)),
            terminal=item.terminal,
            phase=item.phase,
            status=_status(item),
        )
    return taken_over
