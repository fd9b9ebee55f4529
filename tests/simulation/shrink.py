"""Search for the shortest run that still fails in the same way. Faults are omitted first, then sales.

Each sale and each fault has its own random source, so an omission does not change the others. The same run always
shrinks to the same result.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.plan import Plan
from tests.simulation.world import World

#: Parts in which messages of one kind differ: ids, numbers, hexadecimal texts.
_PARTICULARS: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|SN-\d+|\d+"
)
#: Maximum number of runs in one search.
MOST_RUNS: Final = 60


def kind_of(failure: str) -> str:
    """Return a message without the details of one run."""
    return _PARTICULARS.sub("#", failure)


def kinds(failures: Iterable[str]) -> frozenset[str]:
    """Return the kinds of messages."""
    return frozenset(map(kind_of, failures))


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest failing plan, and the number of runs that the search took."""

    plan: Plan
    runs: int


class _Enough(Exception):
    """Error if a search has used all permitted runs."""


def shrink(plan: Plan, wanted: frozenset[str]) -> Shrunk:
    """Shrink a plan while it still fails with one of these kinds of messages."""
    made = 0
    best = plan

    def fails(sales: Sequence[int], faults: Sequence[int]) -> bool:
        nonlocal made, best
        if made >= MOST_RUNS:
            raise _Enough
        made += 1
        tried = plan.with_only(sales, faults)
        if wanted.isdisjoint(kinds(failures_of(tried))):
            return False
        best = tried
        return True

    def numbers() -> tuple[list[int], list[int]]:
        return [sale.number for sale in best.sales], [fault.number for fault in best.faults]

    try:
        sales, faults = numbers()
        _fewer(faults, lambda some: fails(sales, some))
        _, faults = numbers()
        _fewer(sales, lambda some: fails(some, faults))
        sales, faults = numbers()
        _fewer(faults, lambda some: fails(sales, some))
    except _Enough:
        pass
    return Shrunk(best, made)


def failures_of(plan: Plan) -> list[str]:
    """Play a plan. Return the failures, and the errors of the simulation itself."""
    try:
        return World(plan).run().failures
    except Exception as error:  # noqa: BLE001 - an error counts as a failure
        return [repr(error)]


def _fewer(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> None:
    """Omit parts of the plan while the run still fails, first large parts and then smaller parts (delta debugging)."""
    left = list(items)
    if left and fails([]):
        return
    parts = 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        for begin in range(0, len(left), size):
            rest = left[:begin] + left[begin + size :]
            if rest and fails(rest):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                return
            parts = min(len(left), parts * 2)
