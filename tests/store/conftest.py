"""A store on a real file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.store.store import Store
from tests.support.tmpfs import skip_without_small_disks


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Small disks can be mounted here; else the test is skipped."""
    skip_without_small_disks()
