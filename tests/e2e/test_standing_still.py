"""Every receiver of posd's output may be suspended: the log's reader, the service manager, tills, terminals, strangers.
While a receiver is suspended, payments continue, `/health` responds, posd accepts events, and SIGTERM works in time.
"""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base.fair_queue import APART_BYTES
from posd.httpd.messages import MAX_AT_ONCE
from posd.tls import issue
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon, living, toml
from tests.rig.events import body
from tests.rig.https import connect, deliver
from tests.rig.manager import Manager, manager
from tests.rig.needs import needs
from tests.rig.ports import reserve
from tests.rig.standing import FullOutput, fill_manager
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal

#: Limit in seconds of a call by a peer that is not suspended. The call takes 0.1 s on an idle machine.
PATIENCE_SECONDS = 15.0
#: Address of the test's name server. No other process of the tests uses this address.
NAME_SERVER = f"127.77.{os.getpid() // 256 % 256}.{os.getpid() % 254 + 1}"
#: More payments than fit into a pipe of the usual size. Each payment has ten log lines.
PAYMENTS = 60


async def pay(posd: Daemon, terminal: ScriptedTerminal, times: int = 1) -> list[str]:
    """Run payments from the start to the approval. Return their ids."""
    identities = [str(uuid4()) for _ in range(times)]
    for identity in identities:
        async with asyncio.timeout(PATIENCE_SECONDS):
            request = CHARGE | {"terminal": terminal.serial}
            reply = await posd.call("PUT", f"/transactions/{identity}", request)
            assert (reply.status, reply.json["phase"]) == (201, "active"), reply
            callback = next(item.callback for item in terminal.requests if identity.encode() in item.body)
            await posd.approve(callback, identity, terminal.serial)
            assert (await posd.outcome(identity))["result"] == "approved"
    return identities


async def well(posd: Daemon) -> None:
    """Check that the daemon responds, and ends on SIGTERM."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await posd.call("GET", "/health")).json["status"] == "ok"


async def until_it_serves(posd: Daemon) -> None:
    """Wait until the tills' socket responds."""
    async with asyncio.timeout(60):
        while True:
            try:
                reply = await posd.call("GET", "/health")
            except Exception:  # noqa: BLE001 - the daemon has no socket yet
                await asyncio.sleep(0.05)
            else:
                if reply.status == 200:
                    return


