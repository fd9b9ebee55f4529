"""Standard output and standard error of a command: what they cannot encode is replaced, and a deed outlives them.

A command that only reads fails where its output cannot be written. Once a command has begun to change something, its
exit code says how that ended, and output that cannot be written is dropped.
"""

import errno
import io
import os
import sys
from typing import Any


class OutputLost(Exception):
    """Standard output cannot be written; no OSError, which a command may take for one of its own files."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror)
        self.nobody_reads = cause.errno == errno.EPIPE


class _Stream(io.BufferedWriter):
    """A standard stream. `drops`: what cannot be written is dropped; else OutputLost is raised, once.

    What is below it is no code of ours: a signal that comes there after a write would have it written once more.
    """

    def __init__(self, descriptor: int, *, drops: bool) -> None:
        super().__init__(io.FileIO(descriptor, "w", closefd=False))
        self.drops = drops

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self._lose(error)
            return len(content)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not self.drops:
            self.drops = True
            raise OutputLost(error) from error


_stdout: _Stream | None = None


def open_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` by streams of this kind. A descriptor that is closed takes nothing."""
    global _stdout
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:  # else a socket or a database would become stdout
        pass
    os.close(descriptor)
    _stdout = _Stream(1, drops=False)
    sys.stdout = _text(_stdout, sys.stdout.encoding if sys.stdout else None)
    sys.stderr = _text(_Stream(2, drops=True), sys.stderr.encoding if sys.stderr else None)


def drop_lost_output() -> None:
    """Drop from now on what cannot be written: something is being changed."""
    if _stdout is not None:
        _stdout.drops = True


def _text(stream: _Stream, encoding: str | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding, errors="replace", line_buffering=True)
