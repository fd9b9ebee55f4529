"""Shops with a feed.sock."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest_asyncio

from tests.relay.lane import with_feed
from tests.rig.shop import Shop, open_shop


async def _open() -> AsyncIterator[Shop]:
    with TemporaryDirectory(prefix="posd-") as directory:
        with_feed(Path(directory))
        async with open_shop(Path(directory), terminals=48) as shop:
            yield shop


#: A shop for all tests of a file.
shop = pytest_asyncio.fixture(_open, scope="module", loop_scope="module", name="shop")
#: A shop for one test, which may remove the database.
own = pytest_asyncio.fixture(_open, loop_scope="module", name="own")
