"""Counts of the relay, and its metrics. docs/reference/metrics.md shows the same table."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from posd import __version__
from posd.base import process_metrics
from posd.base.exposition import Samples, counter, gauge, render, table
from posd.logs import output

#: In the order of display.
FAMILIES = table(
    gauge("posd_relay_build_info", "The version that runs.", "version"),
    gauge("posd_relay_connected", "1 while there is a connection to one of head office's servers."),
    counter("posd_relay_messages_total", "Messages that the stream has acknowledged.", "kind"),
    counter("posd_relay_changes_total", "Changes of the feed that are in them."),
    counter("posd_relay_bytes_total", "Their size."),
    counter("posd_relay_lost_changes_total", "Changes that were no longer in the feed and were never sent."),
    counter("posd_relay_overtaken_total", "Times another message of this lane came first, and it went on behind that."),
    counter("posd_relay_failures_total", "Times something was away, and it began anew after a pause.", "away"),
    gauge(
        "posd_relay_waiting_changes",
        "Changes that were not sent when the feed was read last; absent: it was not read yet.",
    ),
    gauge(
        "posd_relay_state_timestamp_seconds",
        "When the stream last took the word that all was sent, in seconds since 1970; absent: not since the start.",
    ),
    *process_metrics.families("posd_relay"),
)

#: Kinds of messages, and of unreachable parts.
KINDS = ("begin", "changes", "lost", "state")
AWAY = ("posd", "stream")


def _none_of(names: tuple[str, ...]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class RelayCounters:
    """Counts since the start of the process; times in seconds since 1970."""

    started: float = field(default_factory=time.time)
    connected: bool = False
    messages: Counter[str] = field(default_factory=lambda: _none_of(KINDS))
    changes: int = 0
    bytes: int = 0
    lost: int = 0
    overtaken: int = 0
    failures: Counter[str] = field(default_factory=lambda: _none_of(AWAY))
    waiting: int | None = None
    state_at: float | None = None

    async def text(self) -> str:
        """Return all metrics as text."""
        return render(FAMILIES, self._all())

    def _all(self) -> Iterator[Samples]:
        yield "posd_relay_build_info", [((__version__,), 1)]
        yield "posd_relay_connected", [((), self.connected)]
        yield "posd_relay_messages_total", [((kind,), count) for kind, count in self.messages.items()]
        yield "posd_relay_changes_total", [((), self.changes)]
        yield "posd_relay_bytes_total", [((), self.bytes)]
        yield "posd_relay_lost_changes_total", [((), self.lost)]
        yield "posd_relay_overtaken_total", [((), self.overtaken)]
        yield "posd_relay_failures_total", [((away,), count) for away, count in self.failures.items()]
        if self.waiting is not None:
            yield "posd_relay_waiting_changes", [((), self.waiting)]
        if self.state_at is not None:
            yield "posd_relay_state_timestamp_seconds", [((), round(self.state_at, 2))]
        yield from process_metrics.values("posd_relay", self.started, output.writer.dropped)
