"""The network on which terminals are discovered."""

from collections.abc import AsyncIterator

import pytest
from zeroconf.asyncio import AsyncZeroconf

from tests.e2e.conftest import home

__all__ = ["home"]


@pytest.fixture
async def network() -> AsyncIterator[AsyncZeroconf]:
    """Yield an mDNS instance on loopback, on which the tests announce terminals."""
    zeroconf = AsyncZeroconf(interfaces=["127.0.0.1"])
    yield zeroconf
    await zeroconf.async_close()
