"""What the service manager hears."""

import asyncio
import socket
from pathlib import Path

from posd import tls
from tests.support.daemon import Daemon, toml
from tests.support.terminal import ScriptedTerminal


async def test_ready_when_it_serves_and_stopping_when_it_was_told_to(home: Path, terminal: ScriptedTerminal) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "notify"))
        manager.setblocking(False)

        async def heard() -> dict[str, str]:
            text = (await asyncio.wait_for(loop.sock_recv(manager, 4096), 60)).decode()
            return dict(line.split("=", 1) for line in text.splitlines())

        tls.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), {"NOTIFY_SOCKET": str(home / "notify")})
        await posd.start(wait=False)
        ready = await heard()
        assert (ready["READY"], "listening on 127.0.0.1:" in ready["STATUS"]) == ("1", True)
        assert (await posd.call("GET", "/health")).json["status"] == "ok"
        assert await posd.stop() == 0
        assert (await heard())["STOPPING"] == "1"


async def test_what_keeps_it_from_starting_is_its_status(home: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "notify"))
        manager.setblocking(False)
        posd = Daemon(home, toml(home, ""), {"NOTIFY_SOCKET": str(home / "notify")})
        await posd.start(wait=False)
        text = (await asyncio.wait_for(loop.sock_recv(manager, 4096), 60)).decode()
        assert text.startswith("STATUS=cannot start: ")
        assert "posd tls init" in text
        assert posd.process is not None
        assert await posd.process.wait() == 2
        await posd.stop()
