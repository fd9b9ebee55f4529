"""The clock of durations: the one by which the timers of the event loop go."""

import asyncio
import time


def monotonic() -> float:
    """Return the seconds of the running loop's clock; in a thread without a loop those of the system's, which it is.

    Only differences of two of them mean something.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
