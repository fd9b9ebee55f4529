"""Every metric of the daemon: name, kind, labels, and meaning. docs/reference/metrics.md shows the same table.

A label has few values: serials of the fleet, and posd's own words. No value comes from an unknown peer. Counters start
at 0 with the process.
"""

import sqlite3
from collections import Counter
from collections.abc import Container, Iterable, Mapping

import msgspec

from posd.base.clocks import monotonic
from posd.base.exposition import Family, Histogram, counter, gauge, histogram, process_families, table
from posd.payments import rows
from posd.payments.answers import AbortAnswer
from posd.payments.entries import AbortAnswered
from posd.payments.model import Result, Transaction
from posd.payments.record import TransactionChanged
from posd.printing.rows import PrintJobChanged
from posd.records.model import Phase
from posd.storage import changes

#: In the order of display.
FAMILIES: Mapping[str, Family] = table(
    gauge("posd_build_info", "The running version, and the schema of its database.", "version schema"),
    gauge("posd_health", "Each check of GET /v1/health: 0 ok, 1 degraded, 2 failing.", "check"),
    gauge(
        "posd_clock_unsure",
        "1 while posd does not trust the clock: it removes nothing and makes no certificate.",
    ),
    gauge("posd_config_refused", "1 if a changed configuration was refused and the earlier one is in use."),
    # Payments
    counter("posd_payments_started_total", "Payments that were recorded and started.", "type terminal"),
    counter(
        "posd_payments_ended_total",
        "Payments that got an outcome; a payment that opened again and ended again counts twice.",
        "result type terminal",
    ),
    counter("posd_start_refusals_total", "Starts that posd refused, by problem code.", "code"),
    histogram(
        "posd_payment_acknowledgement_seconds",
        "Time from the till's PUT to its response, for payments that the terminal acknowledged.",
    ),
    histogram(
        "posd_payment_outcome_seconds",
        "Time from the start to the outcome, for payments that this process started.",
        "result",
    ),
    gauge("posd_payments_open", "Payments without an outcome.", "phase"),
    gauge("posd_payments_open_oldest_seconds", "Age of the oldest payment without an outcome, 0 for none."),
    gauge("posd_payments_in_doubt_oldest_seconds", "Age of the oldest payment in doubt, 0 for none."),
    gauge("posd_attention", "Payments with an unacknowledged attention.", "code"),
    counter("posd_searches_total", "Queries to a terminal about a payment, by result.", "result"),
    counter("posd_aborts_total", "Aborts, by result.", "answer"),
    # Print jobs
    gauge("posd_print_jobs_open", "Print jobs that have not ended.", "phase"),
    counter(
        "posd_print_jobs_ended_total",
        "Print jobs that ended; status none: the terminal did not accept it.",
        "status terminal",
    ),
    gauge("posd_print_attention", "Print jobs with an unacknowledged attention.", "code"),
    counter("posd_print_polls_total", "Queries to a terminal about a print job.", "result"),
    # Webhooks and the listener
    counter(
        "posd_webhook_replies_total",
        "Responses to callbacks with a valid token, by HTTP status; other senders are in posd_listener_noise_total.",
        "channel code",
    ),
    histogram("posd_webhook_seconds", "From a callback's first byte to its answer, all on disk.", "channel"),
    counter(
        "posd_webhooks_repeated_total",
        "Callbacks received again, because the terminal did not get the earlier response.",
        "channel",
    ),
    counter("posd_listener_noise_total", "Connections and requests that were refused.", "kind"),
    counter(
        "posd_limit_reached_total",
        "Refusals at a limit of a terminal, a process, a user or the disk (docs/reference/resource-limits.md).",
        "limit",
    ),
    counter("posd_listener_absences_total", "Times that the listener was down too long while payments were open."),
    gauge(
        "posd_listener_away_payments",
        "Unsettled payments that were open while the listener was down too long.",
    ),
    gauge("posd_connections", "Open connections.", "listener"),
    # Streams
    gauge("posd_streams_open", "Event streams that are open.", "stream"),
    counter(
        "posd_streams_ended_total",
        "Event streams that ended, by reason; cut_off: the client read nothing for too long.",
        "stream reason",
    ),
    # Certificate
    gauge(
        "posd_certificate_expiry_timestamp_seconds",
        "End of the webhook listener's certificate, in seconds since 1970.",
    ),
    gauge("posd_certificate_trouble", "1 if the certificate on disk cannot be served, so an older one is in use."),
    gauge(
        "posd_certificate_refusals",
        "Refusals of the certificate by each device that refused it within a day; other: no known terminal.",
        "address",
    ),
    # Terminals
    gauge(
        "posd_terminal_reachable",
        "1 if a terminal can be reached, 0 if it cannot or no address of it is known.",
        "terminal",
    ),
    gauge(
        "posd_terminal_last_seen_timestamp_seconds",
        "Time of a terminal's last sign of life, in seconds since 1970; 0: none since the start.",
        "terminal",
    ),
    gauge(
        "posd_terminal_identity_conflict",
        "1 if several devices claim to be the terminal: nothing is sent to it.",
        "terminal",
    ),
    counter("posd_discovery_ignored_total", "Announcements over mDNS that are refused, or none of a terminal."),
    # Storage
    histogram("posd_storage_commit_seconds", "Duration of a COMMIT, until it was on disk."),
    histogram("posd_storage_commit_functions", "Number of writes in one COMMIT."),
    histogram("posd_storage_checkpoint_seconds", "How long the log was written back into the file; writes wait then."),
    gauge("posd_storage_waiting_writes", "Writes that wait for the next COMMIT."),
    gauge("posd_restore_unseen", "1 while new payments are refused until a person has confirmed a restore."),
    gauge("posd_witness_write_failed", "1 while the witness beside the database cannot be written."),
    gauge("posd_storage_write_failed", "1 if the newest write failed."),
    gauge("posd_storage_read_failed", "1 if the database cannot be read; its values are absent."),
    gauge("posd_quarantine_bodies", "Callbacks with a valid token that were refused, and kept."),
    gauge("posd_feed_newest_seq", "Number of the newest change in the feed."),
    gauge("posd_database_bytes", "Size of the database file."),
    gauge("posd_database_wal_bytes", "Size of its write-ahead log."),
    gauge("posd_disk_free_bytes", "Bytes free for posd on the database's file system."),
    gauge("posd_disk_size_bytes", "Size of that file system."),
    gauge(
        "posd_backup_last_success_timestamp_seconds",
        "Time of the newest backup beside the database, in seconds since 1970; absent if there is none.",
    ),
    # Process
    *process_families("posd"),
)


# Counts of payments and print jobs, from the changes after each COMMIT.

#: Bounds of the histogram of payment durations, in seconds. They allow for a customer who searches for the card and
#: types the PIN.
OUTCOME_BOUNDS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900)
#: Label of a terminal outside the fleet, and of an unknown operation.
OTHER, UNKNOWN = "other", "unknown"


class EventCounters:
    """Counts since the start of the process. `fleet`: the serials allowed in a label."""

    def __init__(self, fleet: Container[str]) -> None:
        self._fleet = fleet
        #: Open payments -> start by this process (monotonic seconds), or None if another process started the payment.
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
#: SQLite counts them on its thread, since attentions can accumulate for years.
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
    """Read the figures. Without a change since `known`, reuse the figures that only a change can alter."""
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
