"""Backups, disasters and restores with the real daemon, and backups on standard output."""

import asyncio
import gzip
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.storage import backup
from posd.storage.connection import PAGE_BYTES as PAGE
from posd.upkeep.verify import verify
from tests.e2e.conftest import CHARGE
from tests.rig.commands import posd
from tests.rig.daemon import Daemon, running
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.shop import Shop
from tests.rig.slow import named_quick
from tests.rig.terminal import ScriptedTerminal, scripted_terminal


async def posd_command(daemon: Daemon, *arguments: str) -> tuple[int, str, str]:
    """Run a command in this process with the daemon's configuration. Return exit code, stdout and stderr."""
    done = await asyncio.to_thread(posd, *arguments, config=daemon.config_file)
    return done.returncode, done.stdout, done.stderr


async def back_up(daemon: Daemon, path: Path) -> Any:
    """Make a backup as an operator does."""
    reply = await daemon.call("POST", "/backup", {"path": str(path)}, socket=daemon.admin_socket)
    assert reply.status == 200, reply.body
    return reply.json


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def sound(path: Path) -> bool:
    return verify(path, lambda *_: None).counts == {}


# Disasters.


def destroy(database: Path, *tables: str) -> None:
    """Write all committed data into the file. Afterwards, overwrite the first page of these tables with garbage."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        roots = [row[0] for row in db.execute("SELECT rootpage, name FROM sqlite_master") if row[1] in tables]
    assert len(roots) == len(tables)
    content = bytearray(database.read_bytes())
    for root in roots:
        content[(root - 1) * PAGE : root * PAGE] = os.urandom(PAGE)
    database.write_bytes(content)


def lose(database: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        database.with_name(database.name + suffix).unlink()


#: Disaster -> damage to the database, and the restore's source of payments since the backup.
#: tests/store/test_restore.py has more disasters.
DISASTERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage in the middle": (lambda database: destroy(database, "transactions", "leases"), "derived"),
    "gone": (lambda database: lose(database, "", "-wal", "-shm"), "unknown"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("disaster", DISASTERS)
async def test_nothing_is_sent_twice_after_a_disaster_and_a_restore(own: Shop, home: Path, disaster: str) -> None:
    damage, taken_over = DISASTERS[disaster]
    daemon = own.daemon
    paid, waiting = await own.started(), await own.started()
    await paid.approve()
    moved = await own.started()
    await back_up(daemon, home / "backup.db")
    await moved.approve()
    later, ended = await own.started(), await own.started()
    await ended.approve()
    everyone = (paid, waiting, moved, later, ended)
    before = {payment.identity: await payment.get() for payment in everyone}

    await daemon.kill()
    damage(daemon.database)
    code, _, said = await posd_command(daemon, "restore", str(home / "backup.db"), "--json")
    assert code == 0, said
    await daemon.start()
    told = await daemon.log_line("store.restored")
    assert (told["level"], str(home / "backup.db") in told["detail"]) == ("warning", True)

    known = (paid, waiting) if taken_over == "unknown" else everyone
    for payment in known:
        document = await payment.get()
        assert document["outcome"] == before[payment.identity]["outcome"]
        assert document["phase"] == before[payment.identity]["phase"]
    for payment in (waiting, later):  # callbacks of open payments are accepted with their old tokens
        await payment.approve()
        assert (await payment.get())["outcome"]["result"] == "approved"
    if taken_over == "unknown":
        await moved.event("APPROVAL", "APPROVAL_REQUESTED")
        assert (await ended.get())["phase"] == "in_doubt", "the payment is known from the witness only"
    for payment in everyone:
        assert (await payment.put()).status == 200
        assert len(payment.requests) == 1, "posd sends nothing again"
    looked_at = (await daemon.call("GET", "/restore", socket=daemon.admin_socket)).json
    assert looked_at["refusing"] is (looked_at["restores"][0]["old"] != "read")
    if looked_at["refusing"]:  # unreadable payments may have been started, so a person must check first
        unknown = own.payment()
        assert (await unknown.put()).json["code"] == "restore_unseen"
        assert unknown.requests == []
        code, _, said = await posd_command(daemon, "restore", "--seen", "--operator", "Ana", "--note", "looked")
        assert code == 0, said
    assert (await (await own.started()).get())["phase"] == "active"

    for _ in range(2):  # the second restore takes payments over from the file of the first restore
        documents = {payment.identity: await payment.get() for payment in known}
        await daemon.stop()
        code, _, said = await posd_command(daemon, "restore", str(home / "backup.db"))
        assert code == 0, said
        await daemon.start()
        assert {payment.identity: await payment.get() for payment in known} == documents
    assert sound(daemon.database)
    code, said, _ = await posd_command(daemon, "verify")
    assert (code, "nothing is wrong" in said) == (0, True)

    degraded = (await daemon.call("GET", "/health")).json["checks"]["restore"]
    assert (degraded["status"], "posd restore --seen" in degraded["todo"]) == ("degraded", True)
    code, _, said = await posd_command(daemon, "restore", "--seen", "--note", "compared: nothing is missing")
    assert code == 0, said
    assert (await daemon.call("GET", "/health")).json["checks"]["restore"]["status"] == "ok"
    await daemon.stop()
    await daemon.start()
    assert not [line for line in daemon.lines if line["event"] == "store.restored"]


# Damage that posd finds at its start.


def put_by_hand(database: Path) -> None:
    backup.write(database, database.with_name("b.db"), [b"k" * 32], "at", lambda: False)
    lose(database, "", "-wal", "-shm")
    database.with_name("b.db").rename(database)


def set_trail(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("UPDATE transactions SET trail = '{'")


def damage_numbers(database: Path) -> None:
    """Damage the used numbers of a database, and remove its witness. Then posd reads the numbers to know whether the
    database is new.
    """
    lose(database, ".witness")
    destroy(database, "sqlite_sequence")


def swap(database: Path, content: bytes) -> None:
    """Replace the database by another file. The WAL with all data is lost."""
    lose(database, "-wal", "-shm")
    database.write_bytes(content)


#: Fault of the file -> the one-line message, without the commands.
DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda database: swap(database, b"garbage" * 9999), "is damaged"),
    "truncated": (lambda database: swap(database, database.read_bytes()[: 5 * PAGE]), "is damaged"),
    "empty": (lambda database: swap(database, b""), "it is empty"),
    "a page that is read at the start": (lambda database: destroy(database, "transactions_open"), "is damaged"),
    "the payments": (lambda database: destroy(database, "transactions"), "is damaged"),
    "the used numbers": (damage_numbers, "is damaged"),
    "an unreadable row": (set_trail, "is damaged"),
    "gone": (lambda database: lose(database, "", "-wal", "-shm"), "it was lost or moved"),
    "gone, except the WAL": (lambda database: lose(database, ""), "it was lost or moved"),
    "a copied backup": (put_by_hand, "put there by hand"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left() -> AsyncIterator[Path]:
    """Yield the directory of a stopped daemon with one payment."""
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        async with scripted_terminal(home) as terminal, running(home, terminal.toml) as posd:
            assert (await posd.call("PUT", f"/transactions/{uuid4()}", CHARGE)).status == 201
        keep_wal(posd.database)
        yield home


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "damage", named_quick(DAMAGED, ("truncated", "empty", "the used numbers", "gone", "a copied backup"))
)
async def test_a_damaged_database_is_refused_with_the_commands_of_a_remedy(left: Path, home: Path, damage: str) -> None:
    harm, words = DAMAGED[damage]
    shutil.copytree(left, home, ignore=shutil.ignore_patterns("run"), dirs_exist_ok=True)
    posd = Daemon(home, (left / "config.toml").read_text().replace(str(left), str(home)))
    harm(posd.database)
    before = contents(posd)
    for _ in range(2):
        assert (await posd.cannot_start())[0] == 1
        (line,) = (line for line in posd.lines if line["event"] == "posd.cannot_start")
        assert line["event"] == "posd.cannot_start"
        assert "exception" not in line
        assert words in line["error"]
        assert "posd restore BACKUP" in line["error"]
        assert not [line for line in posd.lines if line["event"] == "not json"], "no traceback"
        assert contents(posd) == before, "posd changed and deleted nothing"


def keep_wal(database: Path) -> None:
    """Copy the data of the WAL into the file, and keep the WAL."""
    copy = database.parent.with_name("copy")
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        shutil.copytree(database.parent, copy)
    shutil.rmtree(database.parent)
    copy.rename(database.parent)


def contents(posd: Daemon) -> dict[str, bytes]:
    """Return the content of every file in the state directory. An empty WAL and its index are left out, because each
    opening makes them.
    """
    files = [path for path in posd.database.parent.iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in files if path.stat().st_size and not path.name.endswith("-shm")}


async def test_damage_found_while_posd_runs_is_a_503_and_does_not_end_posd(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    destroy(posd.database, "transactions_newest")
    reply = await posd.call("GET", "/transactions")
    assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
    assert (await posd.call("GET", f"/transactions/{identity}")).json["phase"] == "active"
    told = await posd.log_line("store.damaged")
    assert (told["level"], "posd restore BACKUP" in told["detail"]) == ("error", True)
    destroy(posd.database, "transactions")
    assert (await posd.call("PUT", f"/transactions/{uuid4()}", CHARGE)).status in (500, 503)
    assert await deliver(terminal.requests[0].callback, body(identity, "CARD_PRESENTED"), posd.ca) == 503
    assert len(terminal.requests) == 1
    assert len([line for line in posd.lines if line["event"] == "store.damaged"]) == 1


async def into(daemon: Daemon, directory: Path, keep: int) -> Any:
    content = {"into": str(directory), "keep": keep}
    reply = await daemon.call("POST", "/backup", content, socket=daemon.admin_socket)
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.asyncio(loop_scope="module")
async def test_a_directory_keeps_its_newest_good_backups_and_no_other_file_is_touched(shop: Shop, home: Path) -> None:
    directory = home / "backups" / "posd"
    first = await into(shop.daemon, directory, 3)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (first["kept"], first["removed"], first["unusable"]) == (1, [], [])
    packed = Path(first["path"]).read_bytes()  # noqa: ASYNC240
    content = gzip.decompress(packed)
    old = [f"posd-2020010{day}T000000Z.db{'.gz' * (day % 2)}" for day in range(1, 5)]  # backups of an older version
    for name in old:
        (directory / name).write_bytes(packed if name.endswith(".gz") else content)
    (directory / "posd-20200109T000000Z.db").write_bytes(content[:5000])  # an incomplete backup, newer than the others
    others = {"mine.db", "posd-20200101T000000Z.db.bz2", "notes", "xposd-20200101T000000Z.db"}
    for name in others:
        (directory / name).write_bytes(content)

    second = await into(shop.daemon, directory, 3)
    left = names(directory)
    assert others <= left
    # two backups in the same second have one name, so the second replaced the first
    same = second["path"] == first["path"]
    assert second["removed"] == old[: 2 if same else 3]
    assert second["unusable"] == ["posd-20200109T000000Z.db"]
    assert {"posd-20200109T000000Z.db", "posd-20200104T000000Z.db", Path(second["path"]).name} <= left
    assert second["kept"] == 3
    line = await shop.daemon.log_line("store.backups_unusable")
    assert "posd-20200109T000000Z.db" in line["detail"]
    assert sound(Path(second["path"]))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_standard_output_has_exactly_the_backup(shop: Shop, home: Path) -> None:
    paid = await shop.started()
    await paid.approve()
    stored = (await shop.daemon.call("GET", "/transactions?limit=500")).json["transactions"]
    command = [sys.executable, "-m", "posd", "--config", str(shop.daemon.config_file), "backup", "-"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    content, said = await process.communicate()
    assert (process.returncode, b"keep it as secret" in said) == (0, True)
    (home / "copy.db").write_bytes(content)
    assert sound(home / "copy.db")
    assert backup.read(home / "copy.db").transactions == len(stored)
    assert len(backup.read(home / "copy.db").keys) == 1
    assert names(shop.daemon.database.parent) <= {
        "posd.db", "posd.db-wal", "posd.db-shm", "posd.db.lock", "posd.db.alive", "posd.db.witness", "callback.key",
        "tls",
    }  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
async def test_a_reader_that_disconnects_leaves_nothing_behind(shop: Shop, home: Path) -> None:
    before = names(shop.daemon.database.parent)
    reader, writer = await asyncio.open_unix_connection(str(shop.daemon.admin_socket))
    content = b'{"send": true}'
    writer.write(b"POST /v1/backup HTTP/1.1\r\nhost: p\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))
    assert b"200" in await reader.readline()
    writer.close()
    await back_up(shop.daemon, home / "after.db")
    assert names(shop.daemon.database.parent) == before
    assert (await shop.daemon.call("GET", "/health")).status == 200
