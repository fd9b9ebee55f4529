"""Fixtures of the counter for the recipes of a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.recipes.counter import Counter, open_counter


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of compiled recipes."""
    return tmp_path_factory.mktemp("programs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_counter(request: pytest.FixtureRequest, programs: Path) -> AsyncIterator[Counter]:
    """Yield the counter of a test file. `EXTRA` of the file is added to the daemon's configuration."""
    async with open_counter(programs, "SN-1", extra=getattr(request.module, "EXTRA", "")) as counter:
        yield counter


@pytest_asyncio.fixture(loop_scope="module")
async def counter(shared_counter: Counter) -> Counter:
    """Return the counter with a till that has stored nothing. A failed test may have left the daemon stopped."""
    if shared_counter.daemon.process is None:
        await shared_counter.daemon.start()
    shared_counter.fresh()
    return shared_counter
