"""What `posd simulate` writes to stdout."""

import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

#: Lines that wait for a reader of stdout who is slow or gone; further ones are dropped, the ledger file has them all.
MAX_WAITING_LINES = 10_000
#: Seconds that the last lines have to be written at the end.
LAST_LINES_SECONDS = 0.3


class Lines:
    """Writes lines to stdout from a thread: a reader who does not read must not stop the terminal."""

    def __init__(self, text: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._text = text
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._writer.start()

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write what the line function makes of an entry; None writes nothing."""
        text = self._text(entry)
        if text is not None:
            self.say(text)

    def say(self, text: str) -> None:
        """Write a line as it is."""
        if not self._waiting.full():
            self._waiting.put_nowait(f"{text}\n".encode())

    def close(self) -> None:
        """Give the last lines a moment to be written."""
        if not self._waiting.full():
            self._waiting.put_nowait(None)
            self._writer.join(LAST_LINES_SECONDS)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                while line:
                    line = line[os.write(1, line) :]  # past sys.stdout, whose lock would hold up the exit
            except OSError:
                return  # nobody reads any more
