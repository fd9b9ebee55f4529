"""A PostgreSQL server for the tests, on a Unix socket."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from tests.support.needs import find

#: Most seconds until the server starts.
START_SECONDS = 60.0
SETTINGS = "listen_addresses=''\nmax_connections=30\nshared_buffers=32MB\n"


@dataclass
class Postgres:
    """A server that can be killed and restarted with the same files.

    Without `syncs` a killed process loses nothing; only a power cut could.
    """

    directory: Path
    syncs: bool = False
    _process: asyncio.subprocess.Process | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.directory} dbname=postgres user=posd"

    def _as_itself(self, *command: str) -> tuple[str, ...]:
        """Return the command prefix that runs PostgreSQL as its own user, since it does not run as root."""
        return (
            ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command) if os.geteuid() == 0 else command
        )

    def make(self) -> None:
        """Create its files."""
        if os.geteuid() == 0:
            os.chown(self.directory, 65534, 65534)
        initdb = find("initdb")
        assert initdb is not None
        files = str(self.directory / "data")
        subprocess.run(
            self._as_itself(initdb, "-D", files, "-U", "posd", "-E", "UTF8", "--locale=C", "-A", "trust", "-N"),
            check=True,
            capture_output=True,
            cwd="/",
        )
        with (self.directory / "data" / "postgresql.conf").open("a") as config:
            config.write(
                f"unix_socket_directories='{self.directory}'\n{SETTINGS}fsync={'on' if self.syncs else 'off'}\n"
            )

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        postgres = find("postgres")
        assert postgres is not None
        with (self.directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._as_itself(postgres, "-D", str(self.directory / "data")), stdout=log, stderr=log, cwd="/"
            )
        async with asyncio.timeout(START_SECONDS):
            while True:
                with suppress(psycopg.OperationalError):
                    await self.rows("SELECT 1")
                    return
                assert self._process.returncode is None, (self.directory / "log").read_text()

    async def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: with SIGINT in order, with SIGQUIT like a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            await self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to all its processes for clients."""
        assert self._process is not None
        main = self._process.pid
        for pid in (main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())):
            os.kill(pid, number)

    async def rows(self, query: Any, values: Any = None) -> list[Any]:
        """Run a query."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            found = await connection.execute(query, values)
            return await found.fetchall() if found.description else []


@asynccontextmanager
async def postgres(*, syncs: bool = False) -> AsyncIterator[Postgres]:
    """Run one for the block, in a directory that its own user can reach."""
    with TemporaryDirectory(prefix="posd-") as directory:
        server = Postgres(Path(directory), syncs)
        server.make()
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
