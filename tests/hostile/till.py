"""A till that pays on every terminal, makes other calls, and records the duration of each call."""

import asyncio
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

from tests.support.streams import call

#: Seconds between two reads, and seconds between two payments on a terminal.
PAUSE_SECONDS = 0.02
#: The first amount. The amount grows by one cent with each payment, and stays far below the simulator's test amounts.
FIRST_AMOUNT = Decimal("10.00")


class Till:
    """One till on one socket."""

    def __init__(self, socket: Path, seconds: float) -> None:
        self._socket = socket
        self._end = time.monotonic() + seconds
        self._amount = FIRST_AMOUNT
        self._newest = ""
        #: Durations in milliseconds.
        self.reads: list[float] = []
        self.payments: list[float] = []
        #: Id -> the amount, and the result that the till received.
        self.paid: dict[str, tuple[Decimal, str]] = {}
        self.problems: list[str] = []

    async def run(self, serials: Sequence[str]) -> None:
        """Pay and read until the time is over. Wait for every started payment."""
        await asyncio.gather(self._read(), *(self._pay(serial) for serial in serials))

    async def _pay(self, serial: str) -> None:
        while time.monotonic() < self._end:
            identity, self._amount = str(uuid4()), self._amount + Decimal("0.01")
            amount = self._amount
            self.paid[identity] = amount, "unknown"
            request = {"type": "charge", "terminal": serial, "amount": {"subtotal_iva0": float(amount)}}
            began = time.perf_counter()
            reply = await call(self._socket, "PUT", f"/transactions/{identity}", request)
            if reply.status != 201:
                self.problems.append(f"the start of {identity} was answered {reply.status}: {reply.body!r}")
                continue
            self._newest = identity
            reply = await call(self._socket, "GET", f"/transactions/{identity}/outcome?timeout=60")
            self.payments.append((time.perf_counter() - began) * 1000)
            if reply.status == 200:
                self.paid[identity] = amount, reply.json["result"]
            else:
                self.problems.append(f"no outcome of {identity} in a minute: {reply.status}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        while time.monotonic() < self._end:
            if self._newest:
                began = time.perf_counter()
                reply = await call(self._socket, "GET", f"/transactions/{self._newest}")
                self.reads.append((time.perf_counter() - began) * 1000)
                if reply.status != 200:
                    self.problems.append(f"a read was answered {reply.status}")
            await asyncio.sleep(PAUSE_SECONDS)