@asynccontextmanager
async def started(posd: Daemon) -> AsyncIterator[None]:
    """Run a daemon for the block. Nothing reads its log. Kill the daemon if the block fails."""
    issue.init(posd.directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    await posd.start(wait=False)
    try:
        await until_it_serves(posd)
        yield
    finally:
        if posd.process is not None:
            await posd.kill()


async def stops(posd: Daemon) -> None:
    """Check that SIGTERM ends the daemon in time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await posd.stop() == 0


@pytest.mark.parametrize("kind", ["pipe", pytest.param("socket", marks=pytest.mark.slow)])
async def test_payments_continue_while_the_log_is_not_read_and_no_line_is_lost(
    home: Path, terminal: ScriptedTerminal, kind: str
) -> None:
    with FullOutput(kind) as output:
        posd = Daemon(home, toml(home, terminal.toml, '[logging]\nlevel = "debug"\n'), log_to=output.write)
        async with started(posd):
            paid = await pay(posd, terminal, PAYMENTS)
            await well(posd)
            reading = asyncio.create_task(asyncio.to_thread(output.lines))
            await stops(posd)
        lines = await reading
    assert [line["transaction"] for line in lines if line["event"] == "payment.outcome"] == paid
    assert [line["event"] for line in lines][-2:] == ["posd.stopping", "posd.stopped"]
    assert sorted(line["timestamp"] for line in lines) == [line["timestamp"] for line in lines]


@needs("unshare", "mount", root=True)
async def test_payments_continue_while_the_name_server_does_not_reply(home: Path, terminal: ScriptedTerminal) -> None:
    """Each look-up of a name takes minutes. There are more look-ups than threads of a default executor."""
    others = [f"SN-NAME-{number}" for number in range(min(32, (os.cpu_count() or 1) + 4) + 1)]
    named = "".join(f'[[terminals]]\nserial = "{serial}"\nbase_url = "https://{serial}.test"\n' for serial in others)
    resolver = home / "resolv.conf"
    resolver.write_text(f"nameserver {NAME_SERVER}\noptions timeout:30 attempts:5\n")
    mounted = f'mount --bind {resolver} /etc/resolv.conf && exec "$@"'
    posd = Daemon(home, toml(home, terminal.toml + named), entering=("unshare", "--mount", "sh", "-c", mounted, "sh"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((NAME_SERVER, 53))
        async with started(posd):
            identity, large = str(uuid4()), {"metadata": {"text": "x" * APART_BYTES}}
            request = CHARGE | {"terminal": terminal.serial} | large
            assert (await posd.call("PUT", f"/transactions/{identity}", request)).status == 201
            starts = [posd.call("PUT", f"/transactions/{uuid4()}", CHARGE | {"terminal": serial}) for serial in others]
            assert {(await start).json["code"] for start in asyncio.as_completed(starts)} == {"terminal_offline"}
            async with asyncio.timeout(PATIENCE_SECONDS):
                event = body(identity, "TERMINAL_CANCELED", None, terminal.serial, **large)
                assert await deliver(terminal.requests[0].callback, event, posd.ca) == 200
            await stops(posd)


async def test_sigterm_ends_posd_while_the_log_is_not_read(home: Path, terminal: ScriptedTerminal) -> None:
    with FullOutput("socket") as output:
        posd = Daemon(home, toml(home, terminal.toml), log_to=output.write)
        async with started(posd):
            await stops(posd)


async def test_the_service_manager_gets_everything_when_it_reads_again(home: Path, terminal: ScriptedTerminal) -> None:
    """The manager's socket is full before the start, and stays full during payments. posd must notify READY once the
    manager reads."""
    with manager(home) as heard:
        fill_manager(heard.environment["NOTIFY_SOCKET"])
        posd = Daemon(home, toml(home, terminal.toml), heard.environment | {"WATCHDOG_USEC": "300000"})
        async with started(posd):
            await pay(posd, terminal, 2)
            await well(posd)
            await _heard_again(posd, heard)
            await stops(posd)


async def _heard_again(posd: Daemon, heard: Manager) -> None:
    """Resume the manager. Check that the manager gets each value once. Suspend the manager again."""
    ready = await heard.heard_of("READY")
    assert (ready["READY"], "listening on" in ready["STATUS"]) == ("1", True)
    assert "READY" not in await heard.heard_of("WATCHDOG"), "posd sends each value once"
    assert len([line for line in posd.lines if line["event"] == "manager.not_reading"]) == 1
    fill_manager(heard.environment["NOTIFY_SOCKET"])


Peer = AbstractAsyncContextManager[None]
HALF = b"GET /metrics HTTP/1.1\r\n"


def requests_for(path: str) -> bytes:
    """Return as many requests as posd accepts from a connection at once."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * MAX_AT_ONCE


@asynccontextmanager
async def unread(connecting: Awaitable[tuple[Any, asyncio.StreamWriter]], sent: bytes) -> AsyncIterator[None]:
    """Send bytes over a connection that is not read."""
    _, writer = await connecting
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(sent)
    yield
    writer.transport.abort()


class Counter:
    """A working shop with a terminal for payments, a suspended terminal, and helpers for calls of posd."""

    def __init__(self, posd: Daemon, stuck: str, metrics: int) -> None:
        self.posd, self.stuck, self.metrics = posd, stuck, metrics

    @asynccontextmanager
    async def log(self) -> AsyncIterator[None]:
        """Suspend the log's reader."""
        with self.posd.unread():
            yield

    def till(self) -> Peer:
        """Run a till that calls repeatedly and reads no response."""
        return unread(asyncio.open_unix_connection(self.posd.till_socket), requests_for("/v1/openapi.json"))

    def operator(self) -> Peer:
        """Run an operator's program that calls repeatedly and reads no response."""
        return unread(asyncio.open_unix_connection(self.posd.admin_socket), requests_for("/v1/status"))

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[None]:
        """Run a till that follows the feed without reading it."""
        with socket.socket(socket.AF_UNIX) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, str(self.posd.till_socket))
            head = b"GET /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(client, head)
            yield

    def prometheus(self) -> Peer:
        """Suspend a scraper during its request. The response is small, so the kernel buffers it."""
        return unread(asyncio.open_connection("127.0.0.1", self.metrics), HALF)

    def stranger(self) -> Peer:
        """Suspend a device on the LAN during its request. The response is small."""
        return unread(connect(self.posd.port, self.posd.ca), HALF)

    @asynccontextmanager
    async def payment_terminal(self) -> AsyncIterator[None]:
        """Run a terminal that accepts connections and reads nothing."""
        request = CHARGE | {"terminal": self.stuck}
        asking = asyncio.create_task(self.posd.call("PUT", f"/transactions/{uuid4()}", request))
        yield
        asking.cancel()
        await asyncio.wait({asking})


