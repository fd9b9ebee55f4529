"""SIGKILL during a charge. posd sends at most one request. tests/crash has a kill at each step."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

from tests.e2e.conftest import CHARGE
from tests.rig.connections import serving
from tests.rig.daemon import Daemon, running
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.shop import Held
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal


async def quietly(call: Any) -> Any:
    """Return the result of a call, or None if the daemon died during the call."""
    try:
        return await call
    except OSError:
        return None


async def test_after_a_kill_between_the_final_and_the_end_of_the_call_the_terminal_is_free(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    terminal.start = script = Held(terminal.acknowledge)
    asking = asyncio.create_task(quietly(posd.call("PUT", f"/transactions/{identity}", CHARGE)))
    await script.arrived.wait()
    assert await deliver(terminal.requests[0].callback, body(identity, "TERMINAL_CANCELED"), posd.ca) == 200
    assert (await posd.call("GET", "/terminals/SN-TEST")).json["transaction"] == identity
    await posd.restart()
    script.release.set()
    await asking
    assert (await posd.call("GET", "/terminals/SN-TEST")).json["transaction"] is None
    assert (await posd.transaction(identity))["outcome"]["result"] == "canceled"


async def test_a_payment_is_in_doubt_and_never_sent_after_a_kill_while_connecting(home: Path, identity: str) -> None:
    connections = asyncio.Semaphore(0)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        connections.release()
        await reader.read()

    async with (
        serving(silent) as port,
        running(home, f'[[terminals]]\nserial = "SN-TEST"\nbase_url = "https://127.0.0.1:{port}"\n') as posd,
    ):
        asking = asyncio.create_task(quietly(posd.call("PUT", f"/transactions/{identity}", CHARGE)))
        for _ in range(2):  # the probe and the start have one connection each
            await connections.acquire()
        await posd.restart()
        assert await asking is None
        repeated = await posd.call("PUT", f"/transactions/{identity}", CHARGE)
        assert (repeated.status, repeated.json["phase"]) == (200, "in_doubt")
        assert (await posd.call("GET", "/terminals/SN-TEST")).json["transaction"] == identity
        await posd.restart()
        assert (await posd.transaction(identity))["phase"] == "in_doubt"
        history = (await posd.call("GET", f"/transactions/{identity}/history")).json["history"]
        assert {item["kind"] for item in history} <= {
            "intent",
            "interrupted",
            "search",
        }  # posd did not send the request


async def test_after_a_kill_before_the_call_was_read_nothing_is_recorded(posd: Daemon, identity: str) -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(posd.till_socket))
    connection.sendall(
        f"PUT /v1/transactions/{identity} HTTP/1.1\r\nhost: posd\r\ncontent-length: 99\r\n\r\n{{".encode()
    )
    await posd.restart()
    connection.close()
    assert (await posd.call("GET", f"/transactions/{identity}")).status == 404
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201


#: Program that keeps a read transaction of the database open until it is killed.
READER = """
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
db.execute("BEGIN")
print(db.execute("SELECT count(*) FROM transactions").fetchone()[0], flush=True)
sys.stdin.read()
"""


async def test_a_kill_and_a_restart_lose_nothing_while_another_process_reads_the_database(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, str(posd.database), **pipes)
    try:
        assert await there(reader.stdout).readline() == b"0\n"
        assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
        await posd.restart()
        assert (await posd.transaction(identity))["phase"] == "active"
        await posd.approve(terminal.requests[0].callback, identity)
        assert (await posd.outcome(identity))["result"] == "approved"
    finally:
        reader.kill()
        await reader.wait()
