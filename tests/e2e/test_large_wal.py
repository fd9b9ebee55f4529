"""A shell with an open transaction prevents truncation of the WAL. posd reports the large WAL and names the process."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from posd.storage import database_files
from tests.e2e.test_standing_still import pay
from tests.rig.commands import posd as command
from tests.rig.daemon import Daemon
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal, nowhere

#: Program that reads the database and keeps its transaction open.
SHELL = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN")
db.execute("SELECT count(*) FROM transactions").fetchone()
print("reads", flush=True)
sys.stdin.read()
"""


@contextmanager
def reading(database: Path) -> Iterator[int]:
    """Run another process that reads the database for the block. Yield the process id."""
    arguments = [sys.executable, "-c", SHELL, str(database)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        assert there(shell.stdout).readline() == "reads\n"
        yield shell.pid


def grow(database: Path) -> None:
    """Write changes until the WAL exceeds its limit."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE grown (content BLOB)")
        db.execute("INSERT INTO grown VALUES (zeroblob(?))", (database_files.LARGE_LOG_BYTES,))
        db.execute("DROP TABLE grown")
        db.execute("COMMIT")


async def storage(posd: Daemon) -> Any:
    return (await posd.call("GET", "/health")).json["checks"]["storage"]


async def test_a_program_that_keeps_the_wal_from_shrinking_is_named(posd: Daemon, terminal: ScriptedTerminal) -> None:
    log = posd.database.with_name("posd.db-wal")
    await pay(posd, terminal)
    with reading(posd.database) as pid:
        grow(posd.database)
        await pay(posd, terminal)
        assert log.stat().st_size > database_files.LARGE_LOG_BYTES
        assert [reader for reader, _ in database_files.log_readers(posd.database)] == [pid]
        found = await storage(posd)
        assert (found["status"], found["reason"]) == ("degraded", "large_log")
        assert f"(process {pid}) reads the database without end" in found["detail"]
        assert found["todo"].endswith(f"fuser -v {log}")
        terminal.start = nowhere  # the terminal needs a script, because posd doctor connects to it
        doctor = await asyncio.to_thread(command, "doctor", config=posd.config_file)
        assert f"(process {pid}) reads the database without end" in " ".join(doctor.stdout.split())
    terminal.start = None
    await pay(posd, terminal, 2)
    assert log.stat().st_size < database_files.LARGE_LOG_BYTES
    assert (await storage(posd))["status"] == "ok"
