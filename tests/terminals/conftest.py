"""The network on which terminals are discovered."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from zeroconf.asyncio import AsyncZeroconf


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory whose path is short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)


@pytest.fixture
async def network() -> AsyncIterator[AsyncZeroconf]:
    """Yield an mDNS instance on loopback, on which the tests announce terminals."""
    zeroconf = AsyncZeroconf(interfaces=["127.0.0.1"])
    yield zeroconf
    await zeroconf.async_close()
