"""feed.sock: who may read the feed, and nothing else can be done there."""

import signal
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from posd.api import routes
from tests.support.daemon import Daemon, running
from tests.support.streams import stream
from tests.support.tables import there

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A group that no machine has.
NO_GROUP = "posd-none"


@asynccontextmanager
async def daemon(directory: Path, group: str) -> AsyncIterator[Daemon]:
    """Run a daemon with that feed_group, "" for its own."""
    (directory / "config.d").mkdir()
    (directory / "config.d" / "relay.toml").write_text(f'[local_api]\nfeed_group = "{group}"\n')
    async with running(directory, '[[terminals]]\nserial = "SN-1"\n') as posd:
        yield posd


async def test_it_serves_the_feed_the_health_and_the_version(tmp_path: Path) -> None:
    async with daemon(tmp_path, "") as posd:
        socket = posd.directory / "run" / "feed.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        for path in ("/feed", "/feed?after=0&with=outcome", "/health", "/version"):
            assert (await posd.call("GET", path, socket=socket)).status == 200, path
        async with stream(socket, "/feed"):
            pass


async def test_it_gives_metadata_only_where_the_configuration_lets_it(tmp_path: Path) -> None:
    """A program of the group posd-feed decides nothing: the daemon does, also after a reload. A till reads its own."""
    asked = "/feed?with=outcome,metadata"
    async with daemon(tmp_path, "") as posd:
        socket, settings = posd.directory / "run" / "feed.sock", posd.directory / "config.d" / "relay.toml"
        for allowed, status in (("false", 403), ("true", 200), ("false", 403)):
            settings.write_text(f'[local_api]\nfeed_group = ""\n[relay]\nmetadata = {allowed}\n')
            lines = len(posd.lines)
            there(posd.process).send_signal(signal.SIGHUP)
            await posd.log_line("config.loaded", after=lines)
            reply = await posd.call("GET", asked, socket=socket)
            assert reply.status == status
            assert status == 200 or reply.json["code"] == "forbidden"
            assert (await posd.call("GET", "/feed?with=outcome", socket=socket)).status == 200
            assert (await posd.call("GET", asked)).status == 200


async def test_it_serves_nothing_else(tmp_path: Path) -> None:
    async with daemon(tmp_path, "") as posd:
        socket = posd.directory / "run" / "feed.sock"
        others = [route for route in routes.ALL if not route.feed]
        assert len(others) > 30
        for route in others:
            path = route.path.removeprefix("/v1").replace("{", "").replace("}", "")
            reply = await posd.call(route.method, path, {} if route.method != "GET" else None, socket=socket)
            assert (reply.status, reply.json["code"]) == (404, "not_found"), route
            assert "the till socket the rest" in reply.json["detail"]


async def test_without_its_group_there_is_none_and_posd_starts(tmp_path: Path) -> None:
    async with daemon(tmp_path, NO_GROUP) as posd:
        assert (await posd.call("GET", "/feed")).status == 200
        assert not (posd.directory / "run" / "feed.sock").exists()
        line = await posd.log_line("feed.no_socket")
        assert line["level"] == "info"
        assert f"groupadd {NO_GROUP}" in line["error"]
