"""Relay of a lane: read the feed after the last message on the subject, publish the changes, wait for more."""

import asyncio
import math
import random
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from posd.base.exposition import process_table, render, table
from posd.base.times import iso
from posd.client.async_ import AsyncConnection
from posd.client.connection import problem_in
from posd.client.documents import Problem, Unreachable
from posd.client.plans import Call
from posd.config import Config
from posd.config.schema import RelayConfig
from posd.relay import messages, process
from posd.relay.messages import OperatorNeeded
from posd.relay.process import EXIT_CONFIGURATION, EXIT_DONE, Pauses
from posd.relay.stream import LaneStream, StreamAway, SubjectMoved, connected

# Counters of the relay, and its metrics. docs/reference/metrics.md has the same table.

#: Metrics in the order of display: kind, name, labels (- for none), meaning.
_TABLE = """
gauge posd_relay_build_info version The version that runs.
gauge posd_relay_connected - 1 while there is a connection to one of head office's servers.
counter posd_relay_messages_total kind Messages that the stream has acknowledged.
counter posd_relay_changes_total - Changes of the feed in the messages that the stream has acknowledged.
counter posd_relay_bytes_total - Size of the messages that the stream has acknowledged.
counter posd_relay_lost_changes_total - Changes that were removed from the feed and never sent.
counter posd_relay_overtaken_total - Times that another message of this lane reached the stream first. The relay
  continued after it.
counter posd_relay_failures_total away Times posd or the stream could not be reached.
gauge posd_relay_waiting_changes - Changes not yet sent when the relay last read the feed; absent before the first read.
gauge posd_relay_state_timestamp_seconds - Last time when all changes were sent and acknowledged, in seconds since
  1970; absent: never since the start.
"""
FAMILIES = table(_TABLE + process_table("posd_relay"))

#: Kinds of messages.
KINDS = ("begin", "changes", "lost", "state")
#: Parts that can be unreachable.
AWAY = ("posd", "stream")


