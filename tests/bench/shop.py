"""A daemon with many terminals, which all run in this process behind one port and accept every payment at once.

`tests.bench.paying` sends their events.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.daemon import ANY_PORT, START_SECONDS, Daemon, living, toml
from tests.support.leftovers import OWNER
from tests.support.ports import reserve
from tests.support.terminal import Request, acknowledgement, http, scripted_terminal
from tests.support.usage import environment as variables

#: The till's request for every payment.
AMOUNT: Mapping[str, Any] = {"subtotal_iva": 10.00, "iva": 1.20, "subtotal_iva0": 0}
#: Seconds between two reads of a starting daemon's log.
_LOOK_SECONDS = 0.01


@dataclass
class Measured(Daemon):
    """A new interpreter that logs to a file in memory, because reading the lines of its log would use the measured
    processor.
    """

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


@dataclass
class Shop:
    """One daemon and its terminals."""

    daemon: Measured
    serials: Sequence[str]
    #: The callback path of each start, by its payment's id.
    arrived: dict[str, str]

    @property
    def pid(self) -> int:
        """Return the daemon's process id."""
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
    """Run a daemon with this many terminals for the block; with `secure` they use HTTPS."""
    serials = [f"SN-{number:04}" for number in range(1, count + 1)]
    arrived: dict[str, str] = {}
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet

    async def acknowledge(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived[request.json["client_transaction_id"]] = urlsplit(request.callback).path
        writer.write(http(200, acknowledgement(request, request.path.split("/")[1])))

    async with scripted_terminal(directory, plain=not secure) as terminal:
        terminal.start = acknowledge
        trust = f'ca_file = "{terminal.ca_file}"\n' if secure else ""
        entries = "".join(
            f'[[terminals]]\nserial = "{serial}"\nbase_url = "{terminal.base_url}/{serial}"\n{trust}\n'
            for serial in serials
        )
        daemon = Measured(directory, toml(directory, entries, discovery=discovery), environment or {})
        async with living(daemon):
            yield Shop(daemon, serials, arrived)
