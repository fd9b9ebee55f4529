"""Numbers of open records and attentions, for the metrics, the status and the feed."""

import sqlite3

import msgspec

from posd.payments import rows
from posd.storage import changes

_OPEN = (
    "SELECT phase, count(*), min(created_at) FROM transactions INDEXED BY transactions_open"  # noqa: S608 - a constant
    f" WHERE {rows.OPEN} GROUP BY phase"
)
_OPEN_PRINTS = "SELECT phase, count(*) FROM print_jobs INDEXED BY print_jobs_open WHERE phase <> 'final' GROUP BY phase"
#: Counted by SQLite, off the loop: attentions can pile up for years.
_ATTENTION = (
    "SELECT json_extract(a.value, '$.code'), count(*) FROM transactions INDEXED BY transactions_attention,"
    " json_each(attention) a WHERE attention <> '[]' GROUP BY 1"
)
_PRINT_ATTENTION = _ATTENTION.replace("transactions", "print_jobs")


class DatabaseGauges(msgspec.Struct, frozen=True):
    """Open payments by phase, the oldest `created_at` of each phase, attentions by code, bodies in quarantine."""

    seq: int
    open: dict[str, int]
    oldest: dict[str, str]
    attention: dict[str, int]
    open_prints: dict[str, int]
    print_attention: dict[str, int]
    quarantined: int


def read(db: sqlite3.Connection, known: DatabaseGauges | None = None) -> DatabaseGauges:
    """Read the figures; without a change since `known`, reuse all that only changes affect."""
    seq = changes.newest_seq(db)
    quarantined = db.execute("SELECT count(*) FROM quarantine").fetchone()[0]
    if known is not None and known.seq == seq:
        return msgspec.structs.replace(known, quarantined=quarantined)
    opened = db.execute(_OPEN).fetchall()
    return DatabaseGauges(
        seq=seq,
        open={phase: count for phase, count, _ in opened},
        oldest={phase: at for phase, _, at in opened},
        attention=dict(db.execute(_ATTENTION).fetchall()),
        open_prints=dict(db.execute(_OPEN_PRINTS).fetchall()),
        print_attention=dict(db.execute(_PRINT_ATTENTION).fetchall()),
        quarantined=quarantined,
    )
