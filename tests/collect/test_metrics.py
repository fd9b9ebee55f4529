"""The collector's metrics. The metrics match the collector's input and the tables, and labels have only words of
posd.
"""

import asyncio
from pathlib import Path

from posd.collect import collector as metrics
from posd.relay.stream import FENCE_HOLDS
from tests.collect.life import as_messages, life
from tests.collect.postgres import postgres
from tests.relay.nats_server import NatsServer, version
from tests.relay.scrapes import numbers, scraped
from tests.rig.needs import needs
from tests.rig.ports import reserve
from tests.rig.program import Command

pytestmark = needs("postgres", "initdb", "nats-server")


async def test_the_metrics_show_stored_messages_and_the_state_of_the_lanes(tmp_path: Path) -> None:
    port, lanes = reserve(), [life(1, "a"), life(2, "b")]
    async with NatsServer(tmp_path) as server, postgres() as database:
        config = tmp_path / "office.toml"
        config.write_text(
            f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\nmetrics_listen = "127.0.0.1:{port}"\n'
        )
        assert await (await Command.start(config, "collect", "--init")).ended() == 0
        messages = [message for lane in lanes for message in as_messages(lane.sent)]
        for message in messages:
            await server.put(message.subject, message.data)
        await server.put("posd.m1.a", b"nonsense")
        collector = await Command.start(config, "collect")
        await collector.log_line("collect.unreadable")
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
        await collector.log_line("collect.waiting")
        found = await scraped(port)
        assert numbers(found, "posd_fleet_readable") == {"": 0}
        assert "posd_fleet_lanes" not in found
        assert numbers(found, "posd_collect_connected") == {"": 0}
        assert numbers(found, "posd_collect_failures_total")["postgresql"] >= 1
        assert await collector.stop() == 0
