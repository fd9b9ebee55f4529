"""Every part of the benchmark once, as small as it goes: it works, and leaves nothing out. No figure is judged here.

How long anything takes says something about the machine that runs the tests; bounds are for `python -m tests.bench`.
"""

import asyncio
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.bench import quick, reference, table
from tests.bench.bench import Bench, sync_seconds
from tests.bench.measures import MEASURES
from tests.bench.program import ROOT, Program
from tests.bench.rows import Row
from tests.support.needs import needs

#: How many rows each part has in the table.
ROWS = {
    "acknowledgements": 8,
    "payments": 1,
    "slow_disk": 2,
    "tills": 4,
    "signing": 1,
    "memory": 4,
    "starting": 1,
    "stored": 7,
    "flash": 2,
    "idle": 4,
    "replay": 2,
    "interpreter": 6,
}
#: The quickest part that has one row.
QUICK = "starting"


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory whose name is short enough for sockets."""
    with TemporaryDirectory(prefix="posd-bench-") as directory:
        yield Path(directory)


#: Parts that compile the shim of tests/support/shim.py.
UNDER_THE_SHIM = {"acknowledgements", "slow_disk", "flash"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                *([] if name == "replay" else [pytest.mark.slow]),
                *([needs("cc")] if name in UNDER_THE_SHIM else []),
            ],
        )
        for name in MEASURES
    ],
)
async def test_a_part_measures_all_of_its_rows(name: str, home: Path) -> None:
    bench = Bench(home, short=True, sync_seconds=sync_seconds(home), before=ROOT, interpreter=sys.executable)
    rows = await MEASURES[name](bench)
    assert len(rows) == ROWS[name]
    for row in rows:
        assert row.rounds, row
        assert all(math.isfinite(value) for value in row.rounds), row
        assert row.limit is None or row.limit > 0, row
        assert row.figure, row
        assert row.unit, row
        assert row.ours, row
        json.dumps(row.document(), allow_nan=False)


async def test_without_an_earlier_version_and_another_python_nothing_is_compared(home: Path) -> None:
    alone = Bench(home, short=True, sync_seconds=sync_seconds(home))
    (row,) = await MEASURES["payments"](alone)
    assert (row.unit, row.limit) == ("ms", None)
    assert await MEASURES["interpreter"](alone) == []


async def test_what_is_no_version_of_posd_is_not_measured(home: Path) -> None:
    with pytest.raises(RuntimeError, match="does not import posd"):
        await Program(tree=home).check()


@pytest.mark.slow
@needs("cc")
async def test_the_quick_run_measures_all_that_the_reference_has(home: Path) -> None:
    measured = await quick.measure(Bench(home, short=True, sync_seconds=sync_seconds(home)))
    assert {ratio.name for ratio in measured if ratio.judged} == reference.read().keys()
    assert all(math.isfinite(value) and value > 0 for ratio in measured for value in ratio.rounds)


@pytest.mark.slow
async def test_the_command_writes_a_table_a_page_plots_and_json(home: Path) -> None:
    page, document, plots = home / "page.md", home / "run.json", home / "plots"
    page.write_text(f"before\n{table.BEGIN}\nan older table\n{table.END}\nafter\n")
    code, said = await bench(
        *("--short", "--only", QUICK, "--json", str(document), "--markdown", str(page)),
        *("--plots", str(plots), "--directory", str(home)),
    )
    assert code == 0, said
    (row,) = json.loads(document.read_text())["measures"][QUICK]["rows"]
    assert row["figure"] in said
    assert row["figure"] in page.read_text()
    assert "an older table" not in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    versions = json.loads(document.read_text())["machine"]
    assert {"posd", "python", "sqlite", "openssl", "kernel", "processor", "processors", "memory_mb"} <= versions.keys()
    assert {"starlette", "hypercorn", "aiosqlite", "sqlalchemy"} <= versions["packages"].keys()
    assert "](plots/ratios.svg)" in page.read_text()
    assert names(plots) == {"ratios.svg"}
    assert names(home) == {"page.md", "run.json", "plots"}, "it leaves nothing behind"


async def test_the_command_names_its_parts() -> None:
    code, said = await bench("--list")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == list(MEASURES) == list(ROWS)


def names(directory: Path) -> set[str]:
    """Return what is in a directory."""
    return {item.name for item in directory.iterdir()}


def row(*rounds: float, limit: float | None = 1.0) -> Row:
    return Row("figure", rounds, limit=limit, unit="×", at_least=True, ours="1/s", note="a note")


def test_a_row_is_judged_by_the_median_of_its_rounds() -> None:
    assert row(0.5, 1.0, 3.0).holds
    assert not row(3.0, 0.5, 0.9).holds
    assert row(0.1, limit=None).holds
    document = row(3.0, 0.5, 0.9).document()
    assert (document["least"], document["measured"], document["most"]) == (0.5, 0.9, 3.0)


def test_a_row_that_is_not_judged_is_no_bound() -> None:
    report = table.Report("command", "now", False, MACHINE, [table.Part("one", 1.0, [row(1.0), row(0.1, limit=None)])])
    assert report.verdict == "1 of 1 bounds hold"
    assert "| figure | 0.1 | 0.1 × | 0.1 |  |  | 1/s |" in table.markdown(report)


@pytest.mark.parametrize(
    ("short", "parts", "good"),
    [
        (False, [table.Part("one", 1.0, [row(1.0)])], True),
        (False, [table.Part("one", 1.0, [row(1.0), row(0.9)])], False),
        (False, [table.Part("one", 1.0, [row(1.0)]), table.Part("two", 1.0, failure="it broke")], False),
        (True, [table.Part("one", 1.0, [row(0.9)])], True),
        (True, [table.Part("one", 1.0, [row(0.9)]), table.Part("two", 1.0, failure="it broke")], False),
    ],
    ids=["all hold", "one falls short", "one failed", "short judges nothing", "short, one failed"],
)
def test_a_run_is_good_where_all_was_measured_and_holds(short: bool, parts: list[table.Part], good: bool) -> None:
    report = table.Report("command", "now", short, MACHINE, parts)
    assert report.good is good
    assert report.document()["good"] is good
    assert ("it broke" in table.markdown(report)) is ("two" in report.verdict)


MACHINE: dict[str, Any] = {
    "posd": "1",
    "python": "3",
    "sqlite": "3",
    "openssl": "3",
    "packages": {},
    "kernel": "Linux",
    "processor": "P",
    "processors": 2,
    "memory_mb": 1024,
    "sync_ms": 0.1,
    "load_before": 0.0,
}


async def bench(*arguments: str) -> tuple[int | None, str]:
    """Run the command; return its exit code and what it wrote to stdout."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench", *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()
