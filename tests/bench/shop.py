"""A daemon with many terminals. All terminals run in this process behind one port and accept every payment at once.

`tests.bench.paying` sends their events.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.daemon import Daemon, running
from tests.support.terminal import Request, acknowledgement, http, scripted_terminal
from tests.support.usage import FRESH

#: The till's request for every payment.
AMOUNT: Mapping[str, Any] = {"subtotal_iva": 10.00, "iva": 1.20, "subtotal_iva0": 0}


@dataclass
class Shop:
    """One daemon and its terminals."""

    daemon: Daemon
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
    """Run a daemon with this many terminals for the block. With `secure` the terminals use HTTPS."""
    serials = [f"SN-{number:04}" for number in range(1, count + 1)]
    arrived: dict[str, str] = {}
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - no other task runs yet

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
        async with running(directory, entries, "", discovery, environment, FRESH) as daemon:
            yield Shop(daemon, serials, arrived)
