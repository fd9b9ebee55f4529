"""Search for a deliberate fault. The search plays seeds with the fault until a check fails.

The same run must pass without the fault.
"""

import re
from dataclasses import replace
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
#: Head of the table of all findings.
HEAD: Final = "| fault | part | what it does | payments | seed | what failed first |\n|" + " --- |" * 6


def hunt(name: str, payments: int) -> tuple[Job | None, int, str]:
    """Run seeds with a break until a check fails or this many payments were made.

    Return the run that found the fault, if any, the number of payments, and the failure.
    """
    made = 0
    sizes = ((seed, Random(f"hunt/{seed}").choice(SIZES)) for seed in count())
    for job, result in play_all(Job(seed, size, mistake=name, unrest=1.0, until_failure=True) for seed, size in sizes):
        made += result.totals["payments"]
        if result.failures and not play(replace(job, mistake=None)).failures:
            return job, made, result.failures[0].splitlines()[-1]
        if made >= payments:
            break
    return None, made, "NOT FOUND"


def row(name: str, job: Job | None, payments: int, failure: str) -> str:
    """Return a finding as a row of a table of Markdown, with a short failure without ids."""
    said = _ID.sub("ID", failure).replace("|", "\\|")
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    seed = "-" if job is None else job.seed
    return f"| `{name}` | {BREAKS[name].part} | {BREAKS[name].says} | {payments:,} | {seed} | {said} |"
