"""`python -m tests.simulation`: many runs of the whole daemon in virtual time, each with its own seed.

Exit codes: 0 all promises were kept, 1 a promise was broken, 2 the command is wrong, 130 the command was stopped.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.simulation import coverage, hunt, runs, shrink, story, vfs
from tests.simulation.breaks import BREAKS
from tests.simulation.runs import Job, Played
from tests.simulation.world import World


@dataclass
class Tally:
    """Totals of runs, without the runs in which the simulation itself failed."""

    began: float = field(default_factory=time.monotonic)
    runs: int = 0
    payments: int = 0
    lives: int = 0
    virtual_seconds: float = 0.0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[Played] = field(default_factory=list)

    def add(self, played: Played) -> None:
        """Count a run."""
        self.runs += 1
        if (result := played.result) is not None:
            self.payments += result.payments
            self.lives += result.lives
            self.virtual_seconds += result.virtual_seconds
            self.seen += result.seen
        if played.failures:
            self.failed.append(played)

    def line(self) -> str:
        """Return a line with the progress."""
        seconds = time.monotonic() - self.began
        return (
            f"{self.payments:,} payments in {self.runs:,} runs, {self.payments / max(seconds, 1e-3):.0f} a second, "
            f"{self.lives:,} lives of posd, {self.virtual_seconds / 3600:,.0f} simulated hours, "
            f"{len(self.failed)} runs failed"
        )


#: Minimum time between two progress lines, in seconds.
PROGRESS_SECONDS = 60.0
#: Maximum number of kinds of failures that the command shrinks.
SHRUNK = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        vfs.shared()
    except vfs.Unavailable as error:
        sys.stderr.write(f"cannot simulate here: {error}\n")
        return 2
    if options.replay is not None:
        size, unrest = options.size or runs.size_of(options.replay), 1.0 if options.mistake else 0.0
        return _replay(Job(options.replay, size, options.mistake, unrest), whole=options.story)
    if options.mistake is not None or options.breaks:
        return _hunt([options.mistake] if options.mistake is not None else [*BREAKS], options.payments, options.table)
    return _many(options)


def _hunt(names: Sequence[str], payments: int, file: Path | None) -> int:
    """Search for deliberate faults. Print for each fault the number of payments until a run found the fault.

    Return 1 if a fault was not found.
    """
    results = []
    for name in names:
        found = hunt.hunt(name, payments)
        results.append(found)
        run = f"--replay {found.seed} --size {found.size}, " if found.failure is not None else ""
        print(f"{name}: {found.failure or 'NOT FOUND'} ({run}{found.payments:,} payments)", flush=True)
        if file is not None:
            file.write_text(hunt.markdown(results))
    return 1 if any(found.failure is None for found in results) else 0


def _many(options: argparse.Namespace) -> int:
    """Play runs until they have made this many payments."""
    tally, told, stopped = Tally(), time.monotonic(), False

    def jobs() -> Iterator[Job]:
        while tally.payments < options.payments:
            seed = runs.seed_of(options.seed, next(numbers))
            yield Job(seed, options.size or runs.size_of(seed))

    numbers = count()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for played in runs.play_all(jobs()):
            tally.add(played)
            if played.failures:
                sys.stderr.write(f"seed {played.job.seed} failed; {command(played.job)}\n")
                sys.stderr.write("".join(f"  - {what}\n" for what in played.failures[:8]))
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                sys.stderr.write(f"{tally.line()}\n")
    except KeyboardInterrupt:
        stopped = True
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"{tally.line()}\n{coverage.words(tally.seen)}")
    if stopped:
        sys.stderr.write("stopped; the above is what there was so far\n")
        return 1 if tally.failed else 130
    # the smallest failed run for each kind of failure
    largest_first = sorted(tally.failed, key=lambda played: -played.job.size)
    kinds = {shrink.kind_of(played.failures[0]): played for played in largest_first}
    for played in [*kinds.values()][:SHRUNK]:
        print(f"\nseed {played.job.seed}; {command(played.job)}")
        print(_shrunk(played))
    return 1 if tally.failed else 0


def _shrunk(played: Played) -> str:
    """Shrink a failed run. Return the shortest plan, its failures and its story."""
    with played.job.changed():
        found = shrink.shrink(played.job.plan(), shrink.kinds(played.failures))
        head = f"shrunk in {found.runs} runs"
        try:
            result = World(found.plan, story=True).run()
        except Exception as error:  # noqa: BLE001 - the error is the result of the run
            return f"{head}: the simulation itself fails: {error!r}"
    return "\n".join((head, story.about_plan(result), *(f"- {what}" for what in result.failures), story.tell(result)))


def command(job: Job) -> str:
    """Return the command that replays a run."""
    size = f" --size {job.size}" if job.size != runs.size_of(job.seed) else ""
    mistake = f" --break {job.mistake}" if job.mistake is not None else ""
    return f"python -m tests.simulation --replay {job.seed}{size}{mistake}"


def _replay(job: Job, *, whole: bool) -> int:
    """Replay one run in this process, and print the failures. `whole`: also print all events of the run."""
    tally = Tally()
    played, plan = runs.play(job), job.plan()
    print(f"seed {job.seed}: {len(plan.sales)} sales at {plan.tills} tills, {len(plan.faults)} faults")
    tally.add(played)
    print(tally.line())
    print(*played.failures, sep="\n")
    if played.result is not None:
        print(f"digest    {played.result.digest}")
    if whole and played.result is not None:
        with job.changed():
            print(story.tell(World(plan, story=True).run(), everything=True))
    elif played.failures:
        print(_shrunk(played))
    return 1 if played.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--payments", type=int, default=5000, metavar="N", help="payments to make in all runs together")
    add("--seed", type=int, default=1, metavar="S", help="number from which the seeds of the runs are derived")
    add("--size", type=int, metavar="N", help="sales of each run; default: by its seed")
    add("--replay", type=int, metavar="SEED", help="replay the run of this seed")
    about = "put a deliberate fault (breaks.toml) into posd, and search for it"
    add("--break", dest="mistake", choices=BREAKS, metavar="NAME", help=about)
    add("--breaks", action="store_true", help="do this with each deliberate fault in turn")
    add("--table", type=Path, metavar="FILE", help="with --breaks: write the results as a Markdown table")
    add("--story", action="store_true", help="with --replay: print all events")
    return parser


if __name__ == "__main__":
    sys.exit(main())
