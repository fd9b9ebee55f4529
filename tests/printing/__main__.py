"""`python -m tests.printing`: a thousand jobs and a minute's absence, once with webhooks and once without any."""

import argparse
import asyncio
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.printing.run import Plan, Result, Scene, run


def show(result: Result, jobs: int) -> None:
    """Print what was counted."""
    polls = sorted((result.polls[f"job-{number:04}"] for number in range(jobs)), reverse=True)
    print(
        f"  creations       {sum(result.creations.values())} of {jobs}, at most {max(result.creations.values())} a job"
    )
    print(f"  ends            {_ends(result.ends)}; asked for while it was away: {_ends(result.late_ends)}")
    print(
        f"  while away      {result.knocks} connections in {result.seconds_away:.0f} s, {result.knocks_by_polls} of"
        f" them questions (bound {result.most_knocks})"
    )
    each = f"at most {polls[0]} a job (bound {result.most_polls}), median {median(polls):g}"
    print(f"  questions       {sum(polls)}, {each}")
    print(f"  seconds         {result.seconds_asking:.1f} to be asked for, {result.seconds_settling:.1f} to be settled")
    for when, times in result.payments.items():
        print(
            f"  payments        {when}: {len(times)}, median {median(times) * 1000:.0f} ms, longest {max(times):.2f} s"
        )
    print(f"  ratio           beside {result.ratio('beside'):.2f}, while away {result.ratio('while away'):.2f}")
    print(f"  all approved    {result.approved}")
    print("  daemon's memory " + ", ".join(f"{when} {size:.1f} MiB" for when, size in result.memory.items()))


def _ends(ends: dict[tuple[str | None, str], int]) -> str:
    return ", ".join(f"{count} {status or 'not taken'} by {by}" for (status, by), count in ends.items()) or "none"


async def measure(told: bool, jobs: int, away: float) -> Result:
    """Run it with posd's own defaults."""

    async def absence(_scene: Scene) -> None:
        await asyncio.sleep(away)

    plan = Plan(
        jobs=jobs,
        late=20,
        away=absence,
        first=2,
        most=30,
        held=True,
        told=told,
        speed=200,
        quiet_payments=20,
        pause=0.5,
    )
    with TemporaryDirectory(prefix="posd-") as directory:
        return await run(Path(directory), plan)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.printing", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--away", type=float, default=60, help="seconds")
    given = parser.parse_args()
    for told in (True, False):
        print("webhooks come" if told else "no webhook ever comes", flush=True)
        show(asyncio.run(measure(told, given.jobs, given.away)), given.jobs)


if __name__ == "__main__":
    main()
