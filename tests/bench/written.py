"""What payments write to the disk of a daemon under the shim (tests/support/shim.py): syncs and bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from tests.bench.bench import Bench
from tests.bench.load import trusting
from tests.bench.processes import KIB
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, till
from tests.support.shim import Kind, Operation, build

#: A file system's block, and the least that a disk is given to write, in bytes.
BLOCK = 4096


@dataclass
class Span:
    """What was written between two moments.

    `blocks` is how many bytes the disk was given: whole blocks, each once for all that was written to it between two
    syncs.
    """

    syncs: int = 0
    blocks: int = 0


def spans(operations: Iterable[Operation], moments: Sequence[int]) -> list[Span]:
    """Return what was written between each two moments (`Shim.position`), the last of which is the end."""
    names: dict[tuple[int, int], str] = {}
    dirty: dict[str, set[int]] = {}
    found = [Span() for _ in moments[1:]]
    at = 0
    for operation in operations:
        if operation.kind is Kind.OPEN:
            names[operation.descriptor] = operation.name
            continue
        while at < len(moments) and operation.end > moments[at]:
            at += 1
        if at == len(moments):
            break
        span = found[at - 1] if at else Span()
        name = names.get(operation.descriptor, operation.name)
        if operation.kind is Kind.WRITE:
            first, last = operation.offset // BLOCK, (operation.offset + len(operation.data) - 1) // BLOCK
            dirty.setdefault(name, set()).update(range(first, last + 1))
        elif operation.kind is Kind.SYNC:
            span.syncs += 1
            span.blocks += len(dirty.pop(name, ())) * BLOCK
    return found


async def record(bench: Bench, count: int) -> tuple[list[float], list[float]]:
    """Run payments under the shim, so many a round; return the mean syncs and KiB of one in each round."""
    home = bench.directory("recorded")
    directory = home / "posd"
    shim = build(home, directory / "state")
    rounds = bench.rounds()
    async with open_shop(directory, 1, shim.environment()) as shop, _one_at_a_time(shop) as pay:
        await pay(count)
        moments = [shim.position()]
        for _ in rounds:
            await pay(count)
            moments.append(shim.position())
    taken = spans(shim.operations(), moments)
    shim.log.unlink()
    return [span.syncs / count for span in taken], [span.blocks / count / KIB for span in taken]


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
            for event in Payment(identity, serial, shop.terminals.arrived.pop(identity)).events():
                lan.send(event)
                await lan.answer(200)
            own.send(call("GET", f"{identity}/outcome"))
            await own.answer(200)

    try:
        yield pay
    finally:
        own.close()
        lan.close()
