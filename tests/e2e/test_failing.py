"""Faults that prevent payments while posd runs. `/health` reports each fault, and the log reports each fault once."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from posd.daemon.status import CHECK_SECONDS
from tests.e2e.test_metrics import value
from tests.rig import ahead
from tests.rig.daemon import Daemon, living, toml
from tests.rig.exposition import read
from tests.rig.manager import passed_socket
from tests.rig.terminal import ScriptedTerminal


@pytest.fixture
def posd(home: Path, terminal: ScriptedTerminal) -> Daemon:
    groups = 'admin_group = ""\n'
    return Daemon(home, toml(home, terminal.toml).replace(groups, f'{groups}feed_group = ""\n'))


def remove(path: Path) -> None:
    path.rename(path.with_name("aside"))


def replace(path: Path) -> None:
    remove(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))


def put_back(path: Path) -> None:
    path.with_name("aside").replace(path)


def told(posd: Daemon) -> list[str]:
    return [line["level"] for line in posd.lines if line["event"] in ("posd.failing", "posd.recovered")]


@pytest.mark.parametrize(
    ("name", "change", "passed", "status"),
    [
        ("till.sock", remove, False, "failing"),
        ("till.sock", replace, False, "failing"),
        ("till.sock", remove, True, "failing"),
        ("admin.sock", replace, False, "degraded"),
        ("feed.sock", remove, False, "degraded"),
    ],
)
async def test_a_socket_that_clients_cannot_find_makes_health_failing(
    posd: Daemon, name: str, change: Callable[[Path], None], passed: bool, status: str
) -> None:
    path = posd.directory / "run" / name
    other = posd.till_socket if name != "till.sock" else posd.admin_socket
    with ExitStack() as stack:
        if passed:
            posd.entering, descriptor = stack.enter_context(passed_socket(posd.till_socket))
            posd.passing = (descriptor,)
        async with living(posd):
            assert (await posd.call("GET", "/health", socket=other)).json["checks"]["local_api"]["status"] == "ok"
            change(path)
            for _ in range(3):
                health = (await posd.call("GET", "/health", socket=other)).json
            check = health["checks"]["local_api"]
            assert (health["status"], check["status"], str(path) in check["detail"]) == (status, status, True)
            found = read(await posd.metrics(other))
            assert value(found, "posd_health", check="local_api") == ("ok", "degraded", "failing").index(status)
            put_back(path)
            assert (await posd.call("GET", "/health", socket=other)).json["checks"]["local_api"]["status"] == "ok"
    assert told(posd) == (["error", "info"] if status == "failing" else [])


async def test_a_socket_that_was_removed_before_posd_ran_makes_health_failing(posd: Daemon) -> None:
    with passed_socket(posd.till_socket) as (posd.entering, descriptor):
        posd.passing = (descriptor,)
        posd.till_socket.unlink()
        async with living(posd):
            health = (await posd.call("GET", "/health", socket=posd.admin_socket)).json
            assert (health["status"], health["checks"]["local_api"]["status"]) == ("failing", "failing")


async def test_the_log_says_that_payments_are_impossible_even_if_no_client_calls(posd: Daemon) -> None:
    posd.program = ahead.program(posd.directory / "ahead")
    async with living(posd):
        remove(posd.till_socket)
        ahead.move(posd, CHECK_SECONDS)
        assert str(posd.till_socket) in (await posd.log_line("posd.failing"))["error"]
        put_back(posd.till_socket)
        ahead.move(posd, CHECK_SECONDS)
        await posd.log_line("posd.recovered")
    assert told(posd) == ["error", "info"]
