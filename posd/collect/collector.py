"""Collector: fetches messages from the stream of all lanes, stores them, and acknowledges them.

All collectors share one durable consumer of the stream.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain
from typing import Final

import psycopg
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, DiscardPolicy, StreamConfig
from nats.js.errors import NotFoundError

from posd.base.exposition import Histogram, process_table, render, table
from posd.collect import questions
from posd.collect.questions import FleetSummary
from posd.collect.reading import LaneMessage
from posd.collect.store import Batch, CollectorStore, parsed
from posd.config import Config
from posd.config.schema import CollectConfig
from posd.relay import process
from posd.relay.messages import OperatorNeeded
from posd.relay.process import EXIT_CONFIGURATION, EXIT_DONE, Pauses
from posd.relay.stream import NatsClient, StreamAway, client_of

# Metrics of the collector and of all lanes. docs/reference/metrics.md has the same table.
#
# No label contains a lane's name, because lanes could send any number of names. The tables in PostgreSQL have the
# lanes.

#: Buckets for the time in which PostgreSQL stores a batch, in seconds.
STORE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

#: Metrics in the order of display: kind, name, labels (- for none), meaning.
_TABLE = """
gauge posd_collect_build_info version The version that runs.
gauge posd_collect_connected - 1 while there is a connection to a NATS server and one to PostgreSQL.
counter posd_collect_messages_total - Messages that were stored, or set aside as unusable, and acknowledged.
counter posd_collect_unreadable_total - Unusable messages, and single unusable changes, that were set aside.
counter posd_collect_failures_total away Times that PostgreSQL or the stream could not be reached.
histogram posd_collect_store_seconds - Time of PostgreSQL for a batch of messages, with its commit.
gauge posd_collect_waiting_messages - Messages of the stream that no collector has acknowledged; absent if not known.
gauge posd_fleet_readable - 1 if the tables can be read; otherwise their values are absent.
gauge posd_fleet_lanes - Lanes that have ever sent a message.
gauge posd_fleet_lanes_silent - Lanes that have sent nothing for ten minutes.
gauge posd_fleet_lanes_away - Lanes that have sent nothing for a day.
gauge posd_fleet_lanes_incomplete - Lanes with missing changes, by the stored progress; not every row is examined.
gauge posd_fleet_lanes_health status Lanes by the health that posd reported last; other: not reported yet.
gauge posd_fleet_payments_open - Payments without an outcome, by the lanes' last messages.
gauge posd_fleet_payments_in_doubt - Payments in doubt: the terminal may or may not have them.
gauge posd_fleet_attention code Payments and print jobs that need a person.
gauge posd_fleet_lost_changes - Changes that are lost.
gauge posd_fleet_unreadable_messages - Messages, and single changes, that were set aside.
"""
FAMILIES = table(_TABLE + process_table("posd_collect"))

#: The parts that can be unreachable.
AWAY = ("postgresql", "stream")


@dataclass(slots=True)
class CollectorCounters:
    """Counters since the start of the process. Each field is the metric `posd_collect_` with its name."""

    started: float = field(default_factory=time.time)
    connected: bool = False
    messages_total: int = 0
    unreadable_total: int = 0
    failures_total: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(AWAY, 0)))
    store_seconds: Histogram = field(default_factory=lambda: Histogram(STORE_BOUNDS))


def metrics_text(counts: CollectorCounters, waiting: int | None, fleet: FleetSummary | None) -> str:
    """Return all metrics as text. `waiting`: number of waiting messages. `waiting`, `fleet`: None if unknown."""
    of_fleet = {} if fleet is None else {f"posd_fleet_{name}": value for name, value in fleet._asdict().items()}
    known = {"posd_collect_waiting_messages": waiting, "posd_fleet_readable": fleet is not None, **of_fleet}
    return render(FAMILIES, chain(process.samples("posd_collect", counts), known.items()))


#: Name of the durable consumer, which all collectors share, and subjects of the stream.
DURABLE: Final = "pg"
SUBJECTS: Final = "posd.*.*"
#: Subject of the server's responses.
INBOX: Final = "_I.collect"
#: Maximum number of messages in one fetch, and longest wait for the first message, in seconds.
BATCH = 100
WAIT_SECONDS = 5.0
#: Maximum number of delivered messages without acknowledgement, and seconds until such a message is delivered again.
PENDING = 2_000
ACK_SECONDS = 60.0
#: The stream stores messages for this number of seconds (two weeks). Older changes are in the lanes' feeds.
KEPT_SECONDS = 14 * 86_400.0


class StreamConsumer:
    """Stream and its durable consumer, over one connection. Every method can raise StreamAway."""

    def __init__(self, client: NatsClient, config: CollectConfig) -> None:
        self.client = client
        self._jetstream = client.jetstream(timeout=10)
        self._stream = config.stream
        self._bound: JetStreamContext.PullSubscription | None = None

    async def make(self, replicas: int) -> list[str]:
        """Create the stream and the consumer if they are missing. Return the names of what was created."""
        made = []
        stream = StreamConfig(
            name=self._stream,
            subjects=[SUBJECTS],
            discard=DiscardPolicy.NEW,
            max_age=KEPT_SECONDS,
            num_replicas=replicas,
            allow_direct=True,
        )
        with self._away("cannot make the stream"):
            try:
                await self._jetstream.stream_info(self._stream)
            except NotFoundError:
                await self._jetstream.add_stream(stream)
                made.append(f"the stream {self._stream}")
            try:
                await self._jetstream.consumer_info(self._stream, DURABLE)
            except NotFoundError:
                await self._add_consumer()
                made.append(f"the consumer {DURABLE}")
        return made

    async def begin_again(self) -> None:
        """Reset the consumer, so that the stream delivers every message again."""
        with self._away("cannot begin the stream again"):
            await self._jetstream.delete_consumer(self._stream, DURABLE)
            await self._add_consumer()

    async def _add_consumer(self) -> None:
        consumer = ConsumerConfig(
            durable_name=DURABLE,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=PENDING,
            filter_subject=SUBJECTS,
        )
        await self._jetstream.add_consumer(self._stream, consumer)

    async def take(self, seconds: float = WAIT_SECONDS) -> list[Msg]:
        """Return the next messages. The list is empty if none arrives within `seconds`."""
        with self._away("messages cannot be taken"), suppress(TimeoutError):
            if self.client.server_error.done():  # only this shows that the server refused an acknowledgement
                raise NatsError(self.client.server_error.result())
            if self._bound is None:
                self._bound = await self._jetstream.pull_subscribe_bind(durable=DURABLE, stream=self._stream)
            return await self._bound.fetch(BATCH, timeout=seconds)
        return []

    async def left(self) -> int:
        """Return the number of messages without an acknowledgement, delivered or not."""
        with self._away("the consumer cannot be asked"):
            found = await self._jetstream.consumer_info(self._stream, DURABLE)
        return (found.num_pending or 0) + (found.num_ack_pending or 0)

    async def done(self, messages: list[Msg]) -> None:
        """Acknowledge messages whose content is on disk."""
        with self._away("messages cannot be acknowledged"):
            for message in messages:
                await message.ack()

    @contextmanager
    def _away(self, what: str) -> Iterator[None]:
        """Raise StreamAway with `what` for an error of the server or of the connection in the block."""
        try:
            yield
        except (NatsError, TimeoutError, OSError) as error:
            todo = "Check that the stream and its consumer exist (posd collect --init), and the rights of this user"
            raise self.client.away(what, error, todo) from error


def _read(message: Msg) -> LaneMessage:
    """Return a message of the NATS client as a LaneMessage."""
    about = message.metadata
    return LaneMessage(about.sequence.stream, about.timestamp.astimezone(UTC), message.subject, message.data)


@asynccontextmanager
async def connected(config: CollectConfig) -> AsyncIterator[StreamConsumer]:
    """Connect to the stream during the block. Raise StreamAway, OperatorNeeded."""
    async with client_of(config, "posd collect", INBOX) as client:
        yield StreamConsumer(client, config)


log = structlog.get_logger("posd.collect")

#: Seconds before the next attempt after a failure: the first pause, and the longest.
FIRST_PAUSE = 1.0
MOST_PAUSE = 30.0
#: Seconds without a message after which the stream counts as fully read.
QUIET_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Collector:
    """One collector. Several may run at the same time. `show` is called with the counters after each batch."""

    config: CollectConfig
    show: Callable[[CollectorCounters], None] = lambda _: None
    counts: CollectorCounters = field(default_factory=CollectorCounters)
    _source: StreamConsumer | None = None

    async def run(self) -> None:
        """Store messages until cancelled, with retries. Raise OperatorNeeded."""
        pauses = Pauses(FIRST_PAUSE, MOST_PAUSE)
        while True:
            pauses.begin()
            try:
                await self.once(forever=True)
            except (StreamAway, psycopg.Error) as error:
                self.counts.failures_total["stream" if isinstance(error, StreamAway) else "postgresql"] += 1
                wait, words = pauses.draw(), words_of(error)
                if pauses.is_news(words):
                    log.warning("collect.waiting", error=words, retry_s=round(wait, 1))
                await asyncio.sleep(wait)

    async def once(self, *, forever: bool = False, from_start: bool = False) -> CollectorCounters:
        """Store all messages of the stream, and return the counters.

        `forever`: wait for more messages. `from_start`: read the whole stream again. Raise OperatorNeeded, StreamAway,
        psycopg.Error.
        """
        async with (
            await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection,
            connected(self.config) as source,
        ):
            store = CollectorStore(connection)
            await store.prepare()
            if from_start:
                await source.begin_again()
            if forever:
                log.info("collect.connected", host=source.client.address, database=connection.info.dbname)
                if source.client.old_version is not None:
                    log.warning("collect.old_server", version=source.client.old_version)
            self._source, self.counts.connected = source, True
            try:
                await self._take(source, store, forever)
            finally:
                self._source, self.counts.connected = None, False
        return self.counts

    async def _take(self, source: StreamConsumer, store: CollectorStore, forever: bool) -> None:
        """Store batch after batch. While PostgreSQL stores a batch, the next one is fetched and parsed."""
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
    async def _next(source: StreamConsumer, forever: bool) -> tuple[list[Msg], Batch]:
        messages = await source.take(WAIT_SECONDS if forever else QUIET_SECONDS)
        return messages, parsed([_read(message) for message in messages])

    async def _store(
        self, source: StreamConsumer, store: CollectorStore, messages: list[Msg], batch: Batch, forever: bool
    ) -> None:
        counts, began = self.counts, time.monotonic()
        unreadable = await store.write(batch)
        counts.store_seconds.observe(time.monotonic() - began)
        await source.done(messages)
        counts.messages_total += len(messages)
        counts.unreadable_total += unreadable
        if unreadable and forever:
            log.warning("collect.unreadable", count=unreadable)
        self.show(counts)

    async def metrics(self) -> str:
        """Return the metrics as text. A separate connection reads the values of the tables."""
        waiting, fleet = None, None
        if self._source is not None:
            with suppress(StreamAway):
                waiting = await self._source.left()
        with suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection:
                fleet = await questions.fleet(connection)
        return metrics_text(self.counts, waiting, fleet)


def words_of(error: Exception) -> str:
    """Return the text of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


# Collector as a process that runs until a signal.


def run(config: Config) -> int:
    """Collect until SIGTERM or SIGINT. Return the exit code."""
    return process.run(_run(config), config.logging.level)


async def _run(config: Config) -> int:
    collector = Collector(config.collect)
    try:
        async with process.served(config.collect.metrics_listen, collector.metrics):
            await collector.run()
    except asyncio.CancelledError:  # cancelled by a signal
        log.info("collect.stopped")
    except OperatorNeeded as error:
        log.error("collect.refused", error=str(error))  # noqa: TRY400 - the message is complete
        return EXIT_CONFIGURATION
    return EXIT_DONE
