"""Metrics of payments and print jobs: counts since the start of the process, and counts in the database."""

import sqlite3
from collections import Counter
from collections.abc import Container, Iterable

import msgspec

from posd.base.clocks import monotonic
from posd.base.exposition import Histogram
from posd.payments import rows
from posd.payments.answers import AbortAnswer
from posd.payments.entries import AbortAnswered
from posd.payments.model import Result, Transaction
from posd.payments.record import TransactionChanged
from posd.printing.rows import PrintJobChanged
from posd.records.model import Phase
from posd.storage import changes

#: Limits of the histogram of payment durations, in seconds. The limits include the time in which a customer finds the
#: card and enters the PIN.
OUTCOME_BOUNDS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900)
#: Label of a terminal outside the fleet, and of an unknown operation.
OTHER, UNKNOWN = "other", "unknown"


class EventCounters:
    """Counts since the start of the process, from the changes after each COMMIT.

    `fleet`: the serials allowed in a label.
    """

    def __init__(self, fleet: Container[str]) -> None:
        self._fleet = fleet
        #: Open payment -> time of its start (monotonic seconds), or None if another process started it.
        self._open: dict[str, float | None] = {}
        self._open_prints: set[str] = set()
        self.started: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.outcome_seconds = {str(result): Histogram(OUTCOME_BOUNDS) for result in Result}
        self.aborts = Counter(dict.fromkeys(map(str, AbortAnswer), 0))
        self.prints_ended: Counter[tuple[str, str]] = Counter()

    def adopt(self, taken_over: Iterable[Transaction], jobs: Iterable[str]) -> None:
        """Add the open payments and jobs of an earlier process."""
        for item in taken_over:
            if item.phase is not Phase.FINAL:
                self._open[item.client_transaction_id] = None
        self._open_prints.update(jobs)

    def count_payment(self, change: TransactionChanged) -> None:
        """Count a change of a payment."""
        after, kind = change.after, change.after.type or UNKNOWN
        if change.before is None and not after.orphan:
            self.started[kind, self._label(after.terminal)] += 1
            self._open[change.id] = monotonic()
        elif after.phase is not Phase.FINAL:
            self._open.setdefault(change.id, None)
        elif after.outcome is not None and change.id in self._open:
            result = after.outcome.result
            self.ended[result, kind, self._label(after.terminal)] += 1
            if (began := self._open.pop(change.id)) is not None:
                self.outcome_seconds[result].observe(monotonic() - began)
        if isinstance(change.cause, AbortAnswered):
            self.aborts[change.cause.answer] += 1

    def count_print(self, change: PrintJobChanged) -> None:
        """Count a change of a print job."""
        if change.phase != Phase.FINAL:
            self._open_prints.add(change.id)
        elif change.id in self._open_prints:
            self._open_prints.discard(change.id)
            self.prints_ended[change.status or "none", self._label(change.terminal)] += 1

    def _label(self, terminal: str | None) -> str:
        return terminal if terminal is not None and terminal in self._fleet else OTHER


_OPEN = (
    "SELECT phase, count(*), min(created_at) FROM transactions INDEXED BY transactions_open"  # noqa: S608 - a constant
    f" WHERE {rows.OPEN} GROUP BY phase"
)
_OPEN_PRINTS = "SELECT phase, count(*) FROM print_jobs INDEXED BY print_jobs_open WHERE phase <> 'final' GROUP BY phase"
#: SQL that counts attentions by code. The query runs on the database thread, because attentions can accumulate for
#: years.
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


def read_gauges(db: sqlite3.Connection, known: DatabaseGauges | None = None) -> DatabaseGauges:
    """Read the gauges. If the feed has no change since `known`, read only the number of quarantined bodies again."""
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
