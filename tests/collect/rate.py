"""How fast a lane catches up: a synthetic feed, through a real relay and collector, beside what the engines do alone.

`python -m tests.collect.rate --changes 1000000` prints the rates of one run, and their ratios.
"""

import argparse
import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import psycopg

from posd.relay.stream import EXPECTED
from tests.collect.postgres import Postgres, postgres
from tests.relay.lane import Process
from tests.relay.nats_server import NatsServer, nats_server
from tests.support import forks
from tests.support.leftovers import OWNER, owner

BATCH = 100
DATABASE_ID = "rate"
#: The changes of one payment: phase and result.
PAYMENT = (*(("active", None),) * 7, ("final", "approved"))
BEGAN = datetime(2026, 11, 20, tzinfo=UTC)


def changes(count: int) -> list[bytes]:
    """Return so many changes of a feed, as JSON: payments of eight changes each, one after the other."""
    found = []
    identity = ""
    for seq in range(1, count + 1):
        phase, result = PAYMENT[(seq - 1) % len(PAYMENT)]
        if (seq - 1) % len(PAYMENT) == 0:
            identity = str(uuid.UUID(int=seq))
        at = (BEGAN + timedelta(seconds=seq)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        change: dict[str, Any] = {
            "seq": seq, "at": at, "kind": "transaction", "id": identity, "reason": "event:CARD_PRESENTED",
            "phase": phase, "status": "CARD_PRESENTED", "result": result, "attention": [], "terminal": "SN-0001",
        }  # fmt: skip
        if result is not None:
            change["outcome"] = {
                "result": result, "status": "APPROVAL", "decided_by": "event", "corrected": False, "type": "charge",
                "sale": f"sale {seq}", "original": None, "amount": {"subtotal_iva": 10, "iva": 1.2},
                "authorized_amount": 11.2, "tip": None, "currency": "USD", "transaction_reference": identity,
                "ticket_number": "000123", "reversal": None, "created_at": at, "occurred_at": at, "decided_at": at,
            }  # fmt: skip
        found.append(json.dumps(change, separators=(",", ":")).encode())
    return found


@asynccontextmanager
async def feed(socket: Path, found: list[bytes]) -> AsyncIterator[None]:
    """Serve them as posd does on feed.sock."""
    database = {"database_id": DATABASE_ID, "first_seq": 1, "last_seq": len(found)}
    health = {"status": "ok", "checks": {}}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the client looks first whether somebody is there
            while True:
                line = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                body = answer(urlsplit(line))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    def answer(url: SplitResult) -> bytes:
        if url.path != "/v1/feed":
            return json.dumps(health if url.path == "/v1/health" else {"version": "rate"}).encode()
        query = parse_qs(url.query)
        after, limit = int(query["after"][0].partition("-")[0]), int(query["limit"][0])
        some = found[after : after + limit]
        more: dict[str, Any] = {"open": 0, "attention": {}} if len(some) < limit else {}
        head = {
            "database_id": DATABASE_ID,
            "first_seq": 1,
            "next_after": after + len(some),
            "place": str(after + len(some)),
            "notices": [],
            "databases": [database],
        } | more
        return json.dumps(head)[:-1].encode() + b',"changes":[' + b",".join(some) + b"]}"

    server = await asyncio.start_unix_server(serve, str(socket))
    try:
        yield
    finally:
        server.close()


async def raw_publish(server: NatsServer, found: list[bytes]) -> float:
    """Publish them fenced, one message of 100 in flight, and nothing else; return the rate."""
    async with server.client() as client:
        jetstream, sequence = client.jetstream(), 0
        before = time.monotonic()
        for first in range(0, len(found), BATCH):
            data = b"[" + b",".join(found[first : first + BATCH]) + b"]"
            sequence = (await jetstream.publish("posd.raw.lane", data, headers={EXPECTED: str(sequence)})).seq
        return len(found) / (time.monotonic() - before)


async def raw_copy(database: Postgres, found: list[bytes]) -> float:
    """Copy them into a table with the same key, 5,000 in a transaction, and nothing else; return the rate."""
    async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as connection:
        await connection.execute(
            "CREATE TABLE raw (database_id text, seq bigint, change jsonb, PRIMARY KEY (database_id, seq))"
        )
        before = time.monotonic()
        for first in range(0, len(found), 5000):
            async with connection.transaction():
                await connection.execute("CREATE TEMPORARY TABLE i (LIKE raw) ON COMMIT DROP")
                async with connection.cursor() as cursor, cursor.copy("COPY i FROM STDIN") as copy:
                    for seq, change in enumerate(found[first : first + 5000], first + 1):
                        await copy.write_row((DATABASE_ID, seq, change.decode()))
                await connection.execute("INSERT INTO raw SELECT * FROM i ON CONFLICT DO NOTHING")
        return len(found) / (time.monotonic() - before)


async def through(home: Path, server: NatsServer, database: Postgres, found: list[bytes], collectors: int) -> float:
    """Send them through a relay and collectors; return the rate from the start to the last row in the table."""

    async def start(config: Path, *arguments: str) -> Process:
        environment = os.environ | {OWNER: owner()}
        process = Process(
            await forks.start("--config", str(config), *arguments, env=environment, stderr=asyncio.subprocess.STDOUT)
        )
        process.read()
        return process

    lane, office = home / "lane.toml", home / "office.toml"
    lane.write_text(
        f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{home}"\n'
        f'[relay]\nservers = ["{server.url}"]\nlane = "rate"\n'
    )
    office.write_text(f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\n')
    assert await (await start(office, "collect", "--init")).ended() == 0
    async with feed(home / "feed.sock", found):
        before = time.monotonic()
        taking = [await start(office, "collect") for _ in range(collectors)]
        relay = await start(lane, "relay", "--once")
        assert await relay.ended() == 0, (relay.lines, relay.text)
        sent = time.monotonic()
        while await database.rows("SELECT complete_to_seq FROM posd.lanes WHERE lane = 'rate'") != [(len(found),)]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        took = time.monotonic() - before
        print(f"  relay alone: {len(found) / (sent - before):,.0f}/s while {collectors} collected")
        for process in taking:
            assert await process.stop() == 0
    ((count, payments),) = await database.rows(
        "SELECT (SELECT count(*) FROM posd.changes), (SELECT count(*) FROM posd.payments WHERE result = 'approved')"
    )
    assert (count, payments) == (len(found), len(found) // len(PAYMENT))
    return len(found) / took


async def measure(count: int, collectors: int) -> None:
    """Measure all three in one run."""
    found = changes(count)
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        (home / "nats").mkdir()
        async with nats_server(home / "nats") as server, postgres(syncs=True) as database:
            await server.make_stream("RAW", "posd.raw.*")
            published, copied = await raw_publish(server, found), await raw_copy(database, found)
            async with server.client() as client:
                await client.jetstream().delete_stream("RAW")
            rate = await through(home, server, database, found, collectors)
    slower = min(published, copied)
    print(f"{count:,} changes: raw publish {published:,.0f}/s, raw COPY {copied:,.0f}/s, through both {rate:,.0f}/s")
    print(f"ratio to the slower: {rate / slower:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.collect.rate", description=str(__doc__))
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--collectors", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(measure(given.changes, given.collectors))


if __name__ == "__main__":
    main()
