"""A till that pays on every terminal, makes other calls meanwhile, and records the duration of each call.

`python -m tests.hostile.till --socket PATH --seconds N SERIAL...` prints one JSON document at its end: `reads` and
`payments` in milliseconds, `paid` (id -> amount and result) and `problems` as text.
"""

import argparse
import asyncio
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.streams import call

#: Seconds between two reads, and between two payments on the same terminal.
PAUSE_SECONDS = 0.02
#: The first amount; each payment takes one cent more, far below the simulator's test amounts.
FIRST_AMOUNT = Decimal("10.00")


class Till:
    """One till on one socket."""

    def __init__(self, socket: Path, seconds: float) -> None:
        self._socket = socket
        self._end = time.monotonic() + seconds
        self._amount = FIRST_AMOUNT
        self._newest = ""
        self.reads: list[float] = []
        self.payments: list[float] = []
        self.paid: dict[str, dict[str, str]] = {}
        self.problems: list[str] = []

    async def run(self, serials: list[str]) -> None:
        """Pay and read until the time is over. Wait for every started payment."""
        await asyncio.gather(self._read(), *(self._pay(serial) for serial in serials))

    async def _pay(self, serial: str) -> None:
        while time.monotonic() < self._end:
            identity, self._amount = str(uuid4()), self._amount + Decimal("0.01")
            amount = self._amount
            self.paid[identity] = {"amount": str(amount), "result": "unknown"}
            request = {"type": "charge", "terminal": serial, "amount": {"subtotal_iva0": float(amount)}}
            began = time.perf_counter()
            status, document = await self._call("PUT", f"/transactions/{identity}", request)
            if status != 201:
                self.problems.append(f"the start of {identity} was answered {status}: {document}")
                continue
            self._newest = identity
            status, document = await self._call("GET", f"/transactions/{identity}/outcome?timeout=60")
            self.payments.append((time.perf_counter() - began) * 1000)
            if status == 200:
                self.paid[identity]["result"] = document["result"]
            else:
                self.problems.append(f"no outcome of {identity} in a minute: {status}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self) -> None:
        while time.monotonic() < self._end:
            if self._newest:
                began = time.perf_counter()
                status, _ = await self._call("GET", f"/transactions/{self._newest}")
                self.reads.append((time.perf_counter() - began) * 1000)
                if status != 200:
                    self.problems.append(f"a read was answered {status}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        reply = await call(self._socket, method, path, body)
        return reply.status, json.loads(reply.body) if reply.body else None


def main() -> None:
    """Run the till and print its results."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.till")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("serials", nargs="+")
    options = parser.parse_args()
    till = Till(options.socket, options.seconds)
    asyncio.run(till.run(options.serials))
    print(json.dumps({"reads": till.reads, "payments": till.payments, "paid": till.paid, "problems": till.problems}))


if __name__ == "__main__":
    main()
