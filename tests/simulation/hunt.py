"""Search for a deliberate fault. The search plays seeds with the fault until a check fails.

The same run must pass without the fault.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Final

from tests.simulation.breaks import BREAKS
from tests.simulation.runs import Job, play, play_all

#: Sales in a run. A short run finds common faults sooner. A long run finds faults that need many events together.
SIZES: Final = (40, 100, 100, 200)
#: Longest text of a failure in a document, in characters.
LONGEST: Final = 110
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Found:
    """Result of a hunt: the number of payments, and the run that found the fault, if any."""

    name: str
    payments: int
    seed: int | None = None
    failure: str | None = None
    size: int = 0


def hunt(name: str, payments: int) -> Found:
    """Run seeds with a break until a check fails or this many payments were made."""
    made = 0
    sizes = ((seed, Random(f"hunt/{seed}").choice(SIZES)) for seed in count())
    jobs = (Job(seed, size, mistake=name, unrest=1.0, until_failure=True) for seed, size in sizes)
    for played in play_all(jobs):
        made += 0 if played.result is None else played.result.payments
        if played.failures and not play(replace(played.job, mistake=None)).failures:
            return Found(name, made, played.job.seed, played.failures[0].splitlines()[-1], played.job.size)
        if made >= payments:
            break
    return Found(name, made)


def markdown(results: Collection[Found]) -> str:
    """Return the findings as a table of Markdown."""
    rows = [("fault", "part", "what it does", "payments", "seed", "what failed first"), ("---",) * 6]
    for found in results:
        seed, failure = ("-", "NOT FOUND") if found.failure is None else (str(found.seed), _short(found.failure))
        mistake = BREAKS[found.name]
        rows.append((f"`{found.name}`", mistake.part, mistake.says, f"{found.payments:,}", seed, failure))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _short(failure: str) -> str:
    """Return a failure without its ids, on one short line."""
    said = _ID.sub("ID", failure).replace("|", "\\|")
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
