"""Log writer with its own thread, so that a log reader that stops reading delays only the log.

An inherited descriptor is shared with other processes, so it stays blocking, and the thread waits in `write`.
"""

import atexit
import os
import select
import sys
import threading
from collections.abc import Callable

#: Maximum number of bytes of waiting lines, and of lines being written. The size is enough for about 3,000 lines or 300
#: payments.
MAX_BYTES = 1_048_576
#: Longest wait for the reader at the end of the process, in seconds. A working journal takes milliseconds.
END_SECONDS = 0.5


def output_descriptor() -> int:
    """Return the descriptor of this process's output. Raise ValueError if no output is open."""
    stream = sys.stdout or sys.stderr
    if stream is None:
        raise ValueError("there is no output")
    return stream.fileno()


class LogWriter:
    """Bounded queue of lines, and the thread that writes them in order.

    If the queue is full, lines are dropped until the thread takes the queue. Then `tell` logs the number of dropped
    lines. `descriptor` raises OSError or ValueError if there is no output.
    """

    def __init__(self, descriptor: Callable[[], int], tell: Callable[[int], None], max_bytes: int = MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._tell = tell
        self._max_bytes = max_bytes
        # An RLock, because garbage collection can run inside, and a failing finalizer logs a line.
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._bytes = 0
        self._is_full = False
        self._is_writing = False
        self._is_started = False
        #: Lines dropped since the start.
        self.dropped = 0

    def put(self, lines: list[bytes]) -> None:
        """Queue complete lines, each with its line end. The call never waits for the reader."""
        with self._changed:
            for line in lines:
                self._is_full = self._is_full or self._bytes + len(line) > self._max_bytes
                if self._is_full:
                    self.dropped += 1
                else:
                    self._lines.append(line)
                    self._bytes += len(line)
            self._changed.notify_all()

    def start(self) -> None:
        """Start the thread, once. Waiting lines are still written at the end of the process."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name="log", daemon=True).start()
            atexit.register(self.drain)

    def drain(self, seconds: float = END_SECONDS) -> bool:
        """Wait until all lines are written, at most `seconds`. Return whether all lines are written."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._is_writing), seconds)

    def _run(self) -> None:
        told, failed, torn = 0, False, False
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._lines))
                lines, dropped = self._lines, self.dropped
                self._lines, self._bytes, self._is_full, self._is_writing = [], 0, False, True
            if dropped > told and not failed:
                self._tell(dropped - told)
                told = dropped
            data = b"\n" * torn + b"".join(lines)  # a part that a full disk has cut off becomes a separate line
            count = len(lines)
            del lines  # the reader may not read for a long time
            written = self._write(memoryview(data))
            failed = written < len(data)
            if written:
                torn = failed and not data[:written].endswith(b"\n")
            if failed:
                with self._changed:
                    self.dropped += count
            elif dropped > told:  # earlier failures
                self._tell(dropped - told)
                told = dropped

    def _write(self, data: memoryview) -> int:
        """Write data without a time limit. Return the number of written bytes. There are fewer if the reader has ended,
        or the disk is full.
        """
        written = 0
        try:
            descriptor = self._descriptor()
            while written < len(data):
                try:
                    written += os.write(descriptor, data[written:])
                except BlockingIOError:  # another process that shares this pipe may have made it non-blocking
                    poll = select.poll()
                    poll.register(descriptor, select.POLLOUT)
                    poll.poll()
        except (OSError, ValueError):
            pass
        return written
