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
    pairs = bench.pick(60, 10)
    directory = bench.directory("signing")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "code").write_text("5f1e0c8a7b3d49e2a6c4d80f9b2e7135")
    signed = 'auth = "hash-encrypt"\nbusiness_code = {file = "code"}'
    clear: list[list[float]] = []
    sealed: list[list[float]] = []
    rounds = bench.rounds(warm=True)
    terminals = 2 * pairs * len(rounds)
    async with open_shop(directory, terminals, secure=True, further=("", signed)) as shop, shop.till() as till:
        waiting = iter(shop.serials)
        for number in rounds:
            times: tuple[list[float], list[float]] = ([], [])
            for pair in range(pairs):
                serials = (next(waiting), next(waiting))
                for place in (0, 1) if pair % 2 else (1, 0):
                    times[place].append(await _start(till, serials[place]))
            if number:
                clear.append(times[0])
                sealed.append(times[1])
    ours, theirs = (statistics.median(value for taken in side for value in taken) for side in (sealed, clear))
    return [
        Row(
            figure="start that is signed and encrypted (hash-encrypt), by one in clear",
            rounds=[
                statistics.median(one / other for one, other in zip(*pair, strict=True))
                for pair in zip(sealed, clear, strict=True)
            ],
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
