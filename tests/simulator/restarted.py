"""One terminal process after the other, with one state directory, one ledger file and one receiver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.simulator.conftest import LOCAL, PATIENCE, Receiver, request
from tests.simulator.processes import simulate


class Restarted:
    """What stays where a terminal process is stopped or killed, and is started again."""

    #: Of every process; what a process is given beside them stands behind, and counts.
    options: tuple[str, ...] = ()

    def __init__(self, tmp: Path, receiver: Receiver, client: httpx2.AsyncClient) -> None:
        self.tmp = tmp
        self.receiver = receiver
        self.client = client
        self.ledger = tmp / "ledger.jsonl"
        self.state = tmp / "state"
        self.base_url = ""

    @classmethod
    @asynccontextmanager
    async def opened(cls, tmp: Path) -> AsyncIterator[Self]:
        receiver = Receiver()
        await receiver.open(None)
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            yield cls(tmp, receiver, client)
        await receiver.close()

    @asynccontextmanager
    async def terminal(
        self, *options: str, kill_at: tuple[str, int] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the next process; it may die at a point of its code."""
        files = ("--state", str(self.state), "--ledger", str(self.ledger))
        given = ("--http", *self.options, *files, *options)
        async with simulate(*given, tmp=self.tmp, kill_at=kill_at) as (process, ready):
            self.base_url = ready["base_url"]
            yield process

    async def start(self, operation: str, **fields: Any) -> httpx2.Response:
        body = request(**fields, events_webhook_url=self.receiver.url)
        return await self.client.post(self.base_url + LOCAL[operation], json=body)