def _none_of(names: tuple[str, ...]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class RelayCounters:
    """Counters since the start of the process. Each field is the metric `posd_relay_` with its name."""

    started: float = field(default_factory=time.time)
    connected: bool = False
    messages_total: Counter[str] = field(default_factory=lambda: _none_of(KINDS))
    changes_total: int = 0
    bytes_total: int = 0
    lost_changes_total: int = 0
    overtaken_total: int = 0
    failures_total: Counter[str] = field(default_factory=lambda: _none_of(AWAY))
    waiting_changes: int | None = None
    state_timestamp_seconds: float | None = None

    async def text(self) -> str:
        """Return all metrics as text."""
        return render(FAMILIES, process.samples("posd_relay", self))


log = structlog.get_logger("posd.relay")


# Reader of posd's feed on the feed socket.

#: Longest wait for a response, in seconds. posd reads a page in milliseconds.
ANSWER_SECONDS = 30.0

_PAGE = msgspec.json.Decoder(messages.Page)


class FeedClient:
    """Client of posd's feed socket. Every method raises Problem, or Unreachable if posd does not respond.

    Pages are read as bytes, because the relay publishes most of them unchanged, over one connection that stays open.
    """

    def __init__(self, socket: Path, *, limit: int, metadata: bool) -> None:
        """`limit`: maximum number of changes of a page. `metadata`: whether to include the till's metadata."""
        self._socket = str(socket)
        self._asked = {"limit": str(limit), "with": "outcome,metadata" if metadata else "outcome"}
        self._pages = AsyncConnection(self._socket, kept=1)
        self._streams = AsyncConnection(self._socket)

    async def close(self) -> None:
        """Close the connections."""
        await self._pages.close()
        await self._streams.close()

    async def page(self, after: str) -> messages.Page:
        """Read a page of the changes after a number or a place."""
        found: messages.Page = self._read(await self._get("/feed", self._asked | {"after": after}), _PAGE.decode)
        return found

    async def health(self) -> dict[str, str]:
        """Return posd's health (`status`), and the status of each check that is not ok."""
        document = self._read(await self._get("/health"), msgspec.json.decode)
        checks = {name: check["status"] for name, check in document["checks"].items()}
        return {"status": document["status"]} | {name: word for name, word in checks.items() if word != "ok"}

    async def version(self) -> str:
        """Return posd's version."""
        found: str = self._read(await self._get("/version"), msgspec.json.decode)["version"]
        return found

    async def changed(self, after: int) -> None:
        """Wait until the feed has a change after a number, or posd stops."""
        async with aclosing(self._streams.stream("/feed", after)) as items:
            async for _ in items:
                return

    async def _get(self, path: str, query: dict[str, str] | None = None) -> bytes:
        response = await self._pages.request(Call("GET", path, query or {}, seconds=ANSWER_SECONDS))
        if response.status_code >= 400 and path != "/health":  # health `failing` has status 503
            raise problem_in(self._socket, response.status_code, response.content)
        return response.content

    def _read(self, content: bytes, decode: Any) -> Any:
        try:
            return decode(content)
        except msgspec.DecodeError as error:
            raise Unreachable(self._socket, f"this relay cannot read the response: {error}", sent=True) from error


# The relay.

#: Seconds that the relay waits for further changes after a change, so that a payment's changes share one message.
LINGER_SECONDS = 1.0
#: Seconds between two checks of posd's health.
HEALTH_SECONDS = 15.0
#: Seconds before the next attempt after a failure: the first pause, and the longest.
FIRST_PAUSE = 1.0
MOST_PAUSE = 60.0
#: Maximum number of bytes of the changes in one message. A server accepts 1 MiB by default.
MOST_BYTES = 512 * 1024


@dataclass(eq=False, slots=True)
class Relay:
    """Relay of one lane.

    `restart_at`: number of the first change that is sent again, or None. `begin`: as in `following`.
    """

    config: RelayConfig
    merchant: str
    lane: str
    feed: FeedClient
    restart_at: int | None = None
    begin: bool = False
    counts: RelayCounters = field(default_factory=RelayCounters)
    _health: dict[str, str] | None = None  # health in the last `state` that was sent
    _state_at: float = float("-inf")  # monotonic time when that was sent
    _away_since: float | None = None  # monotonic time of the first failure to reach posd
    _most: int = 0
    _pauses: Pauses = field(default_factory=lambda: Pauses(FIRST_PAUSE, MOST_PAUSE))

    @property
    def subject(self) -> str:
        """Subject of the lane's messages."""
        return f"posd.{self.merchant}.{self.lane}"

    async def run(self) -> None:
        """Send changes until cancelled, with retries. Raise OperatorNeeded."""
        while True:
            self._pauses.begin()
            try:
                await self.once(forever=True)
            except (StreamAway, Unreachable, Problem) as error:
                self.counts.failures_total["stream" if isinstance(error, StreamAway) else "posd"] += 1
                wait, words = self._pauses.draw(), str(error)
                if self._pauses.is_news(words):
                    todo = getattr(error, "todo", "") or None
                    log.warning("relay.waiting", error=words, retry_s=round(wait, 1), detail=todo)
                if not isinstance(error, StreamAway):
                    await self._say_away()
                await asyncio.sleep(wait)

    async def _say_away(self) -> None:
        """Report to head office, once, that posd has been unreachable for `state_seconds`."""
        now = time.monotonic()
        self._away_since = self._away_since if self._away_since is not None else now
        if now - self._away_since < self.config.state_seconds:
            return
        with suppress(StreamAway, SubjectMoved, OperatorNeeded):  # the next attempt to reach posd repeats this call
            async with self._connected() as stream:
                sequence, last = await stream.last()
                known = self._position(last) is not None  # raises OperatorNeeded for another lane's message
                message = messages.decode(last) if known and last is not None else None
                if isinstance(message, messages.StateMessage) and message.health.get("status") != messages.UNREACHABLE:
                    told = msgspec.structs.replace(
                        message, at=iso(datetime.now(UTC)), health={"status": messages.UNREACHABLE}
                    )
                    data = messages.encode(told)
                    await stream.publish(data, sequence)
                    self._published(told, len(data))
                self._away_since = math.inf  # do not report again until posd responds

    async def once(self, *, forever: bool = False) -> None:
        """Send all changes over one connection, and with `forever` wait for more.

        Raise OperatorNeeded, StreamAway, Unreachable, Problem.
        """
        await self.feed.version()  # raises first if posd is unreachable, so that head office is not contacted
        self._away_since = None
        async with self._connected() as stream:
            log.info("relay.connected", detail=stream.client.address, host=self.subject)
            if stream.client.old_version is not None:
                log.warning("relay.old_server", version=stream.client.old_version)
            self._pauses.is_news("")  # log that earlier failures are resolved
            self.counts.connected = True
            try:
                await self._keep_following(stream, forever)
            finally:
                self.counts.connected = False

    def _connected(self) -> AbstractAsyncContextManager[LaneStream]:
        """Connect to a server. The server's responses arrive on a subject of this lane only."""
        return connected(self.config, self.subject, f"_I.{self.merchant}.{self.lane}")

    async def _keep_following(self, stream: LaneStream, forever: bool) -> None:
        while True:
            try:
                return await self._follow(stream, forever)
            # Another relay of this lane has published a message, or this relay did not receive the reply to its own
            # publish.
            except SubjectMoved as error:
                self.counts.overtaken_total += 1
                log.info("relay.overtaken", detail=str(error))
                if forever:
                    await asyncio.sleep(random.uniform(0.0, LINGER_SECONDS))  # noqa: S311

    async def _follow(self, stream: LaneStream, forever: bool) -> None:
        """Send the changes after the last message, message by message.

        Raise SubjectMoved if the stream has another last message.
        """
        sequence, position = await self._stands(stream)
        while True:
            as_of = iso(datetime.now(UTC))
            page = await self.feed.page(position.after if position is not None else "0")
            self.counts.waiting_changes = messages.waiting(position, page)
            message = await self._next(position, page, as_of)
            if message is None:
                if not forever:
                    return
                await self._wait(page.databases[-1].end)
                continue
            data = messages.encode(message)
            if not stream.fits(data):
                self._shorten(message)
                continue
            sequence = await stream.publish(data, sequence)
            self._published(message, len(data))
            position = messages.position(message)

    async def _stands(self, stream: LaneStream) -> tuple[int, messages.Position | None]:
        """Return the number of the lane's last message, and its position in the feed, from the stream."""
        sequence, data = await stream.last()
        position = self._position(data)
        if self.restart_at is not None:
            position = await self._from(self.restart_at, position)
        return sequence, position

    async def _from(self, seq: int, position: messages.Position | None) -> messages.Position | None:
        """Return the position before change `seq`. Raise OperatorNeeded if the feed ends before that change.

        If `position` is from a database that the feed does not know, return `position`.
        """
        databases = (await self.feed.page(str(seq - 1))).databases
        if position is not None and all(item.database_id != position.database_id for item in databases):
            return position
        if seq > databases[-1].end + 1:
            raise OperatorNeeded(
                f"--from {seq}: this lane's feed goes up to {databases[-1].end}", "Give this number or a lower one"
            )
        of = next((item for item in reversed(databases) if item.first_seq <= seq), databases[0])
        return messages.Position(of.database_id, seq - 1)

    def _position(self, last: bytes | None) -> messages.Position | None:
        """Return the position in the last message, or None without a message. Raise OperatorNeeded."""
        if last is None:
            return None
        try:
            message = messages.decode(last)
        except ValueError as error:
            if self.begin:
                return None
            raise OperatorNeeded(
                f"the last message on {self.subject} is not from a relay: {error}",
                "Find out who can publish there, and remove the message (nats stream rmm)",
            ) from error
        if (message.merchant, message.lane) != (self.merchant, self.lane):
            raise OperatorNeeded(
                f"the last message on {self.subject} is of the lane {message.merchant}.{message.lane}",
                "Find out who can publish there, and remove the message (nats stream rmm)",
            )
        return messages.position(message)

    async def _next(
        self, position: messages.Position | None, page: messages.Page, as_of: str
    ) -> messages.AnyMessage | None:
        """Return the next message, or None if there is nothing to send. Raise OperatorNeeded."""
        message = messages.following(position, page, begin=self.begin, **self._head())
        if message is None:
            assert position is not None  # noqa: S101 - without a position there is always a message
            return await self._state(position, page, as_of)
        return self._cut(message) if isinstance(message, messages.Changes) else message

    def _head(self) -> dict[str, Any]:
        """Return the members that every message has. `at` is the present time."""
        return {"merchant": self.merchant, "lane": self.lane, "at": iso(datetime.now(UTC))}

    def _cut(self, message: messages.Changes) -> messages.Changes:
        """Return the message with only as many of its changes as fit."""
        run = message.changes[: self._most or len(message.changes)]
        size = 0
        for count, change in enumerate(run):
            size += len(bytes(change))
            if size > MOST_BYTES and count:
                run = run[:count]
                break
        if len(run) == len(message.changes):
            return message
        last_seq = message.first_seq + len(run) - 1
        return msgspec.structs.replace(message, last_seq=last_seq, changes=run, place=None)

    async def _state(self, at: messages.Position, page: messages.Page, as_of: str) -> messages.StateMessage | None:
        """Return the message with the state of the lane, or None if it is not due."""
        health = await self.feed.health()
        due = time.monotonic() - self._state_at >= self.config.state_seconds
        if not due and health == self._health:
            return None
        return messages.StateMessage(
            **self._head(),
            database_id=at.database_id,
            last_seq=at.seq,
            as_of=as_of,
            version=await self.feed.version(),
            health=health,
            open=page.open or 0,
            attention=page.attention or {},
            place=page.place,
        )

    def _shorten(self, message: messages.AnyMessage) -> None:
        """Halve the number of changes in later messages. Raise OperatorNeeded if a message had only one change."""
        if not isinstance(message, messages.Changes) or len(message.changes) == 1:
            raise OperatorNeeded(
                f"the NATS server accepts no message as large as change {messages.position(message).seq}",
                "Raise max_payload of the server (docs/guides/fleet.md)",
            )
        self._most = len(message.changes) // 2

    def _published(self, message: messages.AnyMessage, size: int) -> None:
        """Record a published message."""
        self.counts.messages_total[messages.kind(message)] += 1
        self.counts.bytes_total += size
        self.restart_at = None  # from here on, the last message contains the position
        match message:
            case messages.Begin(database_id=database_id, previous=previous):
                self.begin = False
                log.info("relay.begun", detail=database_id, before=previous.database_id if previous else None)
            case messages.Changes(changes=changes):
                self.counts.changes_total += len(changes)
            case messages.StateMessage(health=health):
                self._health, self._state_at = dict(health), time.monotonic()
                self.counts.state_timestamp_seconds = round(time.time(), 2)
            case messages.Lost(from_seq=first, to_seq=last):
                self.counts.lost_changes_total += last - first + 1
                log.warning("relay.lost", count=last - first + 1, detail=f"{first} to {last}")

    async def _wait(self, newest: int) -> None:
        """Wait for a change after `newest`, or until a state or a health check is due."""
        left = self._state_at + self.config.state_seconds - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left, HEALTH_SECONDS))):
                await self.feed.changed(newest)
                await asyncio.sleep(LINGER_SECONDS)
        except TimeoutError:
            pass


