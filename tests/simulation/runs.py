"""Runs of the simulation: seeds, processes that play the runs, and two searches.

One search finds the shortest failing run. The other plays seeds with a deliberate fault until a check fails. The same
run must pass without the fault.
"""

import multiprocessing
import os
import re
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import count, islice
from random import Random
from typing import Any, Final

from tests.simulation import machine
from tests.simulation.breaks import BREAKS, applied
from tests.simulation.plan import BORN, Plan, make_plan
from tests.simulation.world import Result, World

#: Number of sales in a run -> frequency of this number.
SIZES: Final = {20: 10, 100: 50, 400: 40}
#: Factor for the frequency of faults -> share of runs. In a calm run nearly every check has its strictest time limit.
UNREST: Final = {0.1: 40, 0.4: 35, 1.0: 25}
#: Maximum duration of one sale and of the rest of a run, in seconds. A run that takes longer is killed.
SECONDS_FOR_A_SALE, SECONDS_FOR_A_RUN = 2, 120
#: Parts in which messages of one kind differ: ids, numbers, hexadecimal texts.
_PARTICULARS: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|SN-\d+|\d+"
)
#: Sales in a run. A short run finds common faults sooner. A long run finds faults that need many events together.
HUNT_SIZES: Final = (40, 100, 100, 200)
#: Longest text of a failure in a document, in characters.
LONGEST: Final = 110
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Head of the table of all findings.
HEAD: Final = "| fault | part | what it does | payments | seed | what failed first |\n|" + " --- |" * 6
#: Maximum number of runs in one search for the shortest failing run.
MOST_RUNS: Final = 60


def seed_of(start: int, number: int) -> int:
    """Return the seed of the n-th run."""
    return Random(f"run/{start}/{number}").getrandbits(40)


def size_of(seed: int) -> int:
    """Return the number of sales in the run of a seed."""
    return Random(f"size/{seed}").choices(list(SIZES), list(SIZES.values()))[0]


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be played, with `size` sales."""

    seed: int
    size: int
    #: Name of the deliberate fault in the product, if any.
    mistake: str | None = None
    #: Factor for the frequency of faults. 0 takes the factor from the seed.
    unrest: float = 0.0
    #: Whether the run ends at the first failed check. Such a run leaves garbage in its process.
    until_failure: bool = False

    def changed(self) -> AbstractContextManager[None]:
        """Apply the deliberate fault to the product for the block."""
        return nullcontext() if self.mistake is None else applied(self.mistake)

    def plan(self) -> Plan:
        """Return the plan of the run."""
        drawn = Random(f"unrest/{self.seed}").choices(list(UNREST), list(UNREST.values()))[0]
        return make_plan(self.seed, self.size, self.unrest or drawn)

    def command(self) -> str:
        """Return the command that replays the run."""
        size = f" --size {self.size}" if self.size != size_of(self.seed) else ""
        mistake = f" --break {self.mistake}" if self.mistake is not None else ""
        return f"python -m tests.simulation --replay {self.seed}{size}{mistake}"


def result_of(plan: Plan, **options: bool) -> Result:
    """Play a plan. An error of the simulation itself is a failure of the run."""
    try:
        return World(plan, **options).run()
    except Exception:  # noqa: BLE001 - the error is the result of the run
        return Result([traceback.format_exc(limit=-6)])


def play(job: Job) -> Result:
    """Play a run in this process."""
    signal.alarm(SECONDS_FOR_A_RUN + SECONDS_FOR_A_SALE * job.size)
    try:
        with job.changed():
            return result_of(job.plan(), until_failure=job.until_failure)
    finally:
        signal.alarm(0)


def play_all(jobs: Iterator[Job]) -> Iterator[tuple[Job, Result]]:
    """Play runs on all processors. Raise BrokenProcessPool if a process dies. Kill the processes at the end."""
    machine.certificate_files(BORN)  # most runs use this certificate, so it is made once for all processes
    fork, workers = multiprocessing.get_context("fork"), len(os.sched_getaffinity(0))
    # the parent decides at Ctrl-C when the processes end
    pool = ProcessPoolExecutor(workers, fork, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    processes: list[int] = []
    try:
        busy = {pool.submit(play, job): job for job in islice(jobs, workers)}
        while busy:
            processes = [*pool._processes]
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                job = busy.pop(future)
                try:
                    yield job, future.result()
                except BrokenProcessPool:
                    yield job, Result(["the process of this run or of another run died, or was too slow"])
                    raise
                busy |= {pool.submit(play, job): job for job in islice(jobs, 1)}
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)
        for number in processes:
            machine.remove_homes(number)


def kinds(failures: Iterable[str]) -> set[str]:
    """Return the messages without the details of one run."""
    return {_PARTICULARS.sub("#", failure) for failure in failures}


def shrink(plan: Plan, failures: Iterable[str]) -> tuple[Plan, int]:
    """Return the shortest plan that still fails in one of these ways, and the number of runs that the search took.

    Each sale and each fault has its own random source, so an omission does not change the others. The same run always
    shrinks to the same result.
    """
    wanted, runs = kinds(failures), 0

    def fails(tried: Plan) -> bool:
        nonlocal runs
        if runs >= MOST_RUNS:
            return False
        runs += 1
        return not wanted.isdisjoint(kinds(result_of(tried).failures))

    for part in ("faults", "sales", "faults"):
        plan = _fewer(plan, part, fails)
    return plan, runs


def _fewer(plan: Plan, part: str, fails: Callable[[Plan], bool]) -> Plan:
    """Omit faults or sales while the run still fails, first large pieces and then smaller pieces (delta debugging)."""
    size = len(getattr(plan, part))
    while size:
        left = getattr(plan, part)
        for begin in range(0, len(left), size):
            fewer: dict[str, Any] = {part: left[:begin] + left[begin + size :]}
            tried = replace(plan, **fewer)
            if fails(tried):
                plan = tried
                break
        else:
            size //= 2
    return plan


def hunt(name: str, payments: int) -> tuple[Job | None, int, str]:
    """Run seeds with a break until a check fails or this many payments were made.

    Return the run that found the fault, if any, the number of payments, and the failure.
    """
    made = 0
    sizes = ((seed, Random(f"hunt/{seed}").choice(HUNT_SIZES)) for seed in count())
    for job, result in play_all(Job(seed, size, mistake=name, unrest=1.0, until_failure=True) for seed, size in sizes):
        made += result.totals["payments"]
        if result.failures and not play(replace(job, mistake=None)).failures:
            return job, made, result.failures[0].splitlines()[-1]
        if made >= payments:
            break
    return None, made, "NOT FOUND"


def row(name: str, job: Job | None, payments: int, failure: str) -> str:
    """Return a finding as a row of a Markdown table. The text of the failure is cut, and has no ids."""
    said = _ID.sub("ID", failure).replace("|", "\\|")
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    seed = "-" if job is None else job.seed
    return f"| `{name}` | {BREAKS[name]['part']} | {BREAKS[name]['says']} | {payments:,} | {seed} | {said} |"
