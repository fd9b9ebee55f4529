"""`python -m tests.simulation`: many runs of the whole daemon in virtual time, each with its own seed.

Exit codes: 0 all promises were kept, 1 a promise was broken, 2 the command is wrong, 130 the command was stopped.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from tests.simulation import runs, story, vfs
from tests.simulation.breaks import BREAKS
from tests.simulation.runs import Job
from tests.simulation.world import Result

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
    rows, code = [runs.HEAD], 0
    for name in names:
        job, made, failure = runs.hunt(name, payments)
        run = "" if job is None else f"--replay {job.seed} --size {job.size}, "
        print(f"{name}: {failure} ({run}{made:,} payments)", flush=True)
        rows.append(runs.row(name, job, made, failure))
        code |= job is None
        if file is not None:
            file.write_text("\n".join(rows) + "\n")
    return code


def _many(options: argparse.Namespace) -> int:
    """Play runs until they have made this many payments."""
    began = told = time.monotonic()
    totals, stopped, numbers = Counter[str](), False, count()
    seen: set[str] = set()
    failed: list[tuple[Job, Result]] = []

    def jobs() -> Iterator[Job]:
        while totals["payments"] < options.payments:
            seed = runs.seed_of(options.seed, next(numbers))
            yield Job(seed, options.size or runs.size_of(seed))

    def line() -> str:
        return _line(totals, f"{totals['payments'] / (time.monotonic() - began):.0f} a second, ", len(failed))

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for job, result in runs.play_all(jobs()):
            totals += result.totals
            seen |= result.seen
            if result.failures:
                failed.append((job, result))
                sys.stderr.write(f"seed {job.seed} failed; {job.command()}\n")
                sys.stderr.write("".join(f"  - {what}\n" for what in result.failures[:8]))
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                sys.stderr.write(f"{line()}\n")
    except KeyboardInterrupt:
        stopped = True
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"{line()}\n{story.situations(seen)}")
    if stopped:
        sys.stderr.write("stopped; the above is what there was so far\n")
        return 1 if failed else 130
    # the smallest failed run for each kind of failure
    largest_first = sorted(failed, key=lambda pair: -pair[0].size)
    smallest = {min(runs.kinds(result.failures[:1])): (job, result) for job, result in largest_first}
    for job, result in [*smallest.values()][:SHRUNK]:
        print(f"\nseed {job.seed}; {job.command()}\n{_shrunk(job, result)}")
    return 1 if failed else 0


def _line(totals: Counter[str], rate: str, failed: int) -> str:
    """Return a line with the totals."""
    return (
        f"{totals['payments']:,} payments in {totals['runs']:,} runs, {rate}{totals['lives']:,} lives of posd, "
        f"{totals['seconds'] / 3600:,.0f} simulated hours, {failed} runs failed"
    )


def _shrunk(job: Job, result: Result) -> str:
    """Shrink a failed run. Return the shortest plan, its failures and its story."""
    with job.changed():
        plan, made = runs.shrink(job.plan(), result.failures)
        result = runs.result_of(plan, story=True)
    failures = "\n".join(f"- {what}" for what in result.failures)
    return f"shrunk in {made} runs\n{story.about_plan(plan)}\n{failures}\n{story.tell(plan, result)}"


def _replay(job: Job, *, whole: bool) -> int:
    """Replay one run in this process, and print the failures. `whole`: also print all events of the run."""
    result, plan = runs.play(job), job.plan()
    print(f"seed {job.seed}: {len(plan.sales)} sales at {plan.tills} tills, {len(plan.faults)} faults")
    line = _line(result.totals, "", int(bool(result.failures)))
    print(line, *result.failures, f"digest    {result.digest}", sep="\n")
    if whole:
        with job.changed():
            print(story.tell(plan, runs.result_of(plan, story=True), everything=True))
    elif result.failures:
        print(_shrunk(job, result))
    return 1 if result.failures else 0


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
