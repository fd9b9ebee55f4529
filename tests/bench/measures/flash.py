"""What a four-event payment costs the flash: syncs and bytes; payments one at a time, from the PUT to the outcome."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean, median
from uuid import uuid4

from tests.bench.bench import Bench
from tests.bench.load import connected, trusting
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, till
from tests.bench.written import Span, owners, spans
from tests.support.shim import build

KIB = 1024
#: What each commit of such a payment is for, in order.
COMMITS = ("intent", "reply of the terminal", "first event", "card presented", "approval requested", "approval")


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the rows of syncs and of bytes."""
    count = bench.pick(60, 8)
    bench.say("flash: payments under the shim")
    taken, pages = await record(bench, "recorded", count)
    bench.say("flash: the same as the kernel counts it")
    kernel = await _count(bench, count * len(taken))
    bench.say("flash: the naive receiver")
    naive = _summary(await _record_naive(bench, count))
    each = [_summary(spent) for spent in taken]
    mean = _summary([span for spent in taken for span in spent])
    details = {"all": mean, "rounds": each, "kernel_kib": kernel / KIB, "pages": pages, "naive": naive}
    return [
        Row(
            figure="syncs for a four-event payment, quiet",
            rounds=[found["syncs"] for found in each],
            limit=6.0,
            unit="syncs",
            at_least=False,
            ours=f"{mean['syncs']:.2f}, checkpoints in; median {mean['syncs_median']:.0f}",
            naive=f"{naive['syncs']:.1f}, for the events alone",
        ),
        Row(
            figure="bytes written to the device for it",
            rounds=[found["blocks_kib"] for found in each],
            limit=110.0,
            unit="KiB",
            at_least=False,
            ours=f"{mean['blocks_kib']:.0f} KiB in whole blocks of 4 KiB, checkpoints in",
            naive=f"{naive['blocks_kib']:.0f} KiB, for the events alone",
            note=f"{mean['bytes_kib']:.0f} KiB were written, the kernel counts {kernel / KIB:.0f} KiB",
            details=details,
        ),
    ]


def _summary(taken: Sequence[Span]) -> dict[str, float]:
    """Return what a payment cost: means, so that checkpoints have their share, and medians."""
    return {
        "payments": len(taken),
        "syncs": fmean(span.syncs for span in taken),
        "syncs_median": median(span.syncs for span in taken),
        "blocks_kib": fmean(span.blocks for span in taken) / KIB,
        "blocks_kib_median": median(span.blocks for span in taken) / KIB,
        "bytes_kib": fmean(span.bytes for span in taken) / KIB,
        "log_kib": fmean(sum(span.written.get(name, 0) for name in span.written if "-wal" in name) for span in taken)
        / KIB,
        "commits": fmean(len(span.commits) for span in taken),
    }


async def record(bench: Bench, name: str, count: int) -> tuple[list[list[Span]], Mapping[str, Mapping[str, float]]]:
    """Run payments under the shim, so many a round; return what each wrote, and the mean pages of each commit by owner.

    An owner is a table or an index.
    """
    home = bench.directory(f"flash-{name}")
    directory = home / "posd"
    shim = build(home, directory / "state")
    rounds = bench.rounds()
    async with open_shop(directory, 1, shim.environment()) as shop, _one_at_a_time(shop) as pay:
        await pay(count)
        moments = [shim.position()]
        for _ in range(count * len(rounds)):
            await pay(1)
            moments.append(shim.position())
        try:
            owner = owners(directory / "state" / "posd.db")
        except sqlite3.Error:  # this SQLite cannot tell
            owner = {}
    taken = spans(shim.operations(), moments)
    shim.log.unlink()
    return [taken[first : first + count] for first in range(0, len(taken), count)], _pages(taken, owner)


async def _record_naive(bench: Bench, count: int) -> list[Span]:
    """Have the naive receiver take the events of so many payments, one at a time; return what each wrote."""
    home = bench.directory("flash-naive")
    shim = build(home, home / "state")
    shim.directory.mkdir()
    database = str(shim.directory / "naive.db")
    async with (
        serving("tests.bench.naive", home, "--database", database, environment=shim.environment()) as server,
        connected(server, 1) as sender,
    ):
        moments = [shim.position()]
        for _ in range(count):
            identity = str(uuid4())
            payment = Payment(identity, "SN-0001", f"/webhooks/transactions/{identity}/token")
            (await sender.send([payment.events()])).all_are(200)
            moments.append(shim.position())
    taken = spans(shim.operations(), moments)
    shim.log.unlink()
    return taken


def _pages(taken: Sequence[Span], owner: Mapping[int, str]) -> dict[str, dict[str, float]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in COMMITS}
    for span in taken:
        for name, frames in zip(COMMITS, span.commits, strict=True):
            found[name].update(owner.get(page, "unknown") for page in frames)
    return {name: {table: number / len(taken) for table, number in pages.items()} for name, pages in found.items()}


async def _count(bench: Bench, count: int) -> float:
    """Return the bytes a payment that the kernel has counted as written to the device (/proc/PID/io)."""
    async with open_shop(bench.directory("flash-counted"), 1) as shop, _one_at_a_time(shop) as pay:
        await pay(count // 5)
        before = _write_bytes(shop.pid)
        await pay(count)
        return (_write_bytes(shop.pid) - before) / count


def _write_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("write_bytes"))
    return int(line.split()[1])


@asynccontextmanager
async def _one_at_a_time(shop: Shop) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Give a function that runs payments one after the other, each from the till's PUT to the outcome that it reads."""
    own = await till(shop.daemon.till_socket)
    lan = Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=trusting(shop.daemon.ca)))
    serial = shop.serials[0]
    order = json.dumps({"terminal": serial, "amount": AMOUNT}).encode()

    async def pay(count: int) -> None:
        for _ in range(count):
            identity = str(uuid4())
            own.send(call("PUT", identity, order))
            await own.answer(201)
            for event in Payment(identity, serial, shop.terminals.arrived.pop(identity)[1]).events():
                lan.send(event)
                await lan.answer(200)
            own.send(call("GET", f"{identity}/outcome"))
            await own.answer(200)

    try:
        yield pay
    finally:
        own.close()
        lan.close()