#: Writable descriptor of posd -> the suspended peer. None marks a descriptor of posd itself or of a disk. See
#: tests/power, tests/simulation and docs/guides/operations.md for these descriptors.
PEERS: dict[str, tuple[Callable[[Counter], Peer], ...] | None] = {
    "pipe": (Counter.log,),
    "a client of till.sock": (Counter.till, Counter.stream),
    "a client of admin.sock": (Counter.operator,),
    "a client of the metrics": (Counter.prometheus,),
    "a connection from the LAN": (Counter.stranger,),
    "a connection to a terminal": (Counter.payment_terminal,),
    "a listening socket": None,
    "its own": None,
    "a file": None,
}


def written_to(posd: Daemon, metrics: int) -> Iterator[str]:
    """Yield each writable descriptor of the daemon."""
    names = {int(line.split()[6]): line.split()[7:] for line in _table("unix")}
    flags = {int(line.split()[6]): line.split()[3] for line in _table("unix")}
    ports = {line.split()[9]: line.split()[1:4] for name in ("tcp", "tcp6") for line in _table(name)}
    for descriptor in Path(f"/proc/{there(posd.process).pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target, mode = str(descriptor.readlink()), descriptor.stat().st_mode
            if not descriptor.lstat().st_mode & stat.S_IWUSR:
                continue
            kind, _, number = target.partition(":")
            inode = number.strip("[]")
            if kind == "pipe":
                yield "pipe"
            elif kind == "anon_inode":
                yield "its own"
            elif kind != "socket":
                yield "a file" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or target == os.devnull else target
            elif inode in ports:
                local, _, state = ports[inode]
                port = int(local.rsplit(":", 1)[1], 16)
                if state == "0A":
                    yield "a listening socket"
                elif port in (posd.port, metrics):
                    yield "a connection from the LAN" if port == posd.port else "a client of the metrics"
                else:
                    yield "a connection to a terminal"
            elif int(inode) in names:
                path = names[int(inode)]
                if int(flags[int(inode)], 16) & 0x10000:
                    yield "a listening socket"
                else:  # an unnamed socket belongs to the pair that wakes the loop
                    yield f"a client of {Path(path[0]).name}" if path else "its own"
            else:
                yield "its own"  # posd reads the machine's addresses by netlink


def _table(name: str) -> list[str]:
    return Path(f"/proc/net/{name}").read_text().splitlines()[1:]


async def test_payments_continue_while_a_receiver_of_posds_output_is_suspended(
    home: Path, terminal: ScriptedTerminal
) -> None:
    metrics, seen = reserve(), set[str]()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        stuck = f'[[terminals]]\nserial = "STUCK"\nbase_url = "https://127.0.0.1:{deaf.getsockname()[1]}"\n'
        extra = f'[metrics]\nlisten = "127.0.0.1:{metrics}"\n[logging]\nlevel = "debug"\n'
        posd = Daemon(home, toml(home, terminal.toml + stuck, extra))
        async with living(posd):
            counter = Counter(posd, "STUCK", metrics)
            for peer in (peer for peers in PEERS.values() for peer in peers or ()):
                async with peer(counter):
                    await well(posd)
                    seen |= set(written_to(posd, metrics))
                    await pay(posd, terminal, 2)
                    seen |= set(written_to(posd, metrics))
                    await well(posd)
            assert seen <= PEERS.keys(), "the table lacks a receiver of posd's output; add the receiver and suspend it"
            assert {name for name, peers in PEERS.items() if peers} <= seen
            async with (
                counter.till(),
                counter.stranger(),
                counter.payment_terminal(),
                asyncio.timeout(PATIENCE_SECONDS),
            ):
                assert await posd.stop() == 0
