"""The collector: it takes messages, stores them, and acknowledges those on disk."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
import structlog
from nats.aio.msg import Msg

from posd.collect import metrics, questions, queue
from posd.collect.metrics import CollectorCounters
from posd.collect.queue import StreamConsumer
from posd.collect.store import CollectorStore, ParsedBatch, parsed
from posd.config.schema import CollectConfig
from posd.relay.process import Pauses
from posd.relay.stream import StreamAway

log = structlog.get_logger("posd.collect")

#: Seconds before the next attempt after a failure: the first, and the most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 30.0
#: Seconds without a message after which the stream counts as empty.
QUIET_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Collector:
    """One of any number of collectors. `show` is called with the counts after each batch."""

    config: CollectConfig
    show: Callable[[CollectorCounters], None] = lambda _: None
    counts: CollectorCounters = field(default_factory=CollectorCounters)
    _source: StreamConsumer | None = None

    async def run(self) -> None:
        """Collect for ever. Raise WrongTables."""
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
            with self._connected(source):
                await self._take(source, store, forever)
        return self.counts

    @contextmanager
    def _connected(self, source: StreamConsumer) -> Iterator[None]:
        self._source, self.counts.connected = source, True
        try:
            yield
        finally:
            self._source, self.counts.connected = None, False

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
        """Return the metrics as text: its counts, and values of the tables, on a connection of its own."""
        waiting, fleet = None, None
        if self._source is not None:
            with suppress(StreamAway):
                waiting = await self._source.left()
        with suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection:
                fleet = await questions.fleet(connection)
        return metrics.text(self.counts, waiting, fleet)


def words_of(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
