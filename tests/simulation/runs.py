"""Runs of the simulation: seeds, sizes, and the processes that play the runs."""

import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from random import Random
from typing import Final

from tests.simulation import machine
from tests.simulation.breaks import applied
from tests.simulation.plan import BORN, FAULTS, Plan, make_plan
from tests.simulation.world import World

#: Number of sales in a run -> frequency of this number.
SIZES: Final = {20: 10, 100: 50, 400: 40}
#: Factor for the frequency of faults -> share of runs. In a calm run nearly every check has its strictest time limit.
UNREST: Final = {0.1: 40, 0.4: 35, 1.0: 25}
#: Number of runs after which a worker process is replaced.
RUNS_OF_A_WORKER: Final = 200
#: Maximum processor time of one sale, in seconds. A run that takes longer counts as endless.
SECONDS_FOR_A_SALE, SECONDS_FOR_A_RUN = 2.0, 120.0


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
    """A run to be played, with `size` sales and these kinds of faults."""

    seed: int
    size: int
    faults: tuple[str, ...] = tuple(FAULTS)
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
        return make_plan(self.seed, self.size, self.faults, self.unrest or unrest_of(self.seed))


@dataclass(slots=True)
class Played:
    """The result of a run. `failures`: broken promises. `broken`: error of the simulation itself, if any."""

    job: Job
    failures: list[str] = field(default_factory=list)
    broken: str = ""
    digest: str = ""
    payments: int = 0
    lives: int = 0
    virtual_seconds: float = 0.0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        """Whether a promise was broken or the simulation failed."""
        return bool(self.failures or self.broken)


def said(played: Played) -> list[str]:
    """Return the broken promises of a run and the errors of the simulation itself."""
    return [*played.failures, *([played.broken.splitlines()[-1]] if played.broken else [])]


def play(job: Job) -> Played:
    """Play a run in this process."""
    try:
        with job.changed():
            result = World(job.plan(), until_failure=job.until_failure).run()
    except Exception:  # noqa: BLE001 - the error is a part of the run's result
        return Played(job, broken=traceback.format_exc(limit=-6))
    return Played(
        job,
        result.failures,
        "",
        result.digest,
        result.payments,
        result.lives,
        result.virtual_seconds,
        result.seen,
    )


class _Worker:
    """Process that plays runs, one after the other."""

    def __init__(self) -> None:
        here, there = multiprocessing.get_context("fork").Pipe()
        self.pipe: Connection = here
        self.process: BaseProcess = multiprocessing.get_context("fork").Process(target=_work, args=(there, here))
        self.process.daemon = True
        self.process.start()
        there.close()
        self.job: Job | None = None
        self.until = 0.0
        self.played = 0

    def give(self, job: Job) -> None:
        """Start a run in the worker."""
        self.job = job
        self.until = time.monotonic() + SECONDS_FOR_A_RUN + SECONDS_FOR_A_SALE * job.size
        self.pipe.send(job)

    def take(self) -> Played | None:
        """Return the result of the run, or None if the process died. Kill a process that is too slow."""
        job, self.job = self.job, None
        assert job is not None
        try:
            played: Played = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.played += 1
        return played

    def end(self) -> None:
        """End the process."""
        with suppress(OSError):
            self.pipe.close()
        self.process.kill()
        self.process.join()
        machine.remove_homes(self.process.pid)


def _work(pipe: Connection, other: Connection) -> None:
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when the process ends
    with suppress(EOFError, OSError):
        while True:
            pipe.send(play(pipe.recv()))


def play_all(jobs: Iterator[Job], processes: int, tick: float = 1.0) -> Iterator[Played | None]:
    """Play runs on several processes. Yield None after each `tick` seconds without a result. If a process dies or is
    too slow, the run counts as broken.
    """
    machine.certificate_files(BORN)  # most runs use this certificate, so it is made once for all processes
    workers: list[_Worker] = []
    jobs = iter(jobs)
    try:
        for job in jobs:
            workers.append(_Worker())
            workers[-1].give(job)
            if len(workers) == processes:
                break
        while busy := [worker for worker in workers if worker.job is not None]:
            ready = wait([worker.pipe for worker in busy], timeout=tick)
            if not ready:
                yield None
            for number, worker in enumerate(workers):
                late = worker.job is not None and time.monotonic() > worker.until
                if worker.job is None or (worker.pipe not in ready and not late):
                    continue
                job = worker.job
                played = worker.take() if worker.pipe in ready else None
                if played is None:
                    worker.end()
                    how = f"ended with {worker.process.exitcode}" if not late else "did not end in its time"
                    played = Played(job, broken=f"the process {how}")
                if played.broken or worker.played >= RUNS_OF_A_WORKER:
                    worker.end()
                    worker = workers[number] = _Worker()
                yield played
                if (following := next(jobs, None)) is not None:
                    worker.give(following)
                else:
                    worker.job = None
    finally:
        for worker in workers:
            worker.end()


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def chosen(faults: Collection[str]) -> tuple[str, ...]:
    """Return kinds of faults in the order of the table."""
    return tuple(kind for kind in FAULTS if kind in faults)
