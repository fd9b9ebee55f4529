"""A wait for a state that no event reports, such as a descriptor that another process closes."""

import asyncio
from collections.abc import Callable

PATIENCE_SECONDS = 30.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the state holds. Raise TimeoutError if this takes too long."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
