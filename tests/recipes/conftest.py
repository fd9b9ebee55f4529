"""Fixtures of the counter for the recipes of a file."""

from collections.abc import AsyncIterator, Generator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from tests.recipes.counter import Counter, SharedCounter, open_counter

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record for the counter whether a test has passed. The next test gets the same counter only after a passed
    test.
    """
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of compiled recipes."""
    return tmp_path_factory.mktemp("programs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_counter(request: pytest.FixtureRequest, programs: Path) -> AsyncIterator[SharedCounter]:
    """Yield the counter of a test file. `EXTRA` of the file is added to the daemon's configuration."""
    extra = getattr(request.module, "EXTRA", "")
    shared = SharedCounter(partial(open_counter, programs, "SN-1", extra=extra))
    try:
        yield shared
    finally:
        await shared.close()


@pytest_asyncio.fixture(loop_scope="module")
async def counter(shared_counter: SharedCounter, request: pytest.FixtureRequest) -> AsyncIterator[Counter]:
    """Yield the counter with a till that has stored nothing."""
    async with shared_counter.lent(lambda: request.node.stash.get(PASSED, False)) as counter:
        yield counter
