"""`python -m tests.simulation`: many runs of the whole daemon in virtual time, each with its own seed.

Exit codes: 0 all promises were kept, 1 a promise was broken, 2 the command is wrong, 130 the command was stopped.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.simulation import coverage, hunt, runs, shrink, story, vfs
from tests.simulation.breaks import BREAKS
from tests.simulation.plan import FAULTS
from tests.simulation.runs import Job, Played, said
from tests.simulation.tally import Tally
from tests.simulation.world import World

#: Interval of the progress lines, in seconds.
PROGRESS_SECONDS = 60.0
#: Maximum number of kinds of failures that the command shrinks.
SHRUNK = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    options = _parser().parse_args(arguments)
    if options.list_breaks:
        print("\n".join(f"{item.name:30} {item.part:12} {item.says}" for item in BREAKS.values()))
        return 0
    try:
        vfs.shared()
    except vfs.Unavailable as error:
        sys.stderr.write(f"cannot simulate here: {error}\n")
        return 2
    if options.replay is not None:
        size, unrest = options.size or runs.size_of(options.replay), 1.0 if options.mistake else 0.0
        job = Job(options.replay, size, options.faults, options.mistake, unrest)
        return _replay(job, whole=options.story)
    if options.mistake is not None or options.breaks:
        return _hunt([options.mistake] if options.mistake is not None else [*BREAKS], options.payments, options.table)
    return _many(options)


def _hunt(names: Sequence[str], payments: int, file: Path | None) -> int:
    """Search for deliberate faults. Print for each fault the number of payments until a run found the fault. Return 1
    if a fault was not found.
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
        number = 0
        while tally.payments < options.payments:
            seed = runs.seed_of(options.seed, number)
            yield Job(seed, options.size or runs.size_of(seed), options.faults)
            number += 1

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for played in runs.play_all(jobs(), runs.processors()):
            if played is not None:
                tally.add(played)
                if played.failed:
                    sys.stderr.write(f"seed {played.job.seed} failed; {command(played.job)}\n")
                    sys.stderr.write("".join(f"  - {what}\n" for what in said(played)[:8]))
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
    for played in _one_of_each_kind(tally.failed)[:SHRUNK]:
        print(f"\nseed {played.job.seed}; {command(played.job)}")
        print(_shrunk(played.job, said(played)))
    return 1 if tally.failed else 0


def _one_of_each_kind(failed: Sequence[Played]) -> list[Played]:
    """Return the smallest failed run for each kind of failure."""
    found: dict[str, Played] = {}
    for played in sorted(failed, key=lambda played: played.job.size):
        if said(played):
            found.setdefault(shrink.kind_of(said(played)[0]), played)
    return [*found.values()]


def _shrunk(job: Job, failures: Sequence[str]) -> str:
    """Shrink a failed run. Return the shortest plan, its failures and its story."""
    with job.changed():
        found = shrink.shrink(job.plan(), shrink.kinds(failures))
        head = f"shrunk in {found.runs} runs"
        try:
            result = World(found.plan, story=True).run()
        except Exception as error:  # noqa: BLE001 - the error is the result of the run
            return f"{head}: the simulation itself fails: {error!r}"
    return "\n".join((head, story.about_plan(result), *(f"- {what}" for what in result.failures), story.tell(result)))


def _tell_story(played: Played) -> None:
    """Repeat a run, and print all events."""
    if not played.broken:
        with played.job.changed():
            print(story.tell(World(played.job.plan(), story=True).run(), everything=True))


def command(job: Job) -> str:
    """Return the command that replays a run."""
    size = f" --size {job.size}" if job.size != runs.size_of(job.seed) else ""
    faults = f" --faults {','.join(job.faults) or 'none'}" if job.faults != tuple(FAULTS) else ""
    mistake = f" --break {job.mistake}" if job.mistake is not None else ""
    return f"python -m tests.simulation --replay {job.seed}{size}{faults}{mistake}"


def _replay(job: Job, *, whole: bool) -> int:
    """Replay one run in this process, and print the failures. `whole`: also print all events of the run."""
    tally = Tally()
    played, plan = runs.play(job), job.plan()
    print(f"seed {job.seed}: {len(plan.sales)} sales at {plan.tills} tills, {len(plan.faults)} faults")
    tally.add(played)
    print(tally.line())
    print(f"digest    {played.digest}")
    if played.failed:
        print("\n".join((*played.failures, played.broken)))
    if whole:
        _tell_story(played)
    elif played.failed:
        print(_shrunk(job, said(played)))
    return 1 if played.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--payments", type=_count, default=5000, metavar="N", help="payments to make in all runs together"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="number from which the seeds of the runs are derived"
    )
    parser.add_argument("--size", type=_count, metavar="N", help="sales of each run; default: by its seed")
    kinds = f"kinds that may come, of {', '.join(FAULTS)}, or none"
    parser.add_argument("--faults", type=_faults, default=tuple(FAULTS), metavar="LIST", help=kinds)
    parser.add_argument("--replay", type=int, metavar="SEED", help="replay the run of this seed")
    parser.add_argument(
        "--break",
        dest="mistake",
        choices=BREAKS,
        metavar="NAME",
        help="put a deliberate fault into posd, and search for it",
    )
    parser.add_argument("--breaks", action="store_true", help="do this with each deliberate fault in turn")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="with --breaks: write the results as a Markdown table"
    )
    parser.add_argument("--list-breaks", action="store_true", help="list the deliberate faults")
    parser.add_argument("--story", action="store_true", help="with --replay: print all events")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _faults(text: str) -> tuple[str, ...]:
    names = frozenset(text.split(",")) - {"none"}
    if wrong := names - set(FAULTS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(wrong))}: not one of none, {', '.join(FAULTS)}")
    return runs.chosen(names)


if __name__ == "__main__":
    sys.exit(main())
