"""A reader of the log that stops reading for a while. The pipe is real.

The product's own writer and its thread write to the pipe. Their work takes no virtual time.
"""

import fcntl
import os
import threading
from contextlib import suppress
from functools import cache

from posd.logs.output import LogWriter

#: Maximum number of bytes that wait for the reader beyond the pipe, about the size of a few lines.
MAX_BYTES = 2048
PIPE_BYTES = 4096
#: Seconds in which the thread may write before the reader reads more.
TURN_SECONDS = 0.01
#: Length of each line, in bytes.
LINE_BYTES = 200


class Log:
    """A pipe that is read only at the end, with the product's writer."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._loop = threading.get_ident()
        self._told = self._count = 0
        self._in_loop = False
        self._writer = LogWriter(self._descriptor, self._tell, MAX_BYTES)
        self._writer.start()

    def _descriptor(self) -> int:
        if threading.get_ident() == self._loop:  # only the thread may write, because a write of the loop would block it
            self._in_loop = True
            raise OSError
        return self._write

    def _tell(self, count: int) -> None:
        self._told += count

    def put(self, event: str) -> None:
        """Write a line."""
        self._count += 1
        self._writer.put([f"{self._count} {event}".ljust(LINE_BYTES).encode() + b"\n"])

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)
        os.close(self._write)

    def end(self) -> tuple[int, str | None]:
        """Read everything. Return the number of dropped lines, and the faults."""
        if self._in_loop:
            log_of.cache_clear()  # the thread may have unreported lines
            return self._told, "the loop writes the log itself, and waits for the stopped reader"
        found = b""
        while True:
            written = self._writer.drain(TURN_SECONDS)
            with suppress(BlockingIOError):
                while piece := os.read(self._read, PIPE_BYTES):
                    found += piece
            if written:
                break
        numbers = [int(line.split()[0]) for line in found.splitlines()]
        dropped, count = self._told, self._count
        self._told = self._count = 0
        if numbers != sorted(numbers) or len(numbers) + dropped != count:
            return dropped, f"posd logged {count} lines, wrote {len(numbers)}, and reported {dropped} as dropped"
        return dropped, None


@cache
def log_of(_process: int) -> Log:
    """Return the log of this process. The thread of the log never ends."""
    return Log()


def close_log() -> None:
    """Close the pipe of this process's log, if any."""
    if log_of.cache_info().currsize:
        log_of(os.getpid()).close()
        log_of.cache_clear()
