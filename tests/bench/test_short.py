"""Every part of the benchmark once, as small as it goes: it works, and leaves nothing out. No figure is judged here.

How long anything takes says something about the machine that runs the tests; bounds are for `python -m tests.bench`.
"""

import asyncio
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.bench import quick, reference
from tests.bench.bench import Bench, sync_seconds
from tests.bench.measures import MEASURES
from tests.bench.table import Part, Report, Row
from tests.support.needs import needs
from tests.support.tables import every

#: How many rows each part has in the table.
ROWS = {"slow_disk": 1, "memory": 3, "starting": 1}


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory whose name is short enough for sockets."""
    with TemporaryDirectory(prefix="posd-bench-") as directory:
        yield Path(directory)


@pytest.mark.slow
@needs("cc")
@pytest.mark.parametrize("name", MEASURES)
async def test_a_part_measures_all_of_its_rows(name: str, home: Path) -> None:
    rows = await MEASURES[name](Bench(home, short=True, sync_seconds=sync_seconds(home)))
    assert len(rows) == ROWS[name]
    for row in rows:
        assert all(math.isfinite(value) for value in [row.measured, *row.rounds]), row
        assert row.limit > 0, row
        assert row.ours, row


@pytest.mark.slow
@needs("cc")
async def test_the_quick_run_measures_all_that_the_reference_has(home: Path) -> None:
    measured = await quick.measure(Bench(home, short=True, sync_seconds=sync_seconds(home)))
    assert measured.keys() == reference.read().keys()
    assert all(math.isfinite(value) and value > 0 for rounds in measured.values() for value in rounds)


@pytest.mark.slow
async def test_the_command_writes_a_table_and_leaves_nothing_behind(home: Path) -> None:
    options = ("--short", "--only", "starting", "--directory", str(home))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench", *options, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    listed = list(home.iterdir())  # noqa: ASYNC240 - nothing else runs
    assert process.returncode == 0, said
    assert "start to ready" in said.decode()
    assert listed == []


HOLDS = Row("figure", [0.5, 1.0, 3.0], limit=1.0, unit="×", at_least=True, ours="1/s")
FALLS_SHORT = Row("figure", [3.0, 0.5, 0.9], limit=1.0, unit="×", at_least=True, ours="1/s")
BROKEN = Part("two", 1.0, failure="it broke")


@every(
    ("short", "parts", "good"),
    [
        (False, [Part("one", 1.0, [HOLDS])], True),  # by the median of its rounds
        (False, [Part("one", 1.0, [FALLS_SHORT])], False),
        (False, [Part("one", 1.0, [HOLDS]), BROKEN], False),
        (True, [Part("one", 1.0, [FALLS_SHORT])], True),
        (True, [Part("one", 1.0, [FALLS_SHORT]), BROKEN], False),
    ],
)
def test_a_run_is_good_where_all_was_measured_and_holds(short: bool, parts: list[Part], good: bool) -> None:
    report = Report("command", "now", short, [], parts)
    assert report.good is good
    assert (BROKEN in parts) == ("it broke" in report.verdict)