# Relay as a process that runs until a signal, or once.

EXIT_REFUSED = 1
EXIT_UNREACHABLE = 3


def run(config: Config, lane: str, *, once: bool, restart_at: int | None, begin: bool) -> int:
    """Run the relay of a lane. Return the exit code. `restart_at` and `begin` as in `Relay`."""
    return process.run(_run(config, lane, once, restart_at, begin), config.logging.level)


async def _run(config: Config, lane: str, once: bool, restart_at: int | None, begin: bool) -> int:
    feed = FeedClient(config.local_api.feed_socket, limit=config.relay.batch, metadata=config.relay.metadata)
    relay = Relay(config.relay, config.merchant.id, lane, feed, restart_at, begin)
    try:
        if once:
            await relay.once()
        else:
            async with process.served(config.relay.metrics_listen, relay.counts.text):
                await relay.run()
    except asyncio.CancelledError:  # cancelled by a signal
        log.info("relay.stopped")
    except OperatorNeeded as error:
        log.error("relay.refused", error=str(error), detail=error.todo)  # noqa: TRY400 - the message is complete
        return EXIT_CONFIGURATION if error.is_setup else EXIT_REFUSED
    except (StreamAway, Unreachable, Problem) as error:
        log.error("relay.away", error=str(error), detail=getattr(error, "todo", None))  # noqa: TRY400
        return EXIT_UNREACHABLE
    finally:
        await feed.close()
    return EXIT_DONE
