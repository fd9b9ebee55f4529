"""Quick run (--quick). The run compares ratios with tests/bench/reference.json. These ratios hardly depend on the load
of the machine.

The run compares processor time, memory and bytes written to the disk. Other processes on the machine change rates, and
hardly change these values.
"""

import platform
import sqlite3
import ssl
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median

from tests.bench.bench import FILE, Bench, Ratios, better, complaints, read_reference, write_reference
from tests.bench.measures import open_shops, record, starts
from tests.bench.shop import one_by_one, open_shop
from tests.support.usage import quiet, resident_bytes

#: Payments in a round whose processor time is measured, and payments in a round under the shim.
PAYMENTS, RECORDED = 30, 12


async def run(bench: Bench, *, keep: bool) -> int:
    """Measure and compare. Return the exit code: 1 if a ratio is worse by more than a quarter."""
    begun = time.monotonic()
    measured = await measure(bench)
    if keep:
        write_reference(measured, versions())
        print(f"stored in tests/bench/{FILE.name}")
        return 0
    stored = read_reference()
    _show(measured, stored)
    found = complaints(measured, stored)
    if found:
        print("what is worse is measured once more, and counts if it is worse again")
        measured = better(measured, await measure(replace(bench, home=bench.directory("again"))))
        _show(measured, stored)
        found = complaints(measured, stored)
    for line in found:
        print(line)
    print(f"{len(found)} of {len(stored)} ratios are worse by more than a quarter; {time.monotonic() - begun:.0f} s")
    return 1 if found else 0


async def measure(bench: Bench) -> Ratios:
    """Return all ratios, of five rounds."""
    begun = [pair for (pair,) in await starts(bench, 1)]
    syncs, kib = await record(bench, bench.pick(RECORDED, 2))
    async with AsyncExitStack() as stack:
        idle = await open_shops(bench, stack, "idle")
        for item in idle:
            await quiet(item.pid)
        sizes = [resident_bytes(item.pid) for item in idle]
    count = bench.pick(PAYMENTS, 2)
    async with open_shop(bench.directory("paying"), count, secure=True) as shop, one_by_one(shop) as payments:
        seconds = [await payments.pay(count) for _ in bench.rounds(warm=True)][-len(begun) :]
    return {
        "processor time of a whole payment, by the bare imports'": [
            one / bare.processor for one, (_, bare) in zip(seconds, begun, strict=True)
        ],
        "syncs of a payment": syncs,
        "KiB written for a payment": kib,
        "idle memory, by the bare imports'": [
            size / bare.resident for size, (_, bare) in zip(sizes, begun, strict=True)
        ],
        "processor time from start to ready, by the bare imports'": [
            ours.processor / bare.processor for ours, bare in begun
        ],
    }


def versions() -> dict[str, str]:
    """Return the versions and the machine on which the ratios depend."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "machine": platform.machine(),
    }


def _show(measured: Ratios, stored: Mapping[str, float]) -> None:
    for name, rounds in measured.items():
        least, most = f"{min(rounds):.3g}", f"{max(rounds):.3g}"
        print(f"{median(rounds):8.3g} ({least} to {most}), reference {stored.get(name, 0):.3g}: {name}")
