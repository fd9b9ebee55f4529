"""Collector: it fetches messages, stores them, and acknowledges those on disk."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import structlog
from nats.aio.msg import Msg

from posd import __version__
from posd.base.exposition import (
    Histogram,
    Samples,
    counter,
    gauge,
    histogram,
    process_families,
    process_values,
    render,
    table,
)
from posd.collect import questions, queue
from posd.collect.questions import FleetSummary
from posd.collect.queue import StreamConsumer
from posd.collect.store import CollectorStore, ParsedBatch, WrongTables, parsed
from posd.config import Config
from posd.config.schema import CollectConfig
from posd.logs import output
from posd.relay import process
from posd.relay.process import Pauses
from posd.relay.stream import ServerTooOld, StreamAway

# Counters of a collector, values of all lanes, and the metrics of both (table: docs/reference/metrics.md).
#
# No label has a lane: a lane could invent any number of them. The tables name the lanes.

#: Buckets of the duration of a batch in PostgreSQL, in seconds.
STORE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

#: In the order of display.
FAMILIES = table(
    gauge("posd_collect_build_info", "The version that runs.", "version"),
    gauge("posd_collect_connected", "1 while there is a connection to a NATS server and one to PostgreSQL."),
    counter("posd_collect_messages_total", "Messages that were stored or set aside, and acknowledged."),
    counter(
        "posd_collect_unreadable_total",
        "Unusable messages, and single unusable changes, that were set aside.",
    ),
    counter("posd_collect_failures_total", "Times PostgreSQL or the stream could not be reached.", "away"),
    histogram("posd_collect_store_seconds", "Time of PostgreSQL for a batch of messages, with its commit."),
    gauge(
        "posd_collect_waiting_messages",
        "Messages of the stream that no collector has acknowledged; absent if not known.",
    ),
    # Values of all lanes from the tables, the same for each collector.
    gauge("posd_fleet_readable", "1 if the tables can be read; otherwise their values are absent."),
    gauge("posd_fleet_lanes", "Lanes that have ever sent a message."),
    gauge("posd_fleet_lanes_silent", "Lanes that have sent nothing for ten minutes."),
    gauge("posd_fleet_lanes_away", "Lanes that have sent nothing for a day."),
    gauge("posd_fleet_lanes_incomplete", "Lanes with missing changes; rows are not counted."),
    gauge("posd_fleet_lanes_health", "Lanes by the last health that posd reported; other: nothing yet.", "status"),
    gauge("posd_fleet_payments_open", "Payments without an outcome, by the lanes' last messages."),
    gauge("posd_fleet_payments_in_doubt", "Payments in doubt: the terminal may or may not have them."),
    gauge("posd_fleet_attention", "Payments and print jobs that need a person.", "code"),
    gauge("posd_fleet_lost_changes", "Changes that are lost."),
    gauge("posd_fleet_unreadable_messages", "Messages, and single changes, that were set aside."),
    *process_families("posd_collect"),
)

#: Kinds of unreachable parts.
AWAY = ("postgresql", "stream")


@dataclass(slots=True)
class CollectorCounters:
    """Counters since the start of the process: messages, and unusable ones among them."""

    messages: int = 0
    unreadable: int = 0
    connected: bool = False
    failures: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(AWAY, 0)))
    store_seconds: Histogram = field(default_factory=lambda: Histogram(STORE_BOUNDS))
    started: float = field(default_factory=time.time)


def metrics_text(counts: CollectorCounters, waiting: int | None, fleet: FleetSummary | None) -> str:
    """Return all metrics as text; None for unknown values."""
    return render(FAMILIES, _all(counts, waiting, fleet))


def _all(counts: CollectorCounters, waiting: int | None, fleet: FleetSummary | None) -> Iterator[Samples]:
    yield "posd_collect_build_info", {__version__: 1}
    yield "posd_collect_connected", counts.connected
    yield "posd_collect_messages_total", counts.messages
    yield "posd_collect_unreadable_total", counts.unreadable
    yield "posd_collect_failures_total", counts.failures
    yield "posd_collect_store_seconds", counts.store_seconds
    yield "posd_collect_waiting_messages", waiting
    yield "posd_fleet_readable", fleet is not None
    if fleet is not None:
        yield "posd_fleet_lanes", fleet.lanes
        yield "posd_fleet_lanes_silent", fleet.silent
        yield "posd_fleet_lanes_away", fleet.away
        yield "posd_fleet_lanes_incomplete", fleet.incomplete
        yield "posd_fleet_lanes_health", fleet.health
        yield "posd_fleet_payments_open", fleet.open
        yield "posd_fleet_payments_in_doubt", fleet.in_doubt
        yield "posd_fleet_attention", fleet.attention
        yield "posd_fleet_lost_changes", fleet.lost
        yield "posd_fleet_unreadable_messages", fleet.unreadable
    yield from process_values("posd_collect", counts.started, output.writer.dropped)


log = structlog.get_logger("posd.collect")

#: Seconds before the next attempt after a failure: the first, and the most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 30.0
#: Seconds without a message after which the stream counts as fully read.
QUIET_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Collector:
    """One collector; any number may run. `show` is called with the counters after each batch."""

    config: CollectConfig
    show: Callable[[CollectorCounters], None] = lambda _: None
    counts: CollectorCounters = field(default_factory=CollectorCounters)
    _source: StreamConsumer | None = None

    async def run(self) -> None:
        """Collect until cancelled. Raise WrongTables."""
        pauses = Pauses(FIRST_PAUSE, MOST_PAUSE)
        while True:
            pauses.begin()
            try:
                await self.once(forever=True)
            except (StreamAway, psycopg.Error) as error:
                self.counts.failures["stream" if isinstance(error, StreamAway) else "postgresql"] += 1
                wait, words = pauses.draw(), words_of(error)
                if pauses.is_news(words):
                    log.warning("collect.waiting", error=words, retry_s=round(wait, 1))
                await asyncio.sleep(wait)

    async def once(self, *, forever: bool = False, from_start: bool = False) -> CollectorCounters:
        """Store all messages; return the counts. Raise WrongTables, StreamAway, psycopg.Error."""
        async with (
            await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection,
            queue.connected(self.config) as source,
        ):
            store = CollectorStore(connection)
            await store.prepare()
            if from_start:
                await source.begin_again()
            if forever:
                log.info("collect.connected", host=source.server, database=connection.info.dbname)
                if source.old is not None:
                    log.warning("collect.old_server", version=source.old)
            self._source, self.counts.connected = source, True
            try:
                await self._take(source, store, forever)
            finally:
                self._source, self.counts.connected = None, False
        return self.counts

    async def _take(self, source: StreamConsumer, store: CollectorStore, forever: bool) -> None:
        """Store batch after batch; the next one is fetched and read while PostgreSQL stores the previous one."""
        next_one = asyncio.ensure_future(self._next(source, forever))
        try:
            while True:
                messages, batch = await next_one
                next_one = asyncio.ensure_future(self._next(source, forever))
                if messages:
                    await self._store(source, store, messages, batch, forever)
                elif not forever and await source.left() == 0:
                    return
        finally:
            next_one.cancel()
            await asyncio.gather(next_one, return_exceptions=True)

    @staticmethod
    async def _next(source: StreamConsumer, forever: bool) -> tuple[list[Msg], ParsedBatch]:
        messages = await source.take(queue.WAIT_SECONDS if forever else QUIET_SECONDS)
        return messages, parsed([queue.read(message) for message in messages])

    async def _store(
        self, source: StreamConsumer, store: CollectorStore, messages: list[Msg], batch: ParsedBatch, forever: bool
    ) -> None:
        counts, began = self.counts, time.monotonic()
        unreadable = await store.write(batch)
        counts.store_seconds.observe(time.monotonic() - began)
        await source.done(messages)
        counts.messages += len(messages)
        counts.unreadable += unreadable
        if unreadable and forever:
            log.warning("collect.unreadable", count=unreadable)
        self.show(counts)

    async def metrics(self) -> str:
        """Return the metrics as text: the counters, and values of the tables, read on a separate connection."""
        waiting, fleet = None, None
        if self._source is not None:
            with suppress(StreamAway):
                waiting = await self._source.left()
        with suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection:
                fleet = await questions.fleet(connection)
        return metrics_text(self.counts, waiting, fleet)


def words_of(error: Exception) -> str:
    """Return an error as one line."""
    return " ".join(str(error).split()) or type(error).__name__


# Collector as a process that runs until a signal.

EXIT_DONE = 0
EXIT_CONFIGURATION = 2


def run(config: Config) -> int:
    """Collect until SIGTERM or SIGINT; return the exit code."""
    return process.run(_run(config), config.logging.level)


async def _run(config: Config) -> int:
    collector = Collector(config.collect)
    try:
        async with process.served(config.collect.metrics_listen, collector.metrics):
            await collector.run()
    except asyncio.CancelledError:  # cancelled by a signal
        log.info("collect.stopped")
    except (WrongTables, ServerTooOld) as error:
        log.error("collect.refused", error=str(error))  # noqa: TRY400 - it is the whole story
        return EXIT_CONFIGURATION
    return EXIT_DONE
