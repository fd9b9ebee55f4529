"""A PostgreSQL server for the tests, on a Unix socket."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from tests.rig.needs import find
from tests.rig.program import Server

SETTINGS = "listen_addresses=''\nmax_connections=30\nshared_buffers=32MB\n"


@dataclass
class Postgres(Server):
    """A server on a Unix socket. SIGINT ends the server in order. SIGQUIT ends the server like a crash. Only a power
    cut could lose data.
    """

    @property
    def dsn(self) -> str:
        return f"host={self.directory} dbname=postgres user=posd"

    def _as_itself(self, *command: str) -> tuple[str, ...]:
        """Return the command prefix that runs PostgreSQL as its own user. PostgreSQL does not run as root."""
        own = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        return (*own, *command) if os.geteuid() == 0 else command

    def make(self) -> None:
        """Create the files of the server."""
        if os.geteuid() == 0:
            os.chown(self.directory, 65534, 65534)
        files = ("-D", str(self.directory / "data"), "-U", "posd", "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
        subprocess.run(self._as_itself(str(find("initdb")), *files), check=True, capture_output=True, cwd="/")
        with (self.directory / "data" / "postgresql.conf").open("a") as config:
            config.write(f"unix_socket_directories='{self.directory}'\n{SETTINGS}fsync=off\n")

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        command = self._as_itself(str(find("postgres")), "-D", str(self.directory / "data"))
        await self.run(*command, ready="ready to accept connections")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server and to all its processes for clients."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            os.kill(pid, number)

    async def rows(self, query: Any, values: Any = None) -> list[Any]:
        """Run a query."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            found = await connection.execute(query, values)
            return await found.fetchall() if found.description else []


@asynccontextmanager
async def postgres() -> AsyncIterator[Postgres]:
    """Run a server for the block, in a directory that the server's user can enter."""
    with TemporaryDirectory(prefix="posd-") as directory:
        server = Postgres(Path(directory))
        server.make()
        async with server:
            yield server
