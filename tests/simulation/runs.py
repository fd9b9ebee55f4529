"""Runs of the simulation: seeds, sizes, and the processes that play the runs."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from tests.simulation import machine
from tests.simulation.breaks import applied
from tests.simulation.plan import BORN, Plan, make_plan
from tests.simulation.world import Result, World

#: Number of sales in a run -> frequency of this number.
SIZES: Final = {20: 10, 100: 50, 400: 40}
#: Factor for the frequency of faults -> share of runs. In a calm run nearly every check has its strictest time limit.
UNREST: Final = {0.1: 40, 0.4: 35, 1.0: 25}
#: Maximum duration of one sale and of the rest of a run, in seconds. A run that takes longer is killed.
SECONDS_FOR_A_SALE, SECONDS_FOR_A_RUN = 2, 120


def seed_of(start: int, number: int) -> int:
    """Return the seed of the n-th run."""
    return Random(f"run/{start}/{number}").getrandbits(40)


def size_of(seed: int) -> int:
    """Return the number of sales in the run of a seed."""
    return Random(f"size/{seed}").choices(list(SIZES), list(SIZES.values()))[0]


def unrest_of(seed: int) -> float:
    """Return the factor for the frequency of faults in the run of a seed."""
    return Random(f"unrest/{seed}").choices(list(UNREST), list(UNREST.values()))[0]


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
        return make_plan(self.seed, self.size, self.unrest or unrest_of(self.seed))


@dataclass(slots=True)
class Played:
    """A run with its result. `failures`: broken promises, or the error of the simulation itself."""

    job: Job
    failures: list[str]
    #: None if the simulation itself failed.
    result: Result | None = None


def play(job: Job) -> Played:
    """Play a run in this process."""
    signal.alarm(SECONDS_FOR_A_RUN + SECONDS_FOR_A_SALE * job.size)
    try:
        with job.changed():
            result = World(job.plan(), until_failure=job.until_failure).run()
    except Exception:  # noqa: BLE001 - the error is a part of the run's result
        return Played(job, [traceback.format_exc(limit=-6)])
    finally:
        signal.alarm(0)
    return Played(job, result.failures, result)


def play_all(jobs: Iterator[Job]) -> Iterator[Played]:
    """Play runs on all processors. Raise BrokenProcessPool if a process dies. Kill the processes at the end."""
    machine.certificate_files(BORN)  # most runs use this certificate, so it is made once for all processes
    fork, count = multiprocessing.get_context("fork"), len(os.sched_getaffinity(0))
    # the parent decides at Ctrl-C when the processes end
    pool = ProcessPoolExecutor(count, fork, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    processes: list[int] = []
    try:
        busy = {pool.submit(play, job): job for job in islice(jobs, count)}
        while busy:
            processes = [*pool._processes]
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                try:
                    job = busy.pop(future)
                    yield future.result()
                except BrokenProcessPool:
                    yield Played(job, ["the process of this run or of another run died, or was too slow"])
                    raise
                busy |= {pool.submit(play, job): job for job in islice(jobs, 1)}
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)
        for number in processes:
            machine.remove_homes(number)
