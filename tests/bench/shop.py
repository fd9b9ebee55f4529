"""A daemon with many terminals, of which all live in this process behind one port: they take every payment, at once.

Their events are sent by `tests.bench.paying`.
"""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import trustme

from tests.bench.processes import environment as variables
from tests.support.daemon import ANY_PORT, START_SECONDS, Daemon, living, toml
from tests.support.leftovers import OWNER
from tests.support.ports import reserve

#: What every payment here is of, as the till says it.
AMOUNT: Mapping[str, Any] = {"subtotal_iva": 10.00, "iva": 1.20, "subtotal_iva0": 0}
#: How often a starting daemon's log is looked at, in seconds.
_LOOK_SECONDS = 0.01


@dataclass
class Measured(Daemon):
    """A fresh interpreter that logs to a file in memory: reading lines would take a processor from what is measured."""

    _log: int = -1

    async def start(self, *, wait: bool = True) -> None:
        self.config = self.config.replace(ANY_PORT, f"127.0.0.1:{reserve()}")
        self.config_file.write_text(self.config)
        self._log = os.memfd_create("log")
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "posd", "--config", str(self.config_file), "run"),
            stdout=self._log,
            stderr=asyncio.subprocess.STDOUT,
            env=variables({OWNER: self._owner} | dict(self.environment)),
            cwd=self.directory,
        )
        async with asyncio.timeout(START_SECONDS):
            while not (started := [line for line in self._said() if line["event"] == "posd.started"]):
                assert self.process.returncode is None, self._said()
                await asyncio.sleep(_LOOK_SECONDS)
        self.port = int(started[0]["listen"].rsplit(":", 1)[1])

    def _said(self) -> list[dict[str, Any]]:
        text = os.pread(self._log, os.fstat(self._log).st_size, 0)
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    async def ended(self) -> int:
        code = await super().ended()
        self.lines = self._said()
        os.close(self._log)
        return code


class Terminals:
    """HTTP servers of terminals: each start is acknowledged at once, a search finds nothing (404)."""

    def __init__(self) -> None:
        #: The callback path of each start, by its payment's id.
        self.arrived: dict[str, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; posd opens a connection for each start."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        document = json.loads(body) if body else {}
        if "events_webhook_url" in document:
            identity = document["client_transaction_id"]
            self.arrived[identity] = urlsplit(document["events_webhook_url"]).path
            serial = lines[0].split(" ")[1].split("/")[1].upper()
            answer = {
                "event_id": str(uuid4()),
                "status": "TERMINAL_ACKNOWLEDGED",
                "previous_status": "",
                "operation": {"type": "charge", "client_transaction_id": identity},
                "terminal": {"serialNumber": serial, "model": "M", "terminal_id": "1"},
            }
            _answer(writer, "200 OK", json.dumps(answer).encode())
        else:
            _answer(writer, "404 Not Found", b"")
        writer.close()


def _answer(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


@dataclass
class Shop:
    """One daemon and its terminals."""

    daemon: Measured
    terminals: Terminals
    serials: Sequence[str]

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self.daemon.process is not None
        return self.daemon.process.pid


@asynccontextmanager
async def open_shop(
    directory: Path,
    count: int,
    environment: Mapping[str, str] | None = None,
    discovery: str = "enabled = false",
    *,
    secure: bool = False,
) -> AsyncIterator[Shop]:
    """Run a daemon with so many terminals for the block; with `secure` they speak HTTPS, under a CA of their own."""
    terminals = Terminals()
    serials = [f"SN-{number:04}" for number in range(1, count + 1)]
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
    authority, ca_file = trustme.CA(), directory / "terminals.crt"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with await asyncio.start_server(
        terminals.serve, "127.0.0.1", 0, backlog=1024, ssl=context if secure else None
    ) as server:
        scheme, port = "https" if secure else "http", server.sockets[0].getsockname()[1]
        trust = f'ca_file = "{ca_file}"\n' if secure else ""
        entries = "".join(
            f'[[terminals]]\nserial = "{serial}"\nbase_url = "{scheme}://127.0.0.1:{port}/{serial}"\n{trust}\n'
            for serial in serials
        )
        daemon = Measured(directory, toml(directory, entries, discovery=discovery), environment or {})
        async with living(daemon):
            yield Shop(daemon, terminals, serials)
