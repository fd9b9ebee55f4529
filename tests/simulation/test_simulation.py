"""The simulation itself. Short runs keep all promises. A seed gives the same run every time.

After a run no file and no task remains.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.rig.needs import find
from tests.rig.slow import first_quick
from tests.simulation import __main__ as command
from tests.simulation import machine, runs, still, vfs
from tests.simulation.runs import Job


def _unavailable() -> str:
    try:
        vfs.shared()
    except vfs.Unavailable as error:
        return str(error)
    return ""


_REASON = _unavailable()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON or "SQLite can be put on the simulated disk")

#: First seed of the quick suite, and the number of sales in each run.
START, SALES = 26, 50
#: Other versions of Python that posd supports, if installed.
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
    still.close_log()
    machine.remove_homes(os.getpid())
    machine.certificate_files.cache_clear()


def _digest(seed: int, size: int) -> str:
    return runs.play(Job(seed, size)).digest


def _digests(python: str, size: int, numbers: Sequence[int], **environment: str) -> list[str]:
    """Return the digests of runs in another process."""
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
    job = Job(runs.seed_of(START, number), SALES)
    assert runs.play(job).failures == [], job.command()


@pytest.mark.slow
def test_all_promises_hold_in_a_longer_run() -> None:
    for job, result in runs.play_all(Job(runs.seed_of(2, number), 100) for number in range(40)):
        assert result.failures == [], job.command()


def test_a_seed_gives_the_same_digest_in_each_process_and_after_another_run() -> None:
    first, second = runs.seed_of(START, 100), runs.seed_of(START, 101)
    here = [_digest(seed, 6) for seed in (first, second, first)]
    there = _digests(sys.executable, 6, (second, first), PYTHONHASHSEED="11")
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
        pytest.skip(f"{python} lacks packages that posd and its tests need")
    numbers = [runs.seed_of(START, number) for number in range(200, 203)]
    assert _digests(path, 60, numbers) == [_digest(seed, 60) for seed in numbers]


@pytest.mark.slow
def test_a_failure_names_its_seed_and_is_shrunk_and_described_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["--replay", "3", "--size", "30", "--break", "answer-before-commit"])
    said = capsys.readouterr().out
    assert code == 1
    assert "seed 3: 30 sales" in said
    assert re.search("^[1-5] sales$", said, re.MULTILINE)
    assert "*** A PROMISE DOES NOT HOLD" in said
