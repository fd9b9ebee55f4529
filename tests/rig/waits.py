"""A wait for a state that no event reports, such as a descriptor that another process closes."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0


async def until(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until `holds()`, awaited if needed, is true. Return its result. Raise TimeoutError if it takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            found = holds()
            if found := await found if inspect.isawaitable(found) else found:
                return found
            await asyncio.sleep(0.005)
