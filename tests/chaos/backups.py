"""The database goes back in time, or its file is not there: backups are restored, files moved and replaced."""

import asyncio
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tests.chaos.books import Window
from tests.chaos.faults import Fault
from tests.chaos.proxy import MAX_DELAY_SECONDS
from tests.chaos.surroundings import NOTICED_SECONDS, Surroundings, moment

#: So many payments begin between a backup and its restore, and so long that is waited for at most, in seconds.
BETWEEN, BETWEEN_SECONDS = 12, 20.0
#: So long after an answer has reached it a terminal may write that down, on a busy machine. Seconds.
NOTED_SECONDS = 1.0
#: So long a person looks whether posd asks for something, in seconds: it knows when it starts.
TOLD_SECONDS = 2.0
#: What a person needs to look at what a restore asks for, in seconds.
PERSON_SECONDS = 1.0


async def restore_backup(around: Surroundings, fault: Fault) -> bool:
    """Put a backup of some payments ago in the place of the database."""
    street = around.street
    database = street.daemon.database
    around.seen["backups made"] += 1
    backup = street.directory / f"backup-{around.seen['backups made']}.db"  # the next one may begin before it is back
    async with street.daemon_lock:
        made_at = moment()
        if fault.detail == "copied":
            _copy(database, backup)
        else:
            reply = await street.admin("POST", "/backup", {"path": str(backup)})
            if reply.status != 200:
                street.faults.append(f"backup answered {reply.status}: {reply.body.decode()}")
                return False
    enough = street.happenings.begun + BETWEEN
    with suppress(TimeoutError):
        async with asyncio.timeout(BETWEEN_SECONDS):
            await street.happenings.wait(lambda _who, _line: street.happenings.begun >= enough)
    async with street.daemon_lock:
        await street.end_daemon(signal.SIGTERM)
        if fault.detail != "restored":
            _remove(database)
        if fault.detail == "copied":
            shutil.copy(backup, database)
        else:
            code, said = await around.posd("restore", str(backup), "--yes")
            around.expect(code == 0, "restore", f"posd restore ended with {code}: {said[:300]}")
        around.windows.append(Window(made_at, moment(MAX_DELAY_SECONDS + NOTED_SECONDS), fault.detail))
        around.seen[f"databases {fault.detail.replace('_', ' ')}"] += 1
        await street.start_daemon()
        await _look_at_restore(around, f"the database was {fault.detail}")
    return True


async def replace_file(around: Surroundings, fault: Fault) -> bool:
    """Take the file of the database from under the daemon, or put a copy in its place."""
    street = around.street
    database = street.daemon.database
    aside = database.with_name("aside.db")

    async def failing() -> bool:
        return await around.check("storage") == "failing"

    async def well() -> bool:
        return await around.check("storage") != "failing"

    async with street.daemon_lock:
        made_at = moment()
        if fault.detail == "moved_away":
            database.rename(aside)
        else:
            _copy(database, aside)
            aside.replace(database)
        what = f"the file of the database was {fault.detail}"
        noticed = await around.until(failing)
        around.seen[f"files {fault.detail.replace('_', ' ')}"] += 1
        around.seen["of these noticed by posd within seconds"] += noticed
        around.expect(noticed, "storage", f"{what}, and health says that storage is well {NOTICED_SECONDS:g} s later")
        await asyncio.sleep(fault.seconds)
        if fault.detail == "moved_away":
            aside.replace(database)
            around.expect(await around.until(well), "storage", "the file is back, and health says that storage fails")
            return True
        await street.end_daemon(signal.SIGTERM)
        around.windows.append(Window(made_at, moment(MAX_DELAY_SECONDS + NOTED_SECONDS), fault.detail))
        await street.start_daemon()
        await _look_at_restore(around, what)
    return True


async def _look_at_restore(around: Surroundings, what: str) -> None:
    """Look, as a person does, at what a restore asks for, and say that it was seen."""

    async def told() -> bool:
        return (await around.street.daemon.call("GET", "/health")).json["checks"]["restore"]["status"] != "ok"

    if not await around.until(told, seconds=TOLD_SECONDS):
        return  # it has all that was there
    around.seen["databases that posd knew to have gone back"] += 1
    await asyncio.sleep(PERSON_SECONDS)
    note = ("--operator", "Person", "--note", f"{what}; compared with the terminals' paper")
    code, said = await around.posd("restore", "--seen", *note)
    around.expect(code == 0, "restore", f"posd restore --seen ended with {code}: {said[:300]}")


def _copy(database: Path, copy: Path) -> None:
    """Copy the database as a snapshot of the disk has it: nothing in it says that it is a copy."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def _remove(database: Path) -> None:
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
