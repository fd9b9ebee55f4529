"""A store on a real file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.store.store import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    yield opened
    await opened.close()
