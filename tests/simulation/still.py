"""A reader of the log and a service manager that stop reading for a while. The pipe and the socket are real.

The product's own writer and its thread write to the pipe. Their work takes no virtual time.
"""

import fcntl
import os
import socket
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from posd.logs.output import LogWriter
from tests.support.standing import fill_manager

#: Maximum number of bytes that wait for the reader beyond the pipe, about the size of a few lines.
MAX_BYTES = 2048
PIPE_BYTES = 4096
#: Seconds in which the thread may write before the reader reads more.
TURN_SECONDS = 0.01
#: Bytes of the pipe for one line.
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
        if threading.get_ident() == self._loop:  # the loop would wait for ever
            self._in_loop = True
            raise OSError
        return self._write

    def _tell(self, count: int) -> None:
        self._told += count

    def put(self, event: str) -> None:
        """Write a line."""
        self._count += 1
        self._writer.put([f"{self._count} {event}".ljust(LINE_BYTES).encode() + b"\n"])

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


class Manager:
    """The socket of a service manager, which reads nothing while it is stopped."""

    def __init__(self, home: Path) -> None:
        self._path = str(home / "run" / "notify.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(self._path)
        self._still = False
        #: Name -> last value that the manager has read.
        self.heard: dict[str, str] = {}

    def stand_still(self) -> None:
        """Stop reading, with a full socket."""
        self._still = True
        os.environ["NOTIFY_SOCKET"] = self._path
        fill_manager(self._path)

    def read(self) -> None:
        """Read the arrived messages, unless the manager is stopped."""
        with suppress(BlockingIOError):
            while not self._still:
                for line in self._socket.recv(PIPE_BYTES).decode().splitlines():
                    name, _, value = line.partition("=")
                    self.heard[name] = value

    def go_on(self) -> None:
        """Continue to read."""
        self._still = False
        self.read()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
