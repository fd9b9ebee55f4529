"""End of a daemon, and causes that prevent a start: exit codes, messages, and leftovers."""

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from posd.tls import issue
from tests.e2e.conftest import CHARGE
from tests.rig import https
from tests.rig.daemon import Daemon, running, toml
from tests.rig.events import body
from tests.rig.shop import Held
from tests.rig.terminal import ScriptedTerminal
from tests.rig.waits import until

#: Limit of a stop in seconds. The promise is 3 seconds on an idle machine. A fault would delay the stop by 15 seconds
#: or more.
STOP_SECONDS = 12.0


async def stop_in_time(posd: Daemon, number: signal.Signals = signal.SIGTERM) -> None:
    """Stop the daemon. Check that the daemon ends in time with the exit code 0."""
    began = asyncio.get_running_loop().time()
    code = await posd.stop(number)
    assert asyncio.get_running_loop().time() - began < STOP_SECONDS
    assert code == 0, posd.lines


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_daemon_stops_at_once_and_leaves_its_sockets_free(posd: Daemon, number: signal.Signals) -> None:
    port = posd.port
    await stop_in_time(posd, number)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
    for lock in (posd.directory / "run" / "posd.lock", posd.database.with_name("posd.db.lock")):
        descriptor = os.open(lock, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    with pytest.raises(OSError):
        await posd.call("GET", "/version")
    await posd.start()
    assert (await posd.call("GET", "/version")).status == 200


async def test_a_stop_ends_waits_and_streams_and_idle_connections(posd: Daemon, terminal: ScriptedTerminal) -> None:
    waited_for, in_flight = str(uuid4()), str(uuid4())
    other = terminal
    assert (await posd.call("PUT", f"/transactions/{waited_for}", CHARGE)).status == 201
    callback = terminal.requests[0].callback
    assert await https.deliver(callback, body(waited_for, "TERMINAL_CANCELED"), posd.ca) == 200
    script = Held(terminal.acknowledge)
    other.start = script
    asking = asyncio.create_task(posd.call("PUT", f"/transactions/{in_flight}", CHARGE))
    await script.arrived.wait()
    waiting = [asyncio.create_task(posd.call("GET", f"/transactions/{in_flight}/outcome")) for _ in range(5)]
    idle = [await https.connect(posd.port, posd.ca) for _ in range(5)]
    kept_alive = await https.connect(posd.port, posd.ca)
    kept_alive[1].write(
        https.post(callback, body(waited_for, "TERMINAL_CANCELED")).replace(b"connection: close\r\n", b"")
    )
    assert (await kept_alive[0].readline()).startswith(b"HTTP/1.1 200")
    half = await https.connect(posd.port, posd.ca)
    half[1].write(b"POST /webhooks/transac")
    feed = posd.changes()
    await anext(feed)
    first = await anext(feed)
    assert first["id"] == waited_for
    await till_sockets(posd, 7)  # five waiting tills, the starting till, and the stream are connected

    await stop_in_time(posd)

    for task in waiting:
        reply = await task
        assert (reply.status, reply.json["code"]) == (503, "draining")
        assert reply.headers["retry-after"]
    started = await asking
    assert (started.status, started.json["phase"]) == (201, "in_doubt")
    assert [item async for item in feed if item["id"] not in (waited_for, in_flight)] == []
    for _, writer in (*idle, kept_alive, half):
        writer.transport.abort()
    script.release.set()
    await posd.start()
    callback = next(item.callback for item in terminal.requests if in_flight in item.callback)
    assert await https.deliver(callback, body(in_flight, "TERMINAL_CANCELED"), posd.ca) == 200
    assert (await posd.outcome(in_flight))["result"] == "canceled"
    assert terminal.starts_of(in_flight) == 1


async def till_sockets(posd: Daemon, count: int) -> None:
    """Wait until the daemon has this many connections of tills."""
    await until(lambda: connections(posd.till_socket) > count)  # the number includes the listening socket


def connections(path: Path) -> int:
    """Return the number of sockets with this path."""
    return sum(1 for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(f" {path}"))


async def test_the_socket_files_of_a_killed_daemon_do_not_prevent_a_start(posd: Daemon) -> None:
    await posd.kill()
    assert posd.till_socket.is_socket()
    await posd.start()
    assert (await posd.call("GET", "/version")).status == 200
    assert posd.till_socket.stat().st_mode & 0o777 == 0o660
    assert posd.till_socket.parent.stat().st_mode & 0o777 == 0o755, "tills can reach their socket"
    assert posd.database.stat().st_mode & 0o777 == 0o600


async def test_the_connections_of_a_killed_daemon_do_not_block_the_port(posd: Daemon) -> None:
    reader, writer = await https.connect(posd.port, posd.ca)
    await posd.kill()
    with suppress(ConnectionResetError):  # unread data at the kill causes a reset
        assert await reader.read() == b""
    await posd.start()
    assert (await posd.call("GET", "/version")).status == 200
    writer.transport.abort()


def same_database(home: Path) -> str:
    (home / "run2").mkdir()
    return toml(home, "").replace(f"{home}/run", f"{home}/run2")


def same_directory(home: Path) -> str:
    issue.init(home / "state2" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    return toml(home, "").replace(f"{home}/state", f"{home}/state2")


#: Resource that two daemons share -> names in the message of the second daemon.
SECOND: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "database": (same_database, ["posd.db.lock", "another posd", "database.path"]),
    "socket directory": (same_directory, ["run", "another posd", "local_api.directory"]),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("shared", SECOND)
async def test_a_second_daemon_does_not_start_and_the_first_continues(home: Path, shared: str) -> None:
    config, words = SECOND[shared]
    async with running(home, "") as posd:
        (home / "second").mkdir()
        second = Daemon(home / "second", config(home))
        await assert_refuses(second, words)
        assert (await posd.call("GET", "/version")).status == 200
        assert (await posd.call("GET", "/version", socket=posd.admin_socket)).status == 200


async def assert_refuses(daemon: Daemon, words: list[str]) -> None:
    """Check that the daemon does not start. Check that the one-line message has these words, without a traceback."""
    code, said = await daemon.cannot_start()
    assert code != 0
    for word in words:
        assert word in said
    everything = str(daemon.lines)
    assert "Traceback" not in everything
    assert not [line for line in daemon.lines if "exception" in line or line.get("event") == "posd.started"]


def no_certificate(home: Path) -> str:
    return toml(home, "").replace(f"{home}/state/", f"{home}/elsewhere/")


def unknown_group(home: Path) -> str:
    return toml(home, "").replace('till_group = ""', 'till_group = "no-such-group"')


def port_taken(home: Path) -> str:
    return toml(home, "").replace("127.0.0.1:0", TAKEN)


def directory_is_a_file(home: Path) -> str:
    (home / "run").write_text("")
    return toml(home, "")


def socket_is_a_file(home: Path) -> str:
    (home / "run").mkdir()
    (home / "run" / "till.sock").write_text("somebody's")
    return toml(home, "")


#: Placeholder of an address in use.
TAKEN = "127.0.0.1:TAKEN"

#: Fault -> names in the message.
WRONG: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "no certificate": (no_certificate, ["posd tls init"]),
    "unknown group": (unknown_group, ["no-such-group", "groupadd"]),
    "port taken": (port_taken, ["in use", "webhooks.listen"]),
    "metrics port taken": (lambda home: toml(home, "", f'[metrics]\nlisten = "{TAKEN}"\n'), ["metrics.listen"]),
    "directory is a file": (directory_is_a_file, ["run", "local_api.directory"]),
    "socket is a file": (socket_is_a_file, ["till.sock", "another file"]),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_failed_start_names_its_cause(home: Path, wrong: str) -> None:
    issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    config, words = WRONG[wrong]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await assert_refuses(Daemon(home, config(home).replace(TAKEN, f"127.0.0.1:{port}")), words)
