"""The clocks: of durations, which is the one by which the timers of the event loop go, and of the wall."""

import asyncio
import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Return the seconds of the running loop's clock; in a thread without a loop those of the system's, which it is.

    Only differences of two of them mean something.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def wall() -> datetime:
    """Return the wall clock of this machine, in UTC; nothing is ever ordered by it."""
    return datetime.now(UTC)
