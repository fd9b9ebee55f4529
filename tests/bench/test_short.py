"""One small run of every part of the benchmark. The run shows that each part works and has all rows. No figure is
judged, because times depend on the machine. `python -m tests.bench` has the bounds.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.bench.__main__ import MEASURES, read_reference
from tests.bench.measures import TOLERANCE, Bench, measure_ratios
from tests.rig.figures import Figure
from tests.rig.needs import needs
from tests.rig.tables import every

#: Number of rows of each part in the table.
ROWS = {"memory": 3, "starting": 1}


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Yield a short run, in a directory whose name is short enough for sockets."""
    with TemporaryDirectory(prefix="posd-bench-") as directory:
        yield Bench(Path(directory), short=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
async def test_a_part_measures_all_of_its_rows(name: str, bench: Bench) -> None:
    rows = await MEASURES[name](bench)
    assert len(rows) == ROWS[name]
    assert all(math.isfinite(value) for row in rows for value in row.rounds), rows


@pytest.mark.slow
@needs("cc")
async def test_the_quick_run_measures_every_ratio_of_the_reference(bench: Bench) -> None:
    rows = await measure_ratios(bench, read_reference())
    assert {row.name for row in rows} == read_reference().keys()
    assert all(math.isfinite(value) and value > 0 for row in rows for value in row.rounds)


@every(
    ("memory", "holds"),
    [
        ([2.5], True),  # a quarter above the reference
        ([0.2], True),
        ([4.0], False),
        ([9.0, 2.0, 2.4, 2.2, 8.0], True),  # the median counts
        ([9.0, 2.0, 2.6, 2.2, 8.0], False),
    ],
)
def test_a_ratio_worse_by_more_than_a_quarter_fails(memory: list[float], holds: bool) -> None:
    assert Figure("memory", memory, "×", TOLERANCE * 2.0).holds == holds
