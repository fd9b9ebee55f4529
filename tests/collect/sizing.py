"""How large a fleet the parts carry: many real relays over synthetic feeds, and the messages of ten thousand lanes.

`python -m tests.collect.sizing relays` has so many relays that work at once, and a server that is killed;
`… lanes` a peak of all lanes through one collector; `… morning` what lanes send that were away for a day. Each prints
what it measured, for docs/guides/fleet.md.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.bench.processes import processor_seconds, resident_bytes
from tests.collect.postgres import Postgres, postgres
from tests.collect.rate import BATCH, PAYMENT, changes
from tests.relay.lane import Process
from tests.relay.nats_server import STREAM, NatsServer, nats_server
from tests.support import forks
from tests.support.leftovers import OWNER, owner

MIB = 1024 * 1024
#: Changes of a lane in a day: 500 payments of eight.
OF_A_DAY = 500 * len(PAYMENT)
#: Longest that anything may take that is waited for, in seconds.
PATIENCE_SECONDS = 900.0


@dataclass
class Feed:
    """A lane's feed that grows: what comes is told to those who wait, as posd does it."""

    database_id: str
    found: list[bytes] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def grow(self, some: Sequence[bytes]) -> None:
        """Add changes."""
        self.found += some
        self._more.set()
        self._more = asyncio.Event()

    @asynccontextmanager
    async def served(self, socket: Path) -> AsyncIterator[None]:
        """Serve it for the block."""
        server = await asyncio.start_unix_server(self._serve, str(socket))
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                url = urlsplit(head.split(" ", 2)[1])
                if "text/event-stream" in head:
                    await self._stream(writer, int(_after(head, url.query)))
                    break
                body = self._answer(url.path, url.query)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, after: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while len(self.found) <= after:
            await self._more.wait()
        said = b"id: %d\nevent: transaction\ndata: {}\n\n" % len(self.found)
        writer.write(b"%x\r\n%s\r\n" % (len(said), said))
        await writer.drain()

    def _answer(self, path: str, query: str) -> bytes:
        if path != "/v1/feed":
            return json.dumps({"status": "ok", "checks": {}, "version": "sizing"}).encode()
        asked = parse_qs(query)
        after, limit = int(asked["after"][0].partition("-")[0]), int(asked["limit"][0])
        some = self.found[after : after + limit]
        head: dict[str, Any] = {
            "place": str(after + len(some)),
            "notices": [],
            "databases": [{"database_id": self.database_id, "first_seq": 1, "last_seq": len(self.found) or None}],
        }
        if len(some) < limit:
            head |= {"open": 0, "attention": {}}
        return json.dumps(head)[:-1].encode() + b',"changes":[' + b",".join(some) + b"]}"


def _after(head: str, query: str) -> str:
    """Return behind which number a stream is asked for."""
    for line in head.split("\r\n"):
        if line.lower().startswith("last-event-id:"):
            return line.split(":", 1)[1].strip()
    return parse_qs(query).get("after", ["0"])[0].partition("-")[0]


