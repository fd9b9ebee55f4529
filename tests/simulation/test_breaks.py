"""The simulation finds deliberate faults. A run of the whole table takes long, so it is started by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.breaks import BREAKS, applied
from tests.simulation.runs import Job, row

FIRST_FAILURES = """
from tests.simulation.runs import Job, play

for name, seed, size in (("stale-reads", 0, 10), ("repeats-recorded", 1, 40)):
    print(play(Job(seed, size, name, 1.0, until_failure=True)).failures)
"""


STILL = """
from dataclasses import replace
from tests.simulation.breaks import applied
from tests.simulation.plan import Fault, make_plan
from tests.simulation.world import World

faults = Fault(1, 3.0, "log-still", 0, 400.0, 1), Fault(2, 5.0, "manager-still", 0, 100.0, 1)
plan = replace(make_plan(2, 20), faults=(*faults, Fault(3, 30.0, "restart", 0, 10.0, 1)))
sound = World(plan, until_failure=True).run()
print(sound.failures, sound.seen & {"log: log.dropped", "log: manager.not_reading"})
for name in ("log-written-in-place", "dropped-lines-not-told"):
    with applied(name):
        print(World(plan, until_failure=True).run().failures)
"""


def test_each_deliberate_fault_can_be_put_into_the_code() -> None:
    assert len(BREAKS) >= 30
    for name in BREAKS:
        with applied(name):
            pass


def test_a_run_finds_a_deliberate_fault_and_names_the_first_failed_check() -> None:
    """The runs have their own process, because a run that ends early leaves garbage. Only the last check of a run finds
    the second fault.
    """
    command = [sys.executable, "-c", FIRST_FAILURES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    early, late = done.stdout.splitlines()
    assert "has lost it" in early
    assert "the database has an event twice" in late


def test_suspended_output_readers_delay_nothing_and_runs_find_two_deliberate_faults() -> None:
    done = subprocess.run([sys.executable, "-c", STILL], capture_output=True, text=True, check=True, timeout=300)
    sound, *broken = done.stdout.splitlines()
    assert sound.startswith("[] {"), sound
    assert sound.count("log: ") == 2, sound
    assert "waits for the stopped reader" in broken[0]
    assert "as dropped" in broken[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sent-before-intent", "answer-before-commit", "synchronous-normal"])
def test_a_hunt_finds_a_deliberate_fault(name: str) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--break", name, "--payments", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT FOUND" not in done.stdout


def test_the_document_has_a_row_for_each_deliberate_fault() -> None:
    """`python -m tests.simulation --breaks --payments 12000 --table FILE` writes the table."""
    document = (Path(__file__).parents[2] / "docs" / "evidence" / "simulation.md").read_text()
    rows = document.partition("<!-- breaks: begin -->")[2].partition("<!-- breaks: end -->")[0].splitlines()
    assert [item.split("`")[1] for item in rows if item.startswith("| `")] == list(BREAKS)


def test_a_row_of_the_document_names_the_failure_without_ids() -> None:
    told = row("stale-reads", Job(7, 40), 1200, "5b5ba1b2-11b1-4cb4-8d3c-0123456789ab is a | b")
    assert told.startswith("| `stale-reads` | storage | ")
    assert told.endswith("| 1,200 | 7 | ID is a \\| b |")
