"""Every metric: its name, its kind, its labels, and what it says. docs/metrics.md shows the same table.

A label has few values, and none that a stranger on the network could make up: terminals are those of the fleet, the
rest are words of posd's own. Counters start at 0 with the process.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]


class Family(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _table(*families: Family) -> Mapping[str, Family]:
    return {family.name: family for family in families}


#: In the order in which they are shown.
FAMILIES: Mapping[str, Family] = _table(
    Family("posd_build_info", "gauge", "The version that runs, and the schema of its database.", ("version", "schema")),
    Family("posd_health", "gauge", "Each check of GET /v1/health: 0 ok, 1 degraded, 2 failing.", ("check",)),
    # Payments
    Family("posd_payments_started_total", "counter", "Payments that were recorded and started.", ("type", "terminal")),
    Family(
        "posd_payments_ended_total",
        "counter",
        "Payments that got an outcome; one that opened again and ended again counts twice.",
        ("result", "type", "terminal"),
    ),
    Family("posd_start_refusals_total", "counter", "Starts that posd refused, by problem code.", ("code",)),
    Family(
        "posd_payment_acknowledgement_seconds",
        "histogram",
        "From the till's PUT to its answer, of payments that the terminal acknowledged.",
    ),
    Family(
        "posd_payment_outcome_seconds",
        "histogram",
        "From the start to the outcome, of payments that this process started.",
        ("result",),
    ),
    Family("posd_payments_open", "gauge", "Payments that have no outcome.", ("phase",)),
    Family("posd_payments_open_oldest_seconds", "gauge", "Age of the oldest payment without an outcome, 0 for none."),
    Family("posd_payments_in_doubt_oldest_seconds", "gauge", "Age of the oldest payment in doubt, 0 for none."),
    Family("posd_attention", "gauge", "Payments with an attention that nobody has acknowledged.", ("code",)),
    Family("posd_searches_total", "counter", "Times a terminal was asked for a payment, by what came.", ("result",)),
    Family("posd_aborts_total", "counter", "Aborts, by what became of them.", ("answer",)),
    # Print jobs
    Family("posd_print_jobs_open", "gauge", "Print jobs that have not ended.", ("phase",)),
    Family(
        "posd_print_jobs_ended_total",
        "counter",
        "Print jobs that ended; status none: the terminal did not take it.",
        ("status", "terminal"),
    ),
    Family("posd_print_attention", "gauge", "Print jobs with an attention that nobody has acknowledged.", ("code",)),
    Family("posd_print_polls_total", "counter", "Times a terminal was asked for a print job.", ("result",)),
    # Webhooks and the listener
    Family(
        "posd_webhook_replies_total",
        "counter",
        "Answers to callbacks with a valid token, by HTTP status; strangers are in posd_listener_noise_total.",
        ("channel", "code"),
    ),
    Family(
        "posd_webhook_seconds", "histogram", "From a callback's first byte to its answer, all on disk.", ("channel",)
    ),
    Family(
        "posd_webhooks_repeated_total",
        "counter",
        "Callbacks that came again: the terminal had not heard the answer to an earlier one.",
        ("channel",),
    ),
    Family("posd_listener_noise_total", "counter", "Connections and requests that were turned away.", ("kind",)),
    Family("posd_listener_absences_total", "counter", "Times the listener was away too long with payments open."),
    Family(
        "posd_listener_away_payments",
        "gauge",
        "Payments that were open while the listener was away too long, and are not settled since.",
    ),
    Family("posd_connections", "gauge", "Open connections.", ("listener",)),
    # Streams
    Family("posd_streams_open", "gauge", "Event streams that are open.", ("stream",)),
    Family(
        "posd_streams_ended_total",
        "counter",
        "Event streams that ended, by why: cut_off is a client that took nothing for too long.",
        ("stream", "reason"),
    ),
    # Certificate
    Family(
        "posd_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the certificate that terminals are shown ends, in seconds since 1970.",
    ),
    Family(
        "posd_certificate_trouble", "gauge", "1 where the certificate on the disk cannot be served: an older one is."
    ),
    Family(
        "posd_certificate_refusals",
        "gauge",
        "How often a device refused the certificate, of those that did within a day; other: no known terminal.",
        ("address",),
    ),
    # Terminals
    Family("posd_terminal_reachable", "gauge", "1 where a terminal can be reached; absent: not known.", ("terminal",)),
    Family(
        "posd_terminal_last_seen_timestamp_seconds",
        "gauge",
        "The last sign of life of a terminal, in seconds since 1970; absent: none since the start.",
        ("terminal",),
    ),
    # Storage
    Family("posd_storage_commit_seconds", "histogram", "How long a COMMIT took, until it was on disk."),
    Family("posd_storage_commit_functions", "histogram", "How many writes one COMMIT carried."),
    Family("posd_storage_waiting_writes", "gauge", "Writes that wait for the next COMMIT."),
    Family("posd_storage_write_failed", "gauge", "1 where the newest write failed."),
    Family("posd_storage_read_failed", "gauge", "1 where the database cannot be read; what it would tell is absent."),
    Family("posd_quarantine_bodies", "gauge", "Callbacks that were refused though authentic, and kept."),
    Family("posd_feed_newest_seq", "gauge", "The number of the newest change in the feed."),
    Family("posd_database_bytes", "gauge", "Size of the database file."),
    Family("posd_database_wal_bytes", "gauge", "Size of its write-ahead log."),
    Family("posd_disk_free_bytes", "gauge", "What is free for posd where the database lies."),
    Family("posd_disk_size_bytes", "gauge", "The size of that file system."),
    Family(
        "posd_backup_last_success_timestamp_seconds",
        "gauge",
        "When the newest backup beside the database was made, in seconds since 1970; absent: there is none.",
    ),
    # Process: under names of posd's own, since node_exporter has the usual ones for itself beside a text file
    Family("posd_process_resident_memory_bytes", "gauge", "Memory of the process."),
    Family("posd_process_cpu_seconds_total", "counter", "Processor time of the process."),
    Family("posd_process_start_time_seconds", "gauge", "When the process started, in seconds since 1970."),
    Family("posd_process_open_fds", "gauge", "Open file descriptors."),
    Family("posd_process_max_fds", "gauge", "How many it may open."),
)