@asynccontextmanager
async def head_office(home: Path) -> AsyncIterator[tuple[NatsServer, Postgres, Path]]:
    """Run the servers, with stream and tables."""
    (home / "nats").mkdir()
    async with nats_server(home / "nats") as server, postgres(syncs=True) as database:
        config = home / "office.toml"
        config.write_text(f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\n')
        assert await (await start(config, "collect", "--init")).ended() == 0
        yield server, database, config


async def start(config: Path, *arguments: str) -> Process:
    """Start a command."""
    process = Process(
        await forks.start(
            "--config", str(config), *arguments, env=os.environ | {OWNER: owner()}, stderr=asyncio.subprocess.STDOUT
        )
    )
    process.read()
    return process


async def stored_bytes(server: NatsServer) -> tuple[int, int]:
    """Return how many messages the stream has, and how large it is."""
    async with server.client() as client:
        state = (await client.jetstream().stream_info(STREAM)).state
    return state.messages, state.bytes


async def relays(count: int, seconds: float, every: float) -> None:
    """Have relays of lanes that each make a payment every so many seconds; then the server is killed."""
    payment = changes(len(PAYMENT))
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="posd-")))
        server, database, office = await stack.enter_async_context(head_office(home))
        feeds = [Feed(f"sizing-{number}") for number in range(count)]
        running: list[Process] = []
        collector = await start(office, "collect")
        for number, feed in enumerate(feeds):
            place = home / str(number)
            place.mkdir()
            await stack.enter_async_context(feed.served(place / "feed.sock"))
            config = place / "lane.toml"
            config.write_text(
                f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{place}"\n'
                f'[relay]\nservers = ["{server.url}"]\nlane = "l{number}"\n'
            )
            running.append(await start(config, "relay"))
        await complete(database, feeds)
        idle = _used(running)
        await asyncio.sleep(seconds)
        waiting = (_used(running) - idle) / seconds / count
        begun, before = _used(running), await stored_bytes(server)
        nats = processor_seconds(_pid(server))
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for turn in range(10):  # the lanes one after the other, over the whole time
                for feed in feeds[turn::10]:
                    feed.grow(_numbered(payment, len(feed.found)))
                await asyncio.sleep(min(every / 10, max(left, 0.0)))
        await complete(database, feeds)
        await _report(server, running, feeds, seconds, waiting, _used(running) - begun, before, nats)
        await server.stop(signal.SIGKILL)
        for feed in feeds:
            feed.grow(_numbered(payment, len(feed.found)))
        for process in running:
            await process.said("relay.waiting")
        again = time.monotonic()
        await server.start()
        await complete(database, feeds)
        print(f"  the server was killed; all lanes are complete {time.monotonic() - again:.1f} s after its start")
        for process in [*running, collector]:
            assert await process.stop() == 0, process.lines


async def _report(
    server: NatsServer,
    running: Sequence[Process],
    feeds: Sequence[Feed],
    seconds: float,
    waiting: float,
    used: float,
    before: tuple[int, int],
    nats: float,
) -> None:
    messages, size = (now - then for now, then in zip(await stored_bytes(server), before, strict=True))
    count, sent = len(feeds), sum(len(feed.found) for feed in feeds)
    memory = sum(_proportional(process) for process in running) / count / MIB
    serving = (processor_seconds(_pid(server)) - nats) / seconds
    print(f"{count} relays, {sent:,} changes in {seconds:g} s ({sent / seconds:,.0f}/s), all in the table")
    print(f"  messages {messages:,}, {size / max(1, sent):,.0f} bytes a change in the stream")
    print(f"  a relay: {memory:.0f} MB of its own, {waiting:.2%} of a processor idle, {used / seconds / count:.2%} so")
    print(f"  nats-server: {resident_bytes(_pid(server)) / MIB:.0f} MB, {serving:.1%} of a processor")


def _numbered(payment: Sequence[bytes], after: int) -> list[bytes]:
    """Return the changes of a payment behind a number."""
    found = []
    for at, change in enumerate(payment, 1):
        document = json.loads(change) | {"seq": after + at, "id": f"payment-{after}"}
        found.append(json.dumps(document, separators=(",", ":")).encode())
    return found


def _used(processes: Sequence[Process]) -> float:
    return sum(processor_seconds(process.process.pid) for process in processes)


def _pid(server: NatsServer) -> int:
    assert server._process is not None
    return server._process.pid


