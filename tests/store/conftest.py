"""A store on a real file, and a state directory for disasters."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.storage.store import Store
from tests.store.disasters import OLD_KEY, State


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "posd.db", tmp_path / "posd.db.lock")
    yield opened
    await opened.close()


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Return a state directory with only an old key."""
    (tmp_path / "state").mkdir(mode=0o700)
    state = State(tmp_path)
    state.key.write_text(f"{OLD_KEY.hex()}\n")
    return state
