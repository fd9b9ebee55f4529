"""No lane harms another lane. The data of other lanes is stored as sent, for any messages of a hostile lane."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from posd.collect.collector import Collector, CollectorCounters
from posd.config import load
from tests.collect.hostile import HostileLanes, Sent
from tests.collect.life import LaneLife, life
from tests.collect.postgres import Postgres, postgres
from tests.relay.nats_server import NatsServer
from tests.rig.commands import Done, posd
from tests.rig.needs import needs

pytestmark = needs("nats-server", "postgres", "initdb")

PATIENCE_SECONDS = 60.0
#: Queries of the data of the harmless lanes.
GOOD = {
    "lanes": "lane, database_id, complete_to_seq, complete_to_at, version, health, open, attention",
    "databases": "*",
    "changes": "*",
    "payments": "to_jsonb(payments) - 'received_at'",  # the messages are sent twice
    "print_jobs": "*",
    "attention": "*",
    "gaps": "*",
}
QUESTIONS = (
    ("--check", "--json"),
    ("--check", "--quick", "--json"),
    ("totals", "--day", "2000-01-01", "--to", "2099-12-31", "--json"),
    ("ids", "--lane", "bad-0", "--since", "1970-01-02", "--json"),
)


class Office:
    """A running collector, and the messages sent to it."""

    def __init__(self, server: NatsServer, database: Postgres, config: Path) -> None:
        self.server, self.database, self.config = server, database, config
        self.sent = 0
        self._news = asyncio.Event()
        self.collector = Collector(load(config, check_files=False).collect, self._heard)

    def _heard(self, _: CollectorCounters) -> None:
        self._news.set()

    async def send(self, messages: Sequence[Sent]) -> None:
        """Publish messages. Wait until the collector has stored the messages or set them aside."""
        async with self.server.client() as client:
            for subject, data in messages:
                await client.jetstream().publish(subject, data)
        self.sent += len(messages)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.collector.counts.messages_total < self.sent:
                self._news.clear()
                await self._news.wait()

    async def ask(self, *arguments: str) -> Done:
        return await asyncio.to_thread(posd, "collect", *arguments, config=self.config)

    async def good(self) -> dict[str, list[str]]:
        """Return the stored data of the harmless lanes."""
        found = {}
        for table, columns in GOOD.items():
            rows = await self.database.rows(f"SELECT {columns} FROM posd.{table} WHERE lane LIKE 'good-%'")
            found[table] = sorted(map(repr, rows))
        rows = await self.database.rows(
            "SELECT l.* FROM posd.lost l JOIN posd.databases USING (database_id) WHERE lane LIKE 'good-%'"
        )
        return found | {"lost": sorted(map(repr, rows))}


def as_sent(message: dict[str, Any]) -> Sent:
    return f"posd.{message['merchant']}.{message['lane']}", json.dumps(message).encode()


def interleaved(random: Random, lanes: Sequence[LaneLife]) -> list[dict[str, Any]]:
    """Return messages of several lanes in mixed order. Each lane keeps its order."""
    left = [list(reversed(lane.sent)) for lane in lanes]
    found = []
    while left := [sent for sent in left if sent]:
        found.append(random.choice(left).pop())
    return found


@pytest.mark.parametrize(
    ("seed", "count", "at_once"),
    [(1, 160, 40), pytest.param(2, 10_000, 50, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
async def test_hostile_lanes_change_no_honest_data(tmp_path: Path, seed: int, count: int, at_once: int) -> None:
    random = Random(seed)
    lanes = [life(seed + number, f"good-{number}") for number in range(3)]
    honest = interleaved(random, lanes)
    async with NatsServer(tmp_path) as server, postgres() as database:
        config = tmp_path / "office.toml"
        config.write_text(f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\n')
        office = Office(server, database, config)
        assert (await office.ask("--init")).returncode == 0
        working = asyncio.create_task(office.collector.run())
        try:
            await office.send([as_sent(message) for message in honest])
            wanted = await office.good()
            assert wanted["gaps"] == []
            names = await database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'posd'")
            for (name,) in names:
                if name not in ("schema_version", "operations"):
                    await database.rows(f"TRUNCATE posd.{name} CASCADE")

            hostile = HostileLanes(seed, honest)
            rounds = count // at_once
            for number in range(rounds):
                first, last = (len(honest) * part // rounds for part in (number, number + 1))
                mixed = [*map(as_sent, honest[first:last])]
                for message in islice(hostile.messages(first), at_once):
                    mixed.insert(random.randrange(len(mixed) + 1), message)
                # insertions do not change the order of the genuine messages
                await office.send(mixed)
                for arguments in QUESTIONS:
                    done = await office.ask(*arguments)
                    assert done.returncode in (0, 1), (arguments, done.stderr)
                    json.loads(done.stdout, parse_constant=pytest.fail)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
        assert office.collector.counts.failures_total.total() == 0
        assert await office.good() == wanted
        stored = await database.rows("SELECT database_id, seq, change FROM posd.changes WHERE lane LIKE 'good-%'")
        sent = {key: change for lane in lanes for key, change in lane.changes.items()}
        assert {(database_id, seq): change for database_id, seq, change in stored} == sent
        assert await database.rows("SELECT * FROM posd.unreadable WHERE subject LIKE 'posd.m1.good-%'") == []
        (aside,), (kept,) = await database.rows(
            "SELECT count(*) FROM posd.unreadable UNION ALL SELECT count(*) FROM posd.changes WHERE lane LIKE 'bad-%'"
        )
        assert min(aside, kept) > 0, "both happen"
        for arguments in QUESTIONS:
            assert (await office.ask(*arguments[:-1])).returncode in (0, 1)
