"""Every metric: its name, its kind, its labels, and what it says. docs/metrics.md shows the same table.

A label has few values, and none that a stranger on the network could make up: terminals are those of the fleet, the
rest are words of posd's own. Counters start at 0 with the process.
"""

import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from posd.base.locks import Histogram
from posd.payments.entries import AbortAnswered
from posd.payments.model import Result, Transaction
from posd.payments.record import Moved
from posd.payments.wire import AbortAnswer, judge_abort
from posd.printing import record
from posd.records.model import Phase
from posd.storage.changes import Hub

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


# Counts payments and print jobs from the changes that the store makes known after each COMMIT.

#: Buckets of how long a payment takes, in seconds: a customer looks for the card, and types the PIN.
OUTCOME_BOUNDS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900)
#: The label of a terminal that is not in the fleet, and of an operation that no event names.
OTHER, UNKNOWN = "other", "unknown"


class Tally:
    """Numbers since the start of the process. `fleet`: the serials that may stand in a label."""

    def __init__(self, hub: Hub, fleet: Container[str]) -> None:
        self._fleet = fleet
        #: Open payments, and when this process started each (monotonic seconds), None where another did.
        self._open: dict[str, float | None] = {}
        self._open_prints: set[str] = set()
        self.started: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.outcome_seconds = {str(result): Histogram(OUTCOME_BOUNDS) for result in Result}
        self.aborts = Counter(dict.fromkeys(map(str, AbortAnswer), 0))
        self.prints_ended: Counter[tuple[str, str]] = Counter()
        hub.listen(self._take_payments, Moved)
        hub.listen(self._take_prints, record.Moved)

    def adopt(self, taken_over: Iterable[Transaction], jobs: Iterable[str]) -> None:
        """Take up what an earlier process left open."""
        for item in taken_over:
            if item.phase is not Phase.FINAL:
                self._open[item.client_transaction_id] = None
        self._open_prints.update(jobs)

    def _take_payments(self, changes: Sequence[Moved]) -> None:
        for change in changes:
            self._take_payment(change)

    def _take_payment(self, change: Moved) -> None:
        after, terminal = change.after, self._label(change.after.terminal)
        kind = after.type or UNKNOWN
        if change.before is None and not after.orphan:
            self.started[kind, terminal] += 1
            self._open[change.id] = time.monotonic()
        elif after.phase is not Phase.FINAL:
            self._open.setdefault(change.id, None)
        elif after.outcome is not None and change.id in self._open:
            result = after.outcome.result
            self.ended[result, kind, terminal] += 1
            if (began := self._open.pop(change.id)) is not None:
                self.outcome_seconds[result].observe(time.monotonic() - began)
        if isinstance(change.cause, AbortAnswered):
            self.aborts[judge_abort(change.cause.attempt)] += 1

    def _take_prints(self, changes: Sequence[record.Moved]) -> None:
        for change in changes:
            if change.phase != Phase.FINAL:
                self._open_prints.add(change.id)
            elif change.id in self._open_prints:
                self._open_prints.discard(change.id)
                self.prints_ended[change.status or "none", self._label(change.terminal)] += 1

    def _label(self, terminal: str | None) -> str:
        return terminal if terminal is not None and terminal in self._fleet else OTHER


# Prometheus' text exposition format, version 0.0.4.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: One value of a metric: the values of its labels in their order, and the number or the histogram.
Sample = tuple[tuple[str, ...], float | Histogram]
#: Of one metric: its name, and all its values.
Samples = tuple[str, Sequence[Sample]]


def render(samples: Iterator[Samples]) -> str:
    """Write all values as text, in the order of the table; a metric without any is left out."""
    found = dict(samples)
    lines: list[str] = []
    for name, family in FAMILIES.items():
        values = found.pop(name, ())
        if values:
            lines += _head(family)
            for labels, value in values:
                lines += _lines(family, labels, value)
    assert not found, found.keys()  # noqa: S101 - every metric stands in the table
    return "\n".join(lines) + "\n"


def _head(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"


def _lines(family: Family, labels: tuple[str, ...], value: float | Histogram) -> Iterator[str]:
    pairs = [f'{name}="{_escaped(text)}"' for name, text in zip(family.labels, labels, strict=True)]
    if not isinstance(value, Histogram):
        yield f"{family.name}{_braced(pairs)} {_number(value)}"
        return
    total = 0
    for bound, total in value.cumulative():
        le = "+Inf" if bound == float("inf") else _number(bound)
        bucket = _braced([*pairs, f'le="{le}"'])
        yield f"{family.name}_bucket{bucket} {total}"
    yield f"{family.name}_sum{_braced(pairs)} {_number(value.sum)}"
    yield f"{family.name}_count{_braced(pairs)} {total}"


def _braced(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
