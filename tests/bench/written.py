"""Syncs and bytes of payments on the disk of a daemon under the shim (tests/support/shim.py)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.bench.bench import Bench
from tests.bench.paying import one_by_one
from tests.bench.shop import open_shop
from tests.support.shim import Kind, Operation, build
from tests.support.usage import KIB

#: Size of a file system's block, which is the least amount that a disk writes, in bytes.
BLOCK = 4096


@dataclass
class Span:
    """Writes between two moments. `blocks`: bytes written to the disk in whole blocks. Each block counts once between
    two syncs.
    """

    syncs: int = 0
    blocks: int = 0


def spans(operations: Iterable[Operation], moments: Sequence[int]) -> list[Span]:
    """Return the writes between each two moments (`Shim.position`). The last span lasts until the end."""
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
    """Run this many payments a round under the shim. Return, for each round, the mean number of syncs and of KiB of a
    payment.
    """
    home = bench.directory("recorded")
    directory = home / "posd"
    shim = build(home, directory / "state")
    rounds = bench.rounds()
    async with open_shop(directory, 1, shim.environment()) as shop, one_by_one(shop) as payments:
        await payments.pay(count)
        moments = [shim.position()]
        for _ in rounds:
            await payments.pay(count)
            moments.append(shim.position())
    taken = spans(shim.operations(), moments)
    shim.log.unlink()
    return [span.syncs / count for span in taken], [span.blocks / count / KIB for span in taken]
