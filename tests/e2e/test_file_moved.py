"""A file of the database is removed, replaced or put back while the daemon runs."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.daemon import Daemon
from tests.rig.shop import Shop
from tests.rig.slow import named_quick

#: Seconds in which posd detects the change, even on a busy machine.
SECONDS = 10.0


def aside(path: Path) -> Path:
    return path.with_name(f"aside-{path.name}")


def unlink(path: Path) -> None:
    """Remove the name of the file. A second link keeps the file, so that the test can restore the name."""
    aside(path).hardlink_to(path)
    path.unlink()


def replace(path: Path) -> None:
    unlink(path)
    shutil.copyfile(aside(path), path)


def move(path: Path) -> None:
    path.rename(aside(path))


def put_back(path: Path) -> None:
    aside(path).replace(path)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    f"{change.__name__} {suffix or 'database'}": (change, suffix)
    for change in (unlink, replace, move)
    for suffix in ("", "-wal", "-shm")
}


async def health_is(daemon: Daemon, status: str) -> dict[str, str]:
    """Poll health until the storage check has this state. Only `/health` reports the state."""
    end = time.monotonic() + SECONDS
    while True:
        check: dict[str, str] = (await daemon.call("GET", "/health")).json["checks"]["storage"]
        if check["status"] == status:
            return check
        assert time.monotonic() < end, check
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("change", named_quick(CHANGES, ("unlink database", "replace database", "move -wal")))
async def test_nothing_is_acknowledged_until_the_same_file_is_back(own: Shop, change: str) -> None:
    change_file, suffix = CHANGES[change]
    daemon = own.daemon
    path = daemon.database.with_name(daemon.database.name + suffix)
    waiting = await own.started()
    change_file(path)
    refused = own.payment()
    reply = await refused.put()
    assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
    assert refused.requests == []
    for _ in range(2):  # posd must not treat the second delivery as recorded
        assert await waiting.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 503
    assert (await daemon.call("GET", "/health")).status == 503
    check = await health_is(daemon, "failing")
    assert str(path) in check["detail"]
    assert "put the same file back" in check["todo"]
    assert check["reason"] == "file_moved"
    backup = await daemon.call("POST", "/backup", {"path": f"{daemon.directory}/b.db"}, socket=daemon.admin_socket)
    assert (backup.status, backup.json["code"]) == (503, "storage_unavailable")

    put_back(path)
    await health_is(daemon, "ok")
    await waiting.approve()
    assert (await waiting.get())["outcome"]["result"] == "approved"
    assert (await refused.put()).status == 201
    assert len(refused.requests) == 1
    await daemon.log_line("store.file_back")


async def test_an_idle_daemon_detects_a_moved_file_within_seconds(own: Shop) -> None:
    await own.started()
    move(own.daemon.database)
    async with asyncio.timeout(SECONDS):
        line = await own.daemon.log_line("store.file_moved")
    assert line["level"] == "error"
    assert [item["event"] for item in own.daemon.lines].count("store.file_moved") == 1
    put_back(own.daemon.database)
    async with asyncio.timeout(SECONDS):
        await own.daemon.log_line("store.file_back")


async def test_after_the_wal_was_removed_a_kill_loses_nothing(own: Shop) -> None:
    """When posd detects the removal, it writes the content of the WAL into the database."""
    paid = await own.started()
    await paid.approve()
    own.daemon.database.with_name("posd.db-wal").unlink()
    await own.daemon.log_line("store.file_moved")
    await own.daemon.log_line("store.log_saved")
    await own.daemon.restart()
    assert (await paid.get())["outcome"]["result"] == "approved"
    assert (await paid.put()).status == 200
    assert len(paid.requests) == 1


@pytest.fixture(autouse=True)
def _files_are_where_they_were(own: Shop) -> Iterator[None]:
    """Remove the remaining links after the test."""
    yield
    for path in own.daemon.database.parent.glob("aside-*"):
        path.unlink()
