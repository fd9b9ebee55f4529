"""What a four-event payment costs the flash: syncs and bytes; payments one at a time, from the PUT to the outcome."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from uuid import uuid4

from posd.storage import connection
from tests.bench.altered import altered
from tests.bench.bench import Bench
from tests.bench.load import send, trusting
from tests.bench.rows import Row
from tests.bench.servers import serving
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, till
from tests.bench.written import Span, owners, spans
from tests.support.shim import build

KIB = 1024
#: What each commit of such a payment is for, in order.
COMMITS = ("intent", "reply of the terminal", "first event", "card presented", "approval requested", "approval")
#: Rows that are numbered by their place alone: SQLite then keeps no table of the numbers that it gave out.
_NO_SEQUENCE = """
    PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET sql = replace(sql, ' AUTOINCREMENT', '') WHERE name IN ('events', 'journal', 'changes');
    PRAGMA writable_schema = RESET;
"""


@dataclass(frozen=True)
class Variant:
    """How a database can be made otherwise: its page size in bytes (None: as posd makes it), SQL, posd's constants."""

    page_size: int | None = None
    script: str = ""
    constants: tuple[str, ...] = ()


LOG_PAGES = "posd.storage.connection.LOG_PAGES"
VARIANTS: Mapping[str, Variant] = {
    **{f"pages of {size} bytes": Variant(size) for size in (512, 1024, 2048, 4096, 8192)},
    "checkpoints four times as rare": Variant(constants=(f"{LOG_PAGES}={4 * connection.LOG_PAGES}",)),
    "checkpoints four times as often": Variant(constants=(f"{LOG_PAGES}={connection.LOG_PAGES // 4}",)),
    "events, journal and changes without AUTOINCREMENT": Variant(script=_NO_SEQUENCE),
    "without the index of the newest": Variant(script="DROP INDEX transactions_newest"),
    "without the index of references": Variant(script="DROP INDEX transactions_given_reference"),
    "without the index of a transaction's events": Variant(script="DROP INDEX events_of_transaction"),
}


async def measure(bench: Bench) -> Sequence[Row]:
    """Return the rows of syncs and of bytes."""
    count = bench.pick(300, 8)
    bench.say("flash: payments under the shim")
    taken, pages = await _record(bench, "recorded", Variant(), count)
    bench.say("flash: the same as the kernel counts it")
    kernel = await _count(bench, count)
    bench.say("flash: the naive receiver")
    naive = _summary(await _record_naive(bench, count))
    others = {}
    for number, (name, variant) in enumerate(VARIANTS.items() if not bench.short else ()):
        bench.say(f"flash: {name}")
        spent, _ = await _record(bench, f"variant-{number}", variant, count // 2)
        others[name] = _summary(spent)
    mean = _summary(taken)
    details = mean | {"kernel_kib": kernel / KIB, "pages": pages, "naive": naive, "variants": others}
    least = min(others, key=lambda name: others[name]["blocks_kib"], default="")
    lower = f"; lowest of the variants: {least}, {others[least]['blocks_kib']:.0f} KiB" if others else ""
    return [
        Row(
            figure="syncs for a four-event payment, quiet",
            measured=mean["syncs"],
            limit=7.0,
            unit="syncs",
            at_least=False,
            ours=f"{mean['syncs']:.2f}, checkpoints in; median {mean['syncs_median']:.0f}",
            naive=f"{naive['syncs']:.1f}, for the events alone",
            details=mean,
        ),
        Row(
            figure="bytes written to the device for it",
            measured=mean["blocks_kib"],
            limit=160.0,
            unit="KiB",
            at_least=False,
            ours=f"{mean['blocks_kib']:.0f} KiB in whole blocks of 4 KiB, checkpoints in",
            naive=f"{naive['blocks_kib']:.0f} KiB, for the events alone",
            note=f"{mean['bytes_kib']:.0f} KiB were written, the kernel counts {kernel / KIB:.0f} KiB{lower}",
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


async def _record(
    bench: Bench, name: str, variant: Variant, count: int
) -> tuple[list[Span], Mapping[str, Mapping[str, float]]]:
    """Run payments under the shim; return what each wrote, and the mean pages of each commit by table and index."""
    home = bench.directory(f"flash-{name}")
    directory = home / "posd"
    shim = build(home, directory / "state")
    database = directory / "state" / "posd.db"
    _prepare(database, variant)
    entering = altered(*variant.constants) if variant.constants else ()
    async with open_shop(directory, 1, shim.environment(), entering=entering) as shop, _one_at_a_time(shop) as pay:
        await pay(count // 4)
        moments = [shim.position()]
        for _ in range(count):
            await pay(1)
            moments.append(shim.position())
        try:
            owner = owners(database)
        except sqlite3.Error:  # this SQLite cannot tell
            owner = {}
    taken = spans(shim.operations(), moments)
    shim.log.unlink()
    return taken, _pages(taken, owner)


async def _record_naive(bench: Bench, count: int) -> list[Span]:
    """Have the naive receiver take the events of so many payments, one at a time; return what each wrote."""
    home = bench.directory("flash-naive")
    shim = build(home, home / "state")
    shim.directory.mkdir()
    database = str(shim.directory / "naive.db")
    async with serving("tests.bench.naive", home, "--database", database, environment=shim.environment()) as server:
        moments = [shim.position()]
        for _ in range(count):
            identity = str(uuid4())
            payment = Payment(identity, "SN-0001", f"/webhooks/transactions/{identity}/token")
            (await send(server.port, server.context, [payment.events()])).all_are(200)
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
        await pay(count // 4)
        before = _write_bytes(shop.pid)
        await pay(count)
        return (_write_bytes(shop.pid) - before) / count


def _write_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("write_bytes"))
    return int(line.split()[1])


def _prepare(database: Path, variant: Variant) -> None:
    """Make the database of a variant, where it is not as posd makes it."""
    if variant.page_size is None and not variant.script:
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {variant.page_size or connection.PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL").close()
        connection.migrate(db, database)
        db.executescript(variant.script)


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
