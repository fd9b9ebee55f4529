"""Connections of a Unix socket by process and by user, with a real listener and real processes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from posd.base.clocks import wall
from posd.daemon import sockets
from posd.httpd import bodies, server
from posd.httpd.admission import MAX_TURNED_AWAY, ListenerPolicy, PeerQuotas, RejectedTraffic, SocketPeer
from posd.httpd.server import HttpListener
from tests.rig.senders import ask_on, process
from tests.rig.waits import until

PATIENCE = 30.0
OF_PROCESS, OF_USER, OF_SOCKET = 3, 5, 6


@dataclass
class Here:
    """A listener with small limits, and its recorded refusals."""

    path: Path
    listener: HttpListener
    refused: list[tuple[str, SocketPeer]] = field(default_factory=list)

    async def statuses(self, connections: Sequence[socket.socket]) -> list[int]:
        """Send a request on each connection. Return the statuses."""
        found = []
        for item in connections:
            asked = await ask_on(item, "/x")
            found.append((await asked.reply())[0])
            asked.hang_up()
        return found

    async def down_to(self, count: int) -> None:
        """Wait until at most this many connections are left."""
        await until(lambda: self.listener.connections <= count)


async def answer(scope: Any, _receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await bodies.answer(send, 200, b"{}")


@asynccontextmanager
async def listening(of_user: int = OF_USER) -> AsyncIterator[Here]:
    with TemporaryDirectory(prefix="posd-") as home:
        path = Path(home) / "till.sock"

        def on_full(which: str, sender: SocketPeer) -> bytes:
            here.refused.append((which, sender))
            body = json.dumps({"limit": which}).encode()
            return b"HTTP/1.1 429 \r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

        listener = HttpListener(
            answer,
            sockets.unix_socket(path, ""),
            ListenerPolicy(name="till.sock", keep_alive_seconds=PATIENCE, max_connections=OF_SOCKET),
            RejectedTraffic(),
            wall,
            PeerQuotas(OF_PROCESS, of_user, on_full),
        )
        here = Here(path, listener)
        listener.start()
        try:
            yield here
        finally:
            await listener.close(PATIENCE)


def test_another_file_at_the_path_of_a_socket_is_kept_and_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "till.sock"
    path.write_text("of somebody")
    with pytest.raises(sockets.SocketError, match=r"till\.sock \(another file is there\); move it away, or remove it$"):
        sockets.unix_socket(path, "")
    assert path.read_text() == "of somebody"


async def test_the_limit_of_a_process_does_not_affect_other_processes() -> None:
    async with listening() as here:
        with process(here.path, OF_PROCESS + 1) as greedy, process(here.path, 1) as other:
            assert await here.statuses(greedy) == [200] * OF_PROCESS + [429]
            assert await here.statuses(other) == [200]
            assert [which for which, _ in here.refused] == ["process"]
        await here.down_to(0)
        with process(here.path, OF_PROCESS) as again:
            assert await here.statuses(again) == [200] * OF_PROCESS


async def test_all_processes_of_a_user_share_a_larger_limit() -> None:
    async with listening() as here:
        with process(here.path, OF_PROCESS) as first, process(here.path, OF_PROCESS) as second:
            assert await here.statuses([*first, *second]) == [200] * OF_USER + [429]
            assert [which for which, _ in here.refused] == ["user"]


async def test_a_socket_has_a_limit() -> None:
    async with listening(of_user=100) as here, asyncio.timeout(PATIENCE):
        with (
            process(here.path, OF_PROCESS) as first,
            process(here.path, OF_PROCESS) as second,
            process(here.path, 1) as third,
        ):
            assert await here.statuses([*first, *second, *third]) == [200] * OF_SOCKET + [429]
            assert [which for which, _ in here.refused] == ["socket"]


async def test_a_process_without_a_known_pid_is_counted_by_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nameless:
        size = server._PEER_CREDENTIALS.size

        def unpack(self, data: bytes) -> tuple[int, int, int]:
            return 0, 1000, 1000

    monkeypatch.setattr(server, "_PEER_CREDENTIALS", Nameless())
    async with listening() as here:
        with process(here.path, OF_USER + 1) as all_of_them:
            assert await here.statuses(all_of_them) == [200] * OF_USER + [429]
            assert here.refused == [("user", SocketPeer(0, 1000))]


async def test_refused_connections_are_few_and_closed_in_a_second_even_if_they_send_nothing() -> None:
    async with listening() as here:
        many = MAX_TURNED_AWAY * 3
        with process(here.path, OF_PROCESS) as held, ExitStack() as stack:
            assert await here.statuses(held) == [200] * OF_PROCESS
            greedy = stack.enter_context(process(here.path, OF_PROCESS + many))
            waiting = here.listener._senders._waiting  # type: ignore[union-attr]
            for item in greedy[-many:]:
                asked = await asyncio.open_unix_connection(sock=item.dup())
                assert len(waiting) <= MAX_TURNED_AWAY
                head = await asyncio.wait_for(asked[0].readuntil(b"\r\n\r\n"), PATIENCE)
                assert head.startswith(b"HTTP/1.1 429 ")
                asked[1].transport.abort()
            await until(lambda: not waiting)
            assert here.listener.connections == OF_USER
