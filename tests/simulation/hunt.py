"""Looking for a deliberate fault: seeds are run with it in the product, until a check fails that holds without it."""

import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from random import Random
from typing import Any, Final

from tests.simulation.breaks import BREAKS, applied
from tests.simulation.plan import make_plan
from tests.simulation.world import World

#: Sales of a run; a short one finds what is common sooner, a long one what needs many faults together.
SIZES: Final = (40, 100, 100, 200)
#: What the longest run without a break takes many times over, in seconds of the processor: with one it may never end.
MOST_SECONDS: Final = 60.0
WORKERS: Final = 2
#: What is shown of a failure in a document, in characters.
LONGEST: Final = 110
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Found:
    """The result of a hunt: the payments that it took, and the seed and what it said, None where nothing was found."""

    name: str
    payments: int
    seed: int | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Run:
    """One run: its payments, and the first check that failed, None where none did."""

    seed: int
    payments: int
    failure: str | None


def hunt(name: str, payments: int = 20_000, first_seed: int = 0) -> Found:
    """Run seeds with a break until it is found, or so many payments were made. The same call finds the same."""
    BREAKS[name]
    made = 0
    with _workers() as submit:
        seeds = iter(range(first_seed, first_seed + payments))
        under_way = deque(submit(name, next(seeds)) for _ in range(WORKERS))
        while made < payments:
            run = under_way.popleft().result()
            made += run.payments
            if run.failure is not None:
                return Found(name, made, run.seed, run.failure)
            under_way.append(submit(name, next(seeds)))
    return Found(name, made)


def table(results: Collection[Found]) -> str:
    """Return what was found as a table."""
    rows = [("fault", "part", "payments", "seed", "what failed")]
    for found in results:
        seed, failure = ("-", "NOT FOUND") if found.failure is None else (str(found.seed), found.failure)
        rows.append((found.name, BREAKS[found.name].part, f"{found.payments:,}", seed, failure[:100]))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(_line(row, widths) for row in rows)


def markdown(results: Collection[Found]) -> str:
    """Return what was found as a table of Markdown."""
    rows = [("fault", "part", "what it does", "payments", "seed", "what failed first"), ("---",) * 6]
    for found in results:
        seed, failure = ("-", "NOT FOUND") if found.failure is None else (str(found.seed), _short(found.failure))
        mistake = BREAKS[found.name]
        rows.append((f"`{found.name}`", mistake.part, mistake.says, f"{found.payments:,}", seed, failure))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _short(failure: str) -> str:
    """Return a failure without the ids in it, and no longer than a line."""
    said = _ID.sub("ID", failure).replace("|", "\\|")
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, part, payments, seed, failure = row
    return f"{name:{widths[0]}}  {part:{widths[1]}}  {payments:>{widths[2]}}  {seed:>{widths[3]}}  {failure}"


def run_one(name: str, seed: int) -> Run:
    """Run one seed with a break. What fails without it as well does not count."""
    run = _run(name, seed)
    if run.failure is not None and _run(None, seed).failure is not None:
        return Run(seed, run.payments, None)
    return run


def _run(name: str | None, seed: int) -> Run:
    sales = Random(f"hunt/{seed}").choice(SIZES)
    world = World(make_plan(seed, sales), until_failure=True)
    try:
        with nullcontext() if name is None else applied(name), _limited():
            result = world.run()
    except (Exception, _Endless) as error:  # noqa: BLE001 - the daemon did what the world cannot live with
        return Run(seed, sales, next(iter(world.checks.failures), f"the world ends: {error!r}"))
    return Run(seed, result.payments, result.failures[0] if result.failures else None)


class _Endless(KeyboardInterrupt):
    """A run takes too long; asyncio lets only such an exception through."""


@contextmanager
def _limited() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise _Endless(f"it takes more than {MOST_SECONDS:g} s of the processor")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _quiet() -> None:
    """Say nothing of what a run leaves that ends in the middle."""
    sys.unraisablehook = lambda _error: None


@contextmanager
def _workers() -> Iterator[Callable[[str, int], "Future[Run]"]]:
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"), initializer=_quiet) as pool:
        try:
            yield lambda name, seed: pool.submit(run_one, name, seed)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
