"""Counts of a collector, values of the fleet, and the metrics of both (table: docs/reference/metrics.md).

No label has a lane: a lane could invent any number of them. The tables name the lanes.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from posd import __version__
from posd.base import process_metrics
from posd.base.exposition import Histogram, Samples, counter, gauge, histogram, render, table
from posd.collect.questions import FleetSummary
from posd.logs import output

#: Buckets of the duration of a batch in PostgreSQL, in seconds.
STORE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

#: In the order of display.
FAMILIES = table(
    gauge("posd_collect_build_info", "The version that runs.", "version"),
    gauge("posd_collect_connected", "1 while there is a connection to a NATS server and one to PostgreSQL."),
    counter("posd_collect_messages_total", "Messages that were stored or put aside, and acknowledged."),
    counter(
        "posd_collect_unreadable_total",
        "Messages, and single changes, that were put aside, since they could not be used.",
    ),
    counter("posd_collect_failures_total", "Times something was away, and it began anew after a pause.", "away"),
    histogram("posd_collect_store_seconds", "How long PostgreSQL took for a batch of messages, with its commit."),
    gauge(
        "posd_collect_waiting_messages",
        "Messages of the stream that no collector has acknowledged; absent: it is not known.",
    ),
    # Values of all lanes from the tables: the same from each collector
    gauge("posd_fleet_readable", "1 where the tables can be read; what they would tell is absent otherwise."),
    gauge("posd_fleet_lanes", "Lanes that were ever heard of."),
    gauge("posd_fleet_lanes_silent", "Lanes of which nothing was heard for ten minutes."),
    gauge("posd_fleet_lanes_away", "Lanes of which nothing was heard for a day."),
    gauge("posd_fleet_lanes_incomplete", "Lanes of which changes are missing, rows not counted."),
    gauge("posd_fleet_lanes_health", "Lanes by what posd last said of its health; other: nothing yet.", "status"),
    gauge("posd_fleet_payments_open", "Payments without an outcome, by what the lanes last said."),
    gauge("posd_fleet_payments_in_doubt", "Payments of which it is not known whether the terminal has them."),
    gauge("posd_fleet_attention", "Payments and print jobs that a person should look at.", "code"),
    gauge("posd_fleet_lost_changes", "Changes that no one has any more."),
    gauge("posd_fleet_unreadable_messages", "Messages, and single changes, that were put aside."),
    *process_metrics.families("posd_collect"),
)

#: Kinds of unreachable parts.
AWAY = ("postgresql", "stream")


@dataclass(slots=True)
class CollectorCounters:
    """Counts since the start of the process: messages, and unusable ones among them."""

    messages: int = 0
    unreadable: int = 0
    connected: bool = False
    failures: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(AWAY, 0)))
    store_seconds: Histogram = field(default_factory=lambda: Histogram(STORE_BOUNDS))
    started: float = field(default_factory=time.time)


def text(counts: CollectorCounters, waiting: int | None, fleet: FleetSummary | None) -> str:
    """Return all metrics as text; None for unknown values."""
    return render(FAMILIES, _all(counts, waiting, fleet))


def _all(counts: CollectorCounters, waiting: int | None, fleet: FleetSummary | None) -> Iterator[Samples]:
    yield "posd_collect_build_info", [((__version__,), 1)]
    yield "posd_collect_connected", [((), counts.connected)]
    yield "posd_collect_messages_total", [((), counts.messages)]
    yield "posd_collect_unreadable_total", [((), counts.unreadable)]
    yield "posd_collect_failures_total", [((away,), count) for away, count in counts.failures.items()]
    yield "posd_collect_store_seconds", [((), counts.store_seconds)]
    if waiting is not None:
        yield "posd_collect_waiting_messages", [((), waiting)]
    yield "posd_fleet_readable", [((), fleet is not None)]
    if fleet is not None:
        yield "posd_fleet_lanes", [((), fleet.lanes)]
        yield "posd_fleet_lanes_silent", [((), fleet.silent)]
        yield "posd_fleet_lanes_away", [((), fleet.away)]
        yield "posd_fleet_lanes_incomplete", [((), fleet.incomplete)]
        yield "posd_fleet_lanes_health", [((status,), count) for status, count in fleet.health.items()]
        yield "posd_fleet_payments_open", [((), fleet.open)]
        yield "posd_fleet_payments_in_doubt", [((), fleet.in_doubt)]
        yield "posd_fleet_attention", [((code,), count) for code, count in fleet.attention.items()]
        yield "posd_fleet_lost_changes", [((), fleet.lost)]
        yield "posd_fleet_unreadable_messages", [((), fleet.unreadable)]
    yield from process_metrics.values("posd_collect", counts.started, output.writer.dropped)
