"""Memory that a flood has used goes back to the system when it is over.

The C library keeps what is freed, in pieces between what is not: hundreds of TLS connections leave tens of megabytes
behind, for good. glibc gives them back when it is told to (malloc_trim(3)); other C libraries do so by themselves, or
have no such call.
"""

import asyncio
import ctypes
from contextlib import suppress

#: How long after a connection has ended, in seconds; it takes a few milliseconds, so not after each of them.
TRIM_SECONDS = 2.0


class Trimmer:
    """Gives freed memory back to the system, some time after it is told that there may be some."""

    def __init__(self) -> None:
        self._due: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Do it in `TRIM_SECONDS`, where it is not to be done before."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._trim)

    def cancel(self) -> None:
        """Do nothing more."""
        if self._due is not None:
            self._due.cancel()

    def _trim(self) -> None:
        self._due = None
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
