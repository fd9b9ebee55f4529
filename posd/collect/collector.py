"""The collector at work: takes messages, stores them, and acknowledges what is on disk."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import structlog

from posd.collect import queue
from posd.collect.queue import Queue
from posd.collect.store import Store
from posd.config.schema import CollectConfig
from posd.relay.stream import StreamAway

log = structlog.get_logger("posd.collect")

#: Seconds before the next try where something is away: the first, and the most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 30.0
#: Seconds in which no message comes where there are none.
QUIET_SECONDS = 1.0


@dataclass(slots=True)
class Counts:
    """What was taken: messages, and how many of them could not be used."""

    messages: int = 0
    unreadable: int = 0


@dataclass(eq=False, slots=True)
class Collector:
    """One of any number of collectors. `show` hears of the counts after each batch."""

    config: CollectConfig
    show: Callable[[Counts], None] = lambda _: None

    async def run(self) -> None:
        """Collect for ever. Raise WrongTables."""
        pause, said = FIRST_PAUSE, ""
        while True:
            before = time.monotonic()
            try:
                await self.once(forever=True)
            except (StreamAway, psycopg.Error) as error:
                if time.monotonic() - before > MOST_PAUSE:
                    pause = FIRST_PAUSE
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, and hides nothing
                if (words := words_of(error)) != said:
                    said = words
                    log.warning("collect.waiting", error=words, retry_s=round(wait, 1))
                await asyncio.sleep(wait)
                pause = min(2 * pause, MOST_PAUSE)

    async def once(self, *, forever: bool = False, from_start: bool = False) -> Counts:
        """Store all that there is; return the counts. Raise WrongTables, StreamAway, psycopg.Error."""
        counts = Counts()
        async with (
            await psycopg.AsyncConnection.connect(self.config.dsn, autocommit=True) as connection,
            queue.connected(self.config) as source,
        ):
            store = Store(connection)
            await store.prepare()
            if from_start:
                await source.begin_again()
            if forever:
                log.info("collect.connected", host=source.server, database=connection.info.dbname)
            while True:
                if not await self._batch(source, store, counts, forever) and not forever:
                    return counts

    async def _batch(self, source: Queue, store: Store, counts: Counts, forever: bool) -> bool:
        """Take a batch; whether there was one, or there will be."""
        messages = await source.take(queue.WAIT_SECONDS if forever else QUIET_SECONDS)
        if not messages:
            return not forever and await source.left() > 0
        unreadable = await store.write([queue.read(message) for message in messages])
        await source.done(messages)
        counts.messages += len(messages)
        counts.unreadable += unreadable
        if unreadable and forever:
            log.warning("collect.unreadable", count=unreadable)
        self.show(counts)
        return True


def words_of(error: Exception) -> str:
    """Say in a line what is wrong."""
    return " ".join(str(error).split()) or type(error).__name__
