"""Backups that carry themselves away: into a directory of which the newest are kept, and to standard output."""

import asyncio
import gzip
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from posd.storage import backup
from tests.e2e.test_backup import approve, back_up, names, posd_command, sound
from tests.support.daemon import Daemon
from tests.support.shop import Shop, open_shop


async def into(daemon: Daemon, directory: Path, keep: int) -> Any:
    content = {"into": str(directory), "keep": keep}
    reply = await daemon.call("POST", "/backup", content, socket=daemon.admin_socket)
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.asyncio(loop_scope="module")
async def test_of_a_directory_the_newest_good_ones_are_kept_and_nothing_else_is_touched(shop: Shop, home: Path) -> None:
    directory = home / "backups" / "posd"
    first = await into(shop.daemon, directory, 3)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (first["kept"], first["removed"], first["unusable"]) == (1, [], [])
    packed = Path(first["path"]).read_bytes()  # noqa: ASYNC240
    content = gzip.decompress(packed)
    old = [f"posd-2020010{day}T000000Z.db{'.gz' * (day % 2)}" for day in range(1, 5)]  # an older version wrote some
    for name in old:
        (directory / name).write_bytes(packed if name.endswith(".gz") else content)
    (directory / "posd-20200109T000000Z.db").write_bytes(content[:5000])  # torn, and newer than those
    others = {"mine.db", "posd-20200101T000000Z.db.bz2", "notes", "xposd-20200101T000000Z.db"}
    for name in others:
        (directory / name).write_bytes(content)

    second = await into(shop.daemon, directory, 3)
    left = names(directory)
    assert others <= left
    same = second["path"] == first["path"]  # made within one second, it took the first one's place
    assert second["removed"] == old[: 2 if same else 3]
    assert second["unusable"] == ["posd-20200109T000000Z.db"]
    assert {"posd-20200109T000000Z.db", "posd-20200104T000000Z.db", Path(second["path"]).name} <= left
    assert second["kept"] == 3
    line = await shop.daemon.log_line("store.backups_unusable")
    assert "posd-20200109T000000Z.db" in line["detail"]
    assert sound(Path(second["path"]))


@pytest.mark.slow
async def test_the_command_says_what_became_of_the_older_ones(home: Path) -> None:
    async with open_shop(home) as shop:
        directory = home / "backups"
        code, said, _ = await posd_command(shop.daemon, "backup", "--into", str(directory), "--keep", "1")
        assert (code, "read back and found sound" in said) == (0, True)
        (name,) = names(directory)
        (directory / name).rename(directory / "posd-20200101T000000Z.db.gz")
        code, said, _ = await posd_command(shop.daemon, "backup", "--into", str(directory), "--keep", "1")
        assert (code, f"1 in {directory}, 1 older removed (the newest 1 are kept)." in said) == (0, True), said
        assert len(names(directory)) == 1
        await shop.daemon.stop()
        code, _, said = await posd_command(shop.daemon, "backup", "--into", str(directory))
        assert code == 3, said
        await shop.daemon.start()


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_to_standard_output_it_is_the_whole_backup_and_nothing_else(shop: Shop, home: Path) -> None:
    paid = await shop.started()
    await approve(paid)
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
async def test_a_reader_that_goes_away_leaves_nothing_behind(shop: Shop, home: Path) -> None:
    before = names(shop.daemon.database.parent)
    reader, writer = await asyncio.open_unix_connection(str(shop.daemon.admin_socket))
    content = b'{"send": true}'
    writer.write(b"POST /v1/backup HTTP/1.1\r\nhost: p\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content))
    assert b"200" in await reader.readline()
    writer.close()
    await back_up(shop.daemon, home / "after.db")
    assert names(shop.daemon.database.parent) == before
    assert (await shop.daemon.call("GET", "/health")).status == 200
