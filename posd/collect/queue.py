"""The stream of all lanes, and the durable consumer that all collectors share."""

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

from posd.collect.reading import LaneMessage
from posd.config.schema import CollectConfig
from posd.relay.stream import ServerError, StreamAway, client_of, old_version

#: Name of the durable consumer, and subjects of the stream.
DURABLE: Final = "pg"
SUBJECTS: Final = "posd.*.*"
#: Subject of the server's responses.
INBOX: Final = "_I.collect"
#: Messages of one fetch, and longest wait for the first of them, in seconds.
BATCH = 100
WAIT_SECONDS = 5.0
#: Delivered messages without acknowledgement, and seconds until one is delivered again.
PENDING = 2_000
ACK_SECONDS = 60.0
#: Seconds for which the stream stores messages (two weeks). Older changes are in the lanes' feeds.
KEPT_SECONDS = 14 * 86_400.0


class StreamConsumer:
    """Consumer of the stream, on one connection. Every method raises StreamAway."""

    def __init__(self, client: Client, config: CollectConfig, server_error: ServerError) -> None:
        url = client.connected_url
        self._server_error = server_error
        self._jetstream = client.jetstream(timeout=10)
        self._stream = config.stream
        self._bound: JetStreamContext.PullSubscription | None = None
        self.server = f"{url.hostname}:{url.port}" if url is not None else ""
        self.old = old_version(client)

    async def make(self, replicas: int) -> list[str]:
        """Create the stream and the consumer if missing; return what was created."""
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
        """Reset the consumer, so that every message is delivered again."""
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
        """Return the next messages; none if none arrives within the wait."""
        if self._server_error.done():  # the only response to a forbidden acknowledgement
            raise _away("messages cannot be taken", NatsError(self._server_error.result()))
        try:
            if self._bound is None:
                self._bound = await self._jetstream.pull_subscribe_bind(durable=DURABLE, stream=self._stream)
            return await self._bound.fetch(BATCH, timeout=seconds)
        except TimeoutError:
            return []
        except (NatsError, OSError) as error:
            raise _away("messages cannot be taken", error) from error

    async def left(self) -> int:
        """Return the number of messages that wait for delivery."""
        try:
            found = await self._jetstream.consumer_info(self._stream, DURABLE)
        except (NatsError, TimeoutError, OSError) as error:
            raise _away("the consumer cannot be asked", error) from error
        return (found.num_pending or 0) + (found.num_ack_pending or 0)

    @staticmethod
    async def done(messages: list[Msg]) -> None:
        """Acknowledge messages whose content is on disk."""
        try:
            for message in messages:
                await message.ack()
        except (NatsError, OSError) as error:
            raise _away("messages cannot be acknowledged", error) from error


def read(message: Msg) -> LaneMessage:
    """Return a message in its original form."""
    about = message.metadata
    return LaneMessage(about.sequence.stream, about.timestamp.astimezone(UTC), message.subject, message.data)


@asynccontextmanager
async def connected(config: CollectConfig) -> AsyncIterator[StreamConsumer]:
    """Connect for the block. Raise StreamAway, ServerTooOld."""
    async with client_of(config, "posd collect", INBOX) as (client, server_error):
        yield StreamConsumer(client, config, server_error)


def _away(what: str, error: Exception) -> StreamAway:
    if isinstance(error, APIError):
        return StreamAway(f"{what}: {error.description or error} ({error.err_code})")
    todo = "Check that the stream and its consumer exist (posd collect --init), and the rights of this user"
    return StreamAway(f"{what}: {str(error) or type(error).__name__}", todo)
