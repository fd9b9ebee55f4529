"""The simulation itself: short runs hold all promises, a seed gives always the same, and nothing of a run is left."""

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.simulation import __main__ as command
from tests.simulation import coverage, machine, runs, seeds, shrink, story, vfs
from tests.simulation.plan import make_plan
from tests.simulation.runs import Job, Played
from tests.simulation.world import World
from tests.support.needs import find
from tests.support.slow import first_quick


def _unavailable() -> str:
    try:
        vfs.shared()
    except vfs.Unavailable as error:
        return str(error)
    return ""


_REASON = _unavailable()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "SQLite can be put on the simulated disk")

#: The start of the seeds of the quick suite, and sales of each run.
START, SALES = 26, 50
#: Other Pythons that posd supports, where they are installed.
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")

_DIGESTS = """
import json, sys
from tests.simulation import runs
from tests.simulation.runs import Job
print(json.dumps([runs.play(Job(int(seed), int(sys.argv[1]))).digest for seed in sys.argv[2:]]))
"""


@pytest.fixture(scope="module", autouse=True)
def _certificates() -> Iterator[None]:
    yield
    machine.remove_certificates()


def _held(played: Played) -> None:
    said = [*played.failures, *([played.broken] if played.broken else [])]
    assert not said, "\n".join((command.command(played.job), *said))


def _digests(python: str, size: int, numbers: Sequence[int], **environment: str) -> list[str]:
    """Return the digests of runs that another process plays."""
    done = subprocess.run(
        [python, "-c", _DIGESTS, str(size), *map(str, numbers)],
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", first_quick(range(24), 1))
def test_all_promises_hold_in_a_short_run(number: int) -> None:
    _held(runs.play(Job(runs.seed_of(START, number), SALES)))


def test_what_seeds_have_found_stays_mended() -> None:
    for job in seeds.read(seeds.FILE.read_text()):
        _held(runs.play(job))


@pytest.mark.slow
def test_all_promises_hold_in_a_longer_run() -> None:
    found = list(runs.play_all((Job(seed, 100) for seed in (runs.seed_of(2, n) for n in range(40))), runs.processors()))
    for played in found:
        if played is not None:
            _held(played)


def test_a_seed_gives_the_same_digest_in_each_process_and_after_another_run() -> None:
    first, second = runs.seed_of(START, 100), runs.seed_of(START, 101)
    here = [runs.play(Job(seed, 12)).digest for seed in (first, second, first)]
    there = _digests(sys.executable, 12, (second, first), PYTHONHASHSEED="11")
    assert here[0] == here[2]
    assert there == [here[1], here[0]]
    assert here[0] != here[1]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_another_python_gives_the_same_digests(python: str) -> None:
    path = find(python)
    if path is None:
        pytest.skip(f"needs {python}")
    if subprocess.run([path, "-c", "import aiosqlite, hypercorn, trustme"], capture_output=True).returncode:
        pytest.skip(f"{python} has not what posd and its tests need")
    numbers = [runs.seed_of(START, number) for number in range(200, 203)]
    assert _digests(path, 60, numbers) == [runs.play(Job(seed, 60)).digest for seed in numbers]


#: A run in which posd is killed within a call; says how many worlds are left.
KILLED = """
import gc
from tests.simulation import runs
from tests.simulation.world import World
runs.play(runs.Job(50681829151, 10))
gc.collect()
print(sum(isinstance(item, World) for item in gc.get_objects()))
"""


def test_a_world_in_which_posd_was_killed_within_a_call_goes() -> None:
    """In a process of its own: what pytest catches of such an end holds it."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_nothing_of_a_run_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(runs.seed_of(START, 102), 10)
    runs.play(job)  # what a process makes once is made
    monkeypatch.setattr(machine, "MEMORY", tmp_path)
    before = _left()
    runs.play(job)
    assert _left() == before
    assert not [*tmp_path.iterdir()]


def _left() -> dict[str, object]:
    """Return what a run could leave in this process: descriptors, tasks, objects of the daemon and of the world."""
    gc.collect()
    descriptors = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    objects = [type(item) for item in gc.get_objects()]
    return {
        "descriptors": sorted(path for path in descriptors if path.startswith("/")),
        "tasks": sum(issubclass(kind, asyncio.Task) for kind in objects),
        "worlds": sum(str(kind.__module__).startswith("tests.simulation.") for kind in objects),
        "daemons": Counter(kind.__qualname__ for kind in objects if str(kind.__module__).startswith("posd.")),
    }


@pytest.mark.slow
def test_a_failure_names_its_seed_is_shrunk_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["--replay", "3", "--size", "30", "--break", "answer-before-commit"])
    said = capsys.readouterr().out
    assert code == 1
    assert "seed 3: 30 sales" in said
    assert re.search("^[1-5] sales$", said, re.MULTILINE)
    assert "*** A PROMISE DOES NOT HOLD" in said


def test_shrinking_keeps_what_is_needed() -> None:
    random = Random(1)
    for _ in range(30):
        needed = set(random.sample(range(40), 3))
        smallest = list(range(40))

        def fails(some: Sequence[int], needed: set[int] = needed) -> bool:
            nonlocal smallest
            if not needed <= set(some):
                return False
            smallest = list(some)
            return True

        shrink._fewer(range(40), fails)
        assert set(smallest) == needed


def test_a_plan_with_fewer_sales_and_faults_has_the_rest_as_it_was() -> None:
    plan = make_plan(4, 100)
    kept = plan.with_only([3, 50], [plan.faults[0].number])
    assert kept.sales == (plan.sales[3], plan.sales[50])
    assert kept.faults == plan.faults[:1]


def test_what_was_never_met_is_told() -> None:
    result = World(make_plan(1, 4, ()), story=True).run()
    assert "final" not in coverage.never(result.seen)["phase"]
    assert "storage_unavailable" in coverage.never(result.seen)["problem"]
    assert story.tell(result, everything=True).count("\n") == len(result.notes) > 20


def test_seeds_are_read_and_a_wrong_line_is_named() -> None:
    assert list(seeds.read("# none\n7 20 kill,power # lost\n8 60 all\n9 1 none\n")) == [
        Job(7, 20, ("kill", "power")),
        Job(8, 60),
        Job(9, 1, ()),
    ]
    with pytest.raises(ValueError, match="line 1 is not"):
        list(seeds.read("7 20 sunshine"))
