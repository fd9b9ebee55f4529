"""What signing and encrypting adds to the start of a payment, which a cashier waits for."""

import statistics
import time
from collections.abc import Sequence
from uuid import uuid4

import httpx2

from tests.bench.bench import Bench
from tests.bench.rows import Row
from tests.bench.shop import AMOUNT, open_shop

#: Times the start in clear.
LIMIT = 1.1
#: A receipt's worth of what a till sends along.
METADATA = {"reference": "ticket 1042", "device": "till-3", "lines": [f"article {number}" for number in range(20)]}

_MILLI = 1000.0


async def measure(bench: Bench) -> Sequence[Row]:
    """Start one payment on each of many terminals: in turn in clear, and signed and encrypted."""
    pairs = bench.pick(400, 10)
    directory = bench.directory("signing")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "code").write_text("5f1e0c8a7b3d49e2a6c4d80f9b2e7135")
    signed = 'auth = "hash-encrypt"\nbusiness_code = {file = "code"}'
    clear: list[float] = []
    sealed: list[float] = []
    async with open_shop(directory, 2 * pairs, secure=True, further=("", signed)) as shop, shop.till() as till:
        for number in range(pairs):
            mine, other = shop.serials[2 * number : 2 * number + 2]
            order = (mine, other) if number % 2 else (other, mine)
            times = {serial: await _start(till, serial) for serial in order}
            clear.append(times[mine])
            sealed.append(times[other])
    ours, theirs = statistics.median(sealed), statistics.median(clear)
    ratios = [one / other for one, other in zip(sealed, clear, strict=True)]
    return [
        Row(
            figure="start that is signed and encrypted (hash-encrypt), by one in clear",
            measured=statistics.median(ratios),
            limit=LIMIT,
            unit="×",
            at_least=False,
            ours=f"{ours * _MILLI:.2f} ms",
            reference=f"in clear {theirs * _MILLI:.2f} ms",
            note="median of pairs, over TLS, with 1 KB of metadata",
            details={"signed_s": sealed, "clear_s": clear},
        )
    ]


async def _start(till: httpx2.AsyncClient, serial: str) -> float:
    """Start a payment; return how many seconds passed until the till had its answer."""
    body = {"terminal": serial, "amount": AMOUNT, "metadata": METADATA}
    begun = time.perf_counter()
    reply = await till.put(f"/transactions/{uuid4()}", json=body)
    seconds = time.perf_counter() - begun
    if reply.status_code != 201 or reply.json()["phase"] != "active":
        raise RuntimeError(f"a start was answered {reply.status_code}: {reply.text}")
    return seconds
