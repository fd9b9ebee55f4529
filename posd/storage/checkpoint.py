"""Checkpoints: they write committed pages from the log (the WAL) back into the database file.

Only the writing connection makes them, between two commits. Before 3.51.3, SQLite can lose a commit of one connection
while another begins a checkpoint (sqlite.org/wal.html, "The WAL-Reset Bug"). Commits wait meanwhile: 10 ms, with a
million stored payments 20 ms, on a hard disk seconds. So checkpoints are made in pauses, after the callers of the last
commit have their results.
"""

import sqlite3
from collections.abc import Callable

from posd.base.exposition import Histogram

#: Committed functions after which a checkpoint is due in a pause: some 2,000 pages of the log if each has its own
#: commit. A page that many commits changed is written back once.
DUE_AFTER = 350
#: Multiple of DUE_AFTER at which a checkpoint runs without a pause.
OVERDUE = 2

#: Length of a pause without writes, in seconds: at least this, and twice the duration of the newest checkpoint. On a
#: fast disk a pause fits between two events of a payment, on a slow one between two payments.
LEAST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 10.0
#: Pause before the first checkpoint, when no duration is known.
FIRST_PAUSE_SECONDS = 1.0

#: Buckets of the duration of a checkpoint, in seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Checkpoints:
    """Schedule of checkpoints. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = Histogram(BOUNDS)
        self._clock = clock
        self._functions = 0
        self._newest = 0.0  # time of the newest commit, if a checkpoint is due
        self._pause = FIRST_PAUSE_SECONDS

    def committed(self, functions: int) -> None:
        """Count the functions of a commit."""
        self._functions += functions
        if self._functions >= DUE_AFTER:
            self._newest = self._clock()

    def due(self) -> float | None:
        """Return the seconds until the next checkpoint if nothing is committed, or None if none is due."""
        if self._functions < DUE_AFTER:
            return None
        if self._functions >= OVERDUE * DUE_AFTER:
            return 0.0
        return max(0.0, self._newest + self._pause - self._clock())

    def made(self, seconds: float) -> None:
        """Count a checkpoint, including a failed one, which is tried again when the next is due."""
        self.seconds.observe(seconds)
        self._functions = 0
        self._pause = min(max(LEAST_PAUSE_SECONDS, 2 * seconds), MAX_PAUSE_SECONDS)


def write_back(db: sqlite3.Connection) -> bool:
    """Write back the pages that no other connection needs in the log.

    Return whether that was all. Raise sqlite3.Error.
    """
    busy, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(not busy and frames == done)


def empty_log(db: sqlite3.Connection) -> bool:
    """Write back all pages and truncate the log. Return False if a connection reads in it. Raise sqlite3.Error."""
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy
