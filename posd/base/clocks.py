"""The two clocks: the monotonic one, which the event loop uses for its timers, and the wall clock."""

import asyncio
import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Return the running loop's clock, in seconds; in a thread without a loop the system's monotonic clock, the same.

    Only differences of two of them mean something.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def wall() -> datetime:
    """Return the wall clock of this machine, in UTC; nothing is ever ordered by it."""
    return datetime.now(UTC)
