"""Turns of the calls to a terminal about printing: one call at a time a terminal, a few over all.

Payments have nothing to do with it: they take no turn here and do not wait. Jobs that are to be sent stand in
line; the first of them and the spooler's question take turns, so that neither keeps the other away.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: Terminals that are called about printing at the same time: a burst must not starve the payments beside it.
MAX_CALLS = 8
#: Jobs that may wait for their turn, over all terminals; past it a till has to ask again later. Of each no more is held
#: in memory than its id and its callback address: its document is read from the disk when its turn comes.
MAX_WAITING = 2048
#: Tills that wait for the reply of a terminal, at most so many a terminal: past it they are answered at once, with the
#: job in line, so that their requests are not held in memory.
MAX_HELD = 32


class _TerminalCalls:
    """The calls to one terminal."""

    def __init__(self) -> None:
        self.sending = asyncio.Lock()  # among jobs that are to be sent
        self.calling = asyncio.Lock()  # between the first of them and the spooler
        self.waiting = 0
        self.failures = 0
        self.failure = ""


class Ticket:
    """A place in the line of a terminal."""

    def __init__(self, line: _TerminalCalls) -> None:
        self._line = line
        self._failures = line.failures

    @property
    def failure(self) -> str | None:
        """Why the terminal could not be reached for a job before this one in line, None if it was not so."""
        return self._line.failure if self._line.failures != self._failures else None

    def failed(self, reason: str) -> None:
        """Record that the terminal is unreachable: the jobs behind it in line would fail as well."""
        self._line.failures += 1
        self._line.failure = reason


class PrintTurns:
    """Gives the turns."""

    def __init__(self) -> None:
        self._lines: dict[str, _TerminalCalls] = {}
        self._fleet = asyncio.Semaphore(MAX_CALLS)
        self.waiting = 0

    def busy(self, terminal: str) -> bool:
        """Return whether a job for that terminal would have to wait for its turn."""
        line = self._line(terminal)
        return bool(line.waiting) or line.calling.locked() or self._fleet.locked()

    def in_line(self, terminal: str) -> int:
        """Return how many jobs wait for that terminal, the one that is being sent among them."""
        return self._line(terminal).waiting

    def join(self, terminal: str) -> Ticket:
        """Enter the line; `leave` releases the place."""
        line = self._line(terminal)
        line.waiting += 1
        self.waiting += 1
        return Ticket(line)

    def leave(self, terminal: str) -> None:
        """Release a place in line."""
        self._line(terminal).waiting -= 1
        self.waiting -= 1

    @asynccontextmanager
    async def send(self, terminal: str) -> AsyncIterator[None]:
        """Wait for the turn of a job that is to be sent, and hold it for the block."""
        line = self._line(terminal)
        async with line.sending, line.calling, self._fleet:
            yield

    @asynccontextmanager
    async def ask(self, terminal: str) -> AsyncIterator[None]:
        """Wait for the turn of a question, and hold it for the block."""
        async with self._line(terminal).calling, self._fleet:
            yield

    def _line(self, terminal: str) -> _TerminalCalls:
        return self._lines.setdefault(terminal, _TerminalCalls())
