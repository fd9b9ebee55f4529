"""Shops with a feed.sock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest_asyncio

from tests.relay.lane import with_feed
from tests.rig.shop import Shop, open_shop


@asynccontextmanager
async def _open() -> AsyncIterator[Shop]:
    with TemporaryDirectory(prefix="posd-") as directory:
        with_feed(Path(directory))
        async with open_shop(Path(directory), terminals=48) as shop:
            yield shop


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """Yield one shop for a file."""
    async with _open() as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def own() -> AsyncIterator[Shop]:
    """Yield a shop for one test. The test may remove the database."""
    async with _open() as shop:
        yield shop
