"""The collector's metrics: true to what it took and to the tables, with words of posd's own alone."""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import psycopg

from posd.collect import collector as metrics
from posd.collect import questions
from posd.collect.store import CollectorStore, parsed
from posd.relay.stream import FENCE_HOLDS
from tests.collect.life import as_messages, life
from tests.collect.postgres import postgres
from tests.relay.lane import Process
from tests.relay.nats_server import nats_server, version
from tests.relay.scrapes import numbers, scraped
from tests.support import forks
from tests.support.leftovers import OWNER, owner
from tests.support.needs import needs
from tests.support.ports import reserve

pytestmark = needs("postgres", "initdb", "nats-server")


async def started(config: Path, *arguments: str) -> Process:
    environment = os.environ | {OWNER: owner()}
    process = await forks.start(
        "--config", str(config), "collect", *arguments, env=environment, stderr=asyncio.subprocess.STDOUT
    )
    found = Process(process)
    found.read()
    return found


async def test_they_say_what_was_taken_and_how_the_lanes_are(tmp_path: Path) -> None:
    port, lanes = reserve(), [life(1, "a"), life(2, "b")]
    async with nats_server(tmp_path) as server, postgres() as database:
        config = tmp_path / "office.toml"
        config.write_text(
            f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\nmetrics_listen = "127.0.0.1:{port}"\n'
        )
        assert await (await started(config, "--init")).ended() == 0
        messages = [message for lane in lanes for message in as_messages(lane.sent)]
        for message in messages:
            await server.put(message.subject, message.data)
        await server.put("posd.m1.a", b"nonsense")
        collector = await started(config)
        await collector.said("collect.unreadable")
        assert any(line["event"] == "collect.old_server" for line in collector.lines) == (version() < FENCE_HOLDS)
        async with asyncio.timeout(60):
            while numbers(found := await scraped(port), "posd_collect_waiting_messages") != {"": 0}:
                pass
        assert {name: family.labels for name, family in found.items()} == {
            name: set(family.labels) for name, family in metrics.FAMILIES.items()
        }
        assert numbers(found, "posd_collect_messages_total") == {"": len(messages) + 1}
        assert numbers(found, "posd_collect_unreadable_total") == {"": 1}
        assert numbers(found, "posd_collect_connected") == {"": 1}
        assert found["posd_collect_store_seconds"].samples["posd_collect_store_seconds_count", ()] >= 1
        assert numbers(found, "posd_fleet_lanes") == {"": 2}
        assert numbers(found, "posd_fleet_lanes_silent") == {"": 0}
        assert numbers(found, "posd_fleet_lanes_incomplete") == {"": 0}
        assert numbers(found, "posd_fleet_lost_changes") == {"": sum(lane.lost for lane in lanes)}
        assert numbers(found, "posd_fleet_unreadable_messages") == {"": 1}
        ((doubt, attention),) = await database.rows(
            "SELECT (SELECT count(*) FROM posd.payments WHERE in_doubt), (SELECT count(*) FROM posd.attention)"
        )
        assert doubt
        assert attention
        assert numbers(found, "posd_fleet_payments_in_doubt") == {"": doubt}
        assert sum(numbers(found, "posd_fleet_attention").values()) == attention

        await database.stop()
        await server.put("posd.m1.a", b"nonsense again")
        await collector.said("collect.waiting")
        found = await scraped(port)
        assert numbers(found, "posd_fleet_readable") == {"": 0}
        assert "posd_fleet_lanes" not in found
        assert numbers(found, "posd_collect_connected") == {"": 0}
        assert numbers(found, "posd_collect_failures_total")["postgresql"] >= 1
        assert await collector.stop() == 0


async def test_every_table_of_the_dashboard_can_be_asked_for() -> None:
    dashboard = json.loads((Path(__file__).parents[2] / "monitoring" / "grafana-fleet.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked = [target["rawSql"] for target in targets if "rawSql" in target]
    assert len(asked) == 5
    async with postgres() as server:
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            store = CollectorStore(connection)
            await store.prepare(init=True)
            late, gap = life(1, "a"), life(2, "b")
            assert await store.write(parsed(as_messages([*late.sent, *gap.sent[:1], *gap.sent[2:]]))) == 0
        found = [await server.rows(query) for query in asked]
        today = "SELECT count(*) FROM posd.totals WHERE day = current_date"
        empty = [query for query, rows in zip(asked, found, strict=True) if not rows]
        assert [query for query in empty if "posd.totals" not in query] == []
        assert await server.rows(today) == [(0,)], "what is shown of today was of another day"


async def test_no_lane_makes_up_a_word() -> None:
    async with postgres() as server:
        connection = await psycopg.AsyncConnection.connect(server.dsn, autocommit=True)
        async with connection:
            store = CollectorStore(connection)
            await store.prepare(init=True)
            sent = life(3).sent
            for message in sent:
                if message["kind"] == "state":
                    message["health"] = {"status": "evil"}
                for change in message.get("changes", ()):
                    change["attention"] = ["made_up", "in_doubt"]
            assert await store.write(parsed(as_messages(sent))) == 0
            fleet = await questions.fleet(connection)
            codes = Counter(
                code for (code,) in await (await connection.execute("SELECT code FROM posd.attention")).fetchall()
            )
    assert codes["made_up"] > 1
    assert fleet.health == {"ok": 0, "degraded": 0, "failing": 0, "unreachable": 0, "other": 1}
    assert fleet.attention["other"] == codes["made_up"]
    assert fleet.attention["in_doubt"] == codes["in_doubt"]
    text = metrics.metrics_text(metrics.CollectorCounters(), None, fleet)
    assert "evil" not in text
    assert "made_up" not in text
