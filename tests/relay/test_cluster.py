"""A cluster of three servers. The relay sends nothing to an old version of the server, because the old server's check
of the last sequence is unsafe. A newer version loses no message.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from nats.errors import Error
from nats.js.api import StreamConfig

from posd.relay.stream import FENCE_HOLDS
from tests.relay.lane import Lane, once_each
from tests.relay.nats_server import STREAM, NatsServer, version
from tests.relay.test_relay import paid
from tests.rig.needs import find, needs
from tests.rig.ports import reserve
from tests.rig.program import Command
from tests.rig.shop import Shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("nats-server")]


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Sequence[NatsServer]]:
    """Run a cluster of three servers."""
    ports = [reserve() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    async with AsyncExitStack() as stack:
        found = []
        for number, port in enumerate(ports):
            home = directory / str(number)
            home.mkdir()
            more = (
                f"server_name: n{number}\n"
                f"cluster {{ name: c, listen: 127.0.0.1:{port}, routes: [{routes}], no_advertise: true }}\n"
            )
            found.append(await stack.enter_async_context(NatsServer(home, more)))
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def servers(tmp_path: Path) -> AsyncIterator[Sequence[NatsServer]]:
    async with cluster(tmp_path) as servers:
        yield servers


async def collect(servers: Sequence[NatsServer], directory: Path, *arguments: str) -> Command:
    config = directory / "office.toml"
    urls = ", ".join(f'"{server.url}"' for server in servers)
    config.write_text(f"[collect]\nservers = [{urls}]\n")
    return await Command.start(config, "collect", *arguments)


@pytest.mark.skipif(find("nats-server") is not None and version() >= FENCE_HOLDS, reason="the server is new enough")
async def test_a_cluster_of_an_old_version_is_refused(
    servers: Sequence[NatsServer], shop: Shop, tmp_path: Path
) -> None:
    relay = await Lane(shop.daemon, servers[0]).start()
    assert await relay.ended() == 2
    refused = await relay.log_line("relay.refused")
    assert "before 2.9.21" in refused["error"]
    assert refused["detail"]
    made = await collect(servers, tmp_path, "--init", "--replicas", "3")
    assert await made.ended() == 2
    assert "before 2.9.21" in made.text


@pytest.mark.skipif(find("nats-server") is not None and version() < FENCE_HOLDS, reason="the server is too old")
async def test_a_killed_server_stops_no_lane(servers: Sequence[NatsServer], shop: Shop) -> None:
    async with servers[0].client() as client, asyncio.timeout(60):
        config = StreamConfig(name=STREAM, subjects=["posd.*.*"], num_replicas=3, allow_direct=True)
        while True:
            try:
                await client.jetstream().add_stream(config)
                break
            except (Error, TimeoutError):  # the servers have not chosen a leader yet
                await asyncio.sleep(0.2)
    lane = Lane(shop.daemon, servers[0], urls=[server.url for server in servers])
    relay = await lane.start()
    await paid(shop)
    await lane.until_complete()
    used = (await relay.log_line("relay.connected"))["detail"]
    killed, lane.server, _ = sorted(servers, key=lambda server: not server.url.endswith(used))
    await killed.stop(signal.SIGKILL)
    await relay.log_line("relay.waiting")
    await paid(shop)
    assert once_each(await lane.until_complete()) == await lane.feed()
    assert await relay.stop() == 0
