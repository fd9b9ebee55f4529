"""The stream of all lanes, and the durable consumer by which every collector takes its part of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, DiscardPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from posd.collect.reading import Message
from posd.config.schema import CollectConfig
from posd.relay.stream import Complaints, StreamAway, client_of, old_version

#: The durable consumer's name, and what is in the stream.
DURABLE: Final = "pg"
SUBJECTS: Final = "posd.*.*"
#: Where the server's answers go.
INBOX: Final = "_I.collect"
#: How many messages are taken at once, and how long the first of them is waited for, in seconds.
BATCH = 100
WAIT_SECONDS = 5.0
#: Messages that are handed out and not acknowledged yet, and how long until one is handed out again, in seconds.
PENDING = 2_000
ACK_SECONDS = 60.0
#: How long the stream keeps messages, in seconds: a fortnight. What is older can be had from the lanes.
KEPT_SECONDS = 14 * 86_400.0


class Queue:
    """The consumer, over one connection. Every method raises StreamAway."""

    def __init__(self, client: Client, config: CollectConfig, complaints: Complaints) -> None:
        url = client.connected_url
        self._complaints = complaints
        self._jetstream = client.jetstream(timeout=10)
        self._stream = config.stream
        self._bound: JetStreamContext.PullSubscription | None = None
        self.server = f"{url.hostname}:{url.port}" if url is not None else ""
        self.old = old_version(client)

    async def make(self, replicas: int) -> list[str]:
        """Make the stream and the consumer where they are missing; return what was made."""
        made = []
        stream = StreamConfig(
            name=self._stream,
            subjects=[SUBJECTS],
            discard=DiscardPolicy.NEW,
            max_age=KEPT_SECONDS,
            num_replicas=replicas,
            allow_direct=True,
        )
        try:
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
        except (NatsError, TimeoutError, OSError) as error:
            raise _away("cannot make the stream", error) from error
        return made

    async def begin_again(self) -> None:
        """Have every message of the stream handed out once more."""
        try:
            await self._jetstream.delete_consumer(self._stream, DURABLE)
            await self._add_consumer()
        except (NatsError, TimeoutError, OSError) as error:
            raise _away("cannot begin the stream again", error) from error

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
        """Take the next messages; none where none came in that time."""
        if self._complaints.come.is_set():  # an acknowledgement that is not allowed is answered by nothing else
            raise _away("messages cannot be taken", NatsError(self._complaints.first))
        try:
            if self._bound is None:
                self._bound = await self._jetstream.pull_subscribe_bind(durable=DURABLE, stream=self._stream)
            return await self._bound.fetch(BATCH, timeout=seconds)
        except TimeoutError:
            return []
        except (NatsError, OSError) as error:
            raise _away("messages cannot be taken", error) from error

    async def left(self) -> int:
        """Return how many messages wait to be handed out."""
        try:
            found = await self._jetstream.consumer_info(self._stream, DURABLE)
        except (NatsError, TimeoutError, OSError) as error:
            raise _away("the consumer cannot be asked", error) from error
        return (found.num_pending or 0) + (found.num_ack_pending or 0)

    @staticmethod
    async def done(messages: list[Msg]) -> None:
        """Acknowledge messages: what they say is on disk."""
        try:
            for message in messages:
                await message.ack()
        except (NatsError, OSError) as error:
            raise _away("messages cannot be acknowledged", error) from error


def read(message: Msg) -> Message:
    """Return a message as it came."""
    about = message.metadata
    return Message(about.sequence.stream, about.timestamp.astimezone(UTC), message.subject, message.data)


@asynccontextmanager
async def connected(config: CollectConfig) -> AsyncIterator[Queue]:
    """Connect for the block. Raise StreamAway, ServerTooOld."""
    async with client_of(config, "posd collect", INBOX) as (client, complaints):
        yield Queue(client, config, complaints)


def _away(what: str, error: Exception) -> StreamAway:
    if isinstance(error, APIError):
        return StreamAway(f"{what}: {error.description or error} ({error.err_code})")
    todo = "See that the stream and its consumer are there (posd collect --init), and what this user may do"
    return StreamAway(f"{what}: {str(error) or type(error).__name__}", todo)