def _proportional(process: Process) -> int:
    """Return its memory, of what it shares with others its part (Pss)."""
    lines = Path(f"/proc/{process.process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


async def complete(database: Postgres, feeds: Sequence[Feed]) -> None:
    """Wait until the tables have all of all feeds."""
    wanted = sum(len(feed.found) for feed in feeds)
    query = "SELECT count(*), coalesce(sum(complete_to_seq), 0) FROM posd.lanes WHERE complete_to_at IS NOT NULL"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await database.rows(query) != [(len(feeds), wanted)]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


def of_lanes(count: int, each: int, batch: int) -> Iterator[tuple[str, bytes]]:
    """Yield what so many lanes send: a beginning, all their changes in messages, and a state; in turns."""
    some = changes(each)
    runs = [some[first : first + batch] for first in range(0, each, batch)]
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def message(lane: int, kind: str, **members: Any) -> tuple[str, dict[str, Any]]:
        head = {"v": 1, "kind": kind, "merchant": "m1", "lane": f"l{lane}", "database_id": f"sizing-{lane}", "at": at}
        return f"posd.m1.l{lane}", head | members

    def encoded(found: tuple[str, dict[str, Any]]) -> tuple[str, bytes]:
        return found[0], json.dumps(found[1], separators=(",", ":")).encode()

    for lane in range(count):
        yield encoded(message(lane, "begin", first_seq=1, previous=None))
    for number, run in enumerate(runs):
        first = number * batch + 1
        body = b",".join(run)
        for lane in range(count):
            subject, head = message(lane, "changes", first_seq=first, last_seq=first + len(run) - 1)
            # each lane has payments of its own
            yield subject, json.dumps(head, separators=(",", ":"))[:-1].encode() + b',"changes":[' + body + b"]}"
    for lane in range(count):
        yield encoded(
            message(lane, "state", last_seq=each, as_of=at, version="1", health={"status": "ok"}, open=0, attention={})
        )


async def through_collectors(count: int, each: int, batch: int, collectors: int) -> None:
    """Put the messages of lanes on the stream, and have them collected."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with head_office(Path(directory)) as (server, database, office):
            began = time.monotonic()
            messages, size = await _published(
                server, of_lanes(count, each, batch), 2 * count + count * -(-each // batch)
            )
            print(f"{count:,} lanes, {count * each:,} changes, {messages:,} messages, made in {_since(began):.0f} s")
            print(f"  stream: {size / MIB:,.0f} MB, {size / count / each:,.0f} bytes a change")
            began = time.monotonic()
            taking = [await start(office, "collect", "--once") for _ in range(collectors)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                for process in taking:
                    await process.process.wait()
            took = _since(began)
            for process in taking:
                assert await process.ended() == 0, (process.lines, process.text)
            rows = await database.rows("SELECT complete_to_seq, count(*) FROM posd.lanes GROUP BY 1")
            assert rows == [(each, count)], rows
            query = "SELECT count(*), pg_database_size(current_database()) FROM posd.changes"
            ((stored, size),) = await database.rows(query)
            assert stored == count * each
            print(f"  {collectors} collecting: {took:.1f} s")
            print(f"  {stored / took:,.0f} changes/s, {messages / took:,.0f} messages/s")
            print(f"  PostgreSQL: {size / MIB:,.0f} MB, {size / stored:,.0f} bytes a change")
            began = time.monotonic()
            assert await (await start(office, "collect", "--check", "--json")).ended() == 0
            print(f"  posd collect --check: {_since(began):.1f} s")


async def _published(server: NatsServer, sent: Iterator[tuple[str, bytes]], wanted: int) -> tuple[int, int]:
    """Publish messages without waiting for each; return how many the stream has then, and its bytes."""
    async with server.client() as client:
        for number, (subject, data) in enumerate(sent):
            await client.publish(subject, data)
            if number % 1000 == 0:
                await client.flush()
        await client.flush()
    found = (0, 0)
    while found[0] < wanted:
        found = await stored_bytes(server)
    return found


def _since(began: float) -> float:
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.collect.sizing", description=str(__doc__))
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("relays")
    part.add_argument("--relays", type=int, default=200)
    part.add_argument("--seconds", type=float, default=60)
    part.add_argument("--every", type=float, default=10, help="seconds between the payments of a lane")
    part = parts.add_parser("lanes")
    part.add_argument("--lanes", type=int, default=10_000)
    part.add_argument("--changes", type=int, default=80)
    part.add_argument("--batch", type=int, default=len(PAYMENT), help="changes of a message")
    part.add_argument("--collectors", type=int, default=1)
    part = parts.add_parser("morning")
    part.add_argument("--lanes", type=int, default=1_000)
    part.add_argument("--changes", type=int, default=OF_A_DAY)
    part.add_argument("--batch", type=int, default=BATCH, help="changes of a message")
    part.add_argument("--collectors", type=int, default=1)
    given = parser.parse_args()
    if given.part == "relays":
        asyncio.run(relays(given.relays, given.seconds, given.every))
    else:
        asyncio.run(through_collectors(given.lanes, given.changes, given.batch, given.collectors))


if __name__ == "__main__":
    main()
