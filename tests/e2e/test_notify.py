"""Notifications to the service manager, and the sockets that the manager passes."""

import asyncio
import json
import os
import stat
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from posd.daemon import systemd
from posd.storage import StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import run_on_db_thread
from posd.tls import issue
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon, toml
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.manager import manager, passed_socket
from tests.rig.needs import needs
from tests.rig.slow import named_quick
from tests.rig.streams import Connection, ask
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal

#: Minimum of calls per till between two restarts, on average.
CALLS = 6
TILLS = 4


async def test_posd_notifies_that_it_is_ready_and_that_it_stops(home: Path, terminal: ScriptedTerminal) -> None:
    with manager(home) as heard:
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), heard.environment)
        await posd.start(wait=False)
        assert "waiting until 127.0.0.1:" in (await heard.heard())["STATUS"]
        ready = await heard.heard()
        assert (ready["READY"], "listening on 127.0.0.1:" in ready["STATUS"]) == ("1", True)
        assert (await posd.call("GET", "/health")).json["status"] == "ok"
        assert await posd.stop() == 0
        assert (await heard.heard_of("STOPPING"))["STOPPING"] == "1"


async def test_the_status_has_the_reason_of_a_failed_start(home: Path) -> None:
    with manager(home) as heard:
        posd = Daemon(home, toml(home, ""), heard.environment)
        await posd.start(wait=False)
        said = await heard.heard()
        assert said["STATUS"].startswith("cannot start: ")
        assert "posd tls init" in said["STATUS"]
        assert await there(posd.process).wait() == 2
        await posd.stop()


async def test_watchdog_notifications_have_the_status_as_text(home: Path, terminal: ScriptedTerminal) -> None:
    identity = str(uuid4())
    with manager(home) as heard:
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), {**heard.environment, "WATCHDOG_USEC": "300000"})
        await posd.start()
        assert "payments open" not in (await heard.heard_of("WATCHDOG"))["STATUS"]
        await posd.call("PUT", f"/transactions/{identity}", CHARGE)
        while "1 of 1 terminals reachable; payments open on SN-" not in (await heard.heard_of("WATCHDOG"))["STATUS"]:
            pass
        assert await deliver(terminal.requests[0].callback, body(identity, "TERMINAL_CANCELED"), posd.ca) == 200
        while "payments open" in (await heard.heard_of("WATCHDOG"))["STATUS"]:
            pass
        assert await posd.stop() == 0


async def test_no_watchdog_ping_is_sent_while_the_disk_blocks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    with manager(home) as heard:
        monkeypatch.setenv("NOTIFY_SOCKET", heard.environment["NOTIFY_SOCKET"])
        monkeypatch.setenv("WATCHDOG_USEC", "3000")
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        giving = asyncio.create_task(systemd.run_watchdog(store.alive, lambda: "well"))
        assert (await heard.heard())["WATCHDOG"] == "1"
        stuck = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hang() -> None:
            loop.call_soon_threadsafe(stuck.set)
            released.wait()

        hanging = run_on_db_thread(store.writer._connection, hang)
        await stuck.wait()
        heard.waiting()
        # The loop makes many turns. A watchdog that checks only the loop would notify in each turn.
        for _ in range(50):
            await asyncio.to_thread(lambda: None)
        await asyncio.sleep(0.05)  # this wait is ten times the pause between two notifications
        assert len(heard.waiting()) <= 1  # one notification may have been under way
        released.set()
        await hanging
        assert (await heard.heard())["WATCHDOG"] == "1"
        giving.cancel()
        await asyncio.wait({giving})
        await store.close()
        with pytest.raises(StorageUnavailable):
            await store.alive()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
        ({"NOTIFY_SOCKET": "/n"}, systemd.STATUS_SECONDS),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000"}, 10),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, systemd.STATUS_SECONDS),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, systemd.STATUS_SECONDS),
    ],
)
def test_the_watchdog_interval_sets_the_pause_of_notifications(
    environment: dict[str, str], expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert systemd.watchdog_pause() == expected


@pytest.mark.parametrize("times", named_quick((1, 4), (1,)))
async def test_restarts_on_a_systemd_socket_fail_no_call(home: Path, terminal: ScriptedTerminal, times: int) -> None:
    """Tills call without a pause. Each call uses a new connection. A till gets a response, or gets an error and repeats
    the call."""
    answers: dict[int, int] = {}
    news = asyncio.Event()
    over = False
    with passed_socket(home / "run" / "till.sock") as (entering, descriptor):
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), entering=entering, passing=(descriptor,))

        async def till() -> None:
            while not over:
                status = (await posd.call("GET", "/transactions?open=true")).status
                answers[status] = answers.get(status, 0) + 1
                news.set()

        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for _ in range(TILLS):
                group.create_task(till())  # calls before the first start wait in the queue of the socket
            await posd.start()
            for _ in range(times):
                enough = sum(answers.values()) + CALLS * TILLS
                while sum(answers.values()) < enough:
                    news.clear()
                    await news.wait()
                assert await posd.stop() == 0
                await posd.start()
            over = True
        assert set(answers) <= {200, 503}
        assert answers[200] >= times * CALLS * TILLS
        assert (home / "run" / "till.sock").is_socket()
        assert (await posd.call("GET", "/version", socket=posd.admin_socket)).status == 200
        await posd.stop()


async def test_a_call_whose_till_left_before_posd_was_up_starts_nothing(home: Path, terminal: ScriptedTerminal) -> None:
    """The call of the till is in the queue of the socket. If posd started this payment hours later, another customer
    would be asked to pay."""
    left, waiting = str(uuid4()), str(uuid4())
    with passed_socket(home / "run" / "till.sock") as (entering, descriptor):
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, terminal.toml), entering=entering, passing=(descriptor,))
        content = json.dumps({"amount": {"subtotal_iva0": "11.20"}}).encode()
        fields = "content-type: application/json\r\n"

        async def start(identity: str) -> Connection:
            path = f"/transactions/{identity}"
            return await ask(posd.till_socket, path, fields, method="PUT", content=content)

        (await start(left)).hang_up()
        till = await start(waiting)
        await posd.start()
        status, payment = await till.reply()
        assert (status, payment["client_transaction_id"], payment["phase"]) == (201, waiting, "active")
        till.hang_up()
        unknown = await posd.call("GET", f"/transactions/{left}")
        assert (unknown.status, unknown.json["never_started"]) == (404, True)
        assert (terminal.starts_of(left), terminal.starts_of(waiting)) == (0, 1)
        dropped = await posd.log_line("start.dropped")
        assert left in dropped["detail"]
        await posd.stop()


@pytest.mark.slow
@needs(root=True)
async def test_a_start_corrects_the_permissions_of_a_socket_from_systemd(home: Path) -> None:
    path = home / "run" / "till.sock"
    with passed_socket(path) as (entering, descriptor):
        os.chown(path, -1, 65534)
        path.chmod(0o606)
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, ""), entering=entering, passing=(descriptor,))
        await posd.start()
        found = path.stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (os.getegid(), 0o660)
        await posd.stop()


@pytest.mark.slow
async def test_a_socket_from_systemd_at_another_path_is_refused_with_the_remedy(home: Path) -> None:
    with passed_socket(home / "elsewhere" / "till.sock") as (entering, descriptor):
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        posd = Daemon(home, toml(home, ""), entering=entering, passing=(descriptor,))
        code, said = await posd.cannot_start()
        assert code == 1
        assert f"{home}/elsewhere/till.sock" in said
        assert "ListenStream=" in said
