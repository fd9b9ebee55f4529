"""A reader of the log and a service manager that stop reading for a while: a real pipe and a real socket.

The product's own writer and its thread use the pipe. Their work takes no time of the run.
"""

import fcntl
import os
import socket
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from posd.logs.writer import LogWriter
from tests.support.standing import fill_manager

#: Most bytes that wait for the reader, beside those in the pipe: some lines.
MAX_BYTES = 2048
PIPE_BYTES = 4096
#: How long the thread has to write, in seconds, before more is read.
TURN_SECONDS = 0.01
#: The room of a line, in bytes.
LINE_BYTES = 200


class Log:
    """A pipe that is read at the end alone, and the product's writer."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._loop = threading.get_ident()
        self._told = self._count = 0
        self._in_loop = False
        self._writer = LogWriter(self._descriptor, self._tell, MAX_BYTES)
        self._writer.start()

    def _descriptor(self) -> int:
        if threading.get_ident() == self._loop:  # it would wait for ever
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
        """Read everything; return how many lines were dropped, and the faults."""
        if self._in_loop:
            log_of.cache_clear()  # its thread may not know of all lines
            return self._told, "the loop writes the log, and waits for a reader that stands still"
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
            return dropped, f"of {count} lines of the log {len(numbers)} were written, and {dropped} told as dropped"
        return dropped, None


@cache
def log_of(_process: int) -> Log:
    """Return the one of a process: its thread does not end."""
    return Log()


class Manager:
    """The socket of a service manager. It reads nothing while it is stopped."""

    def __init__(self, home: Path) -> None:
        self._path = str(home / "run" / "notify.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(self._path)
        self._still = False
        #: The last value of each name that it has read.
        self.heard: dict[str, str] = {}

    def stand_still(self) -> None:
        """Read nothing, of a socket that is full."""
        self._still = True
        os.environ["NOTIFY_SOCKET"] = self._path
        fill_manager(self._path)

    def read(self) -> None:
        """Read what has arrived, unless it is stopped."""
        with suppress(BlockingIOError):
            while not self._still:
                for line in self._socket.recv(PIPE_BYTES).decode().splitlines():
                    name, _, value = line.partition("=")
                    self.heard[name] = value

    def go_on(self) -> None:
        """Read again."""
        self._still = False
        self.read()

    def close(self) -> None:
        """It is gone."""
        self._socket.close()
