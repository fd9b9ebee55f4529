"""Checkpoints: what is committed is written from the log (the WAL) back into the database file.

The writing connection alone makes them, between two commits: until 3.51.3 SQLite can lose what one connection commits
while another begins a checkpoint (sqlite.org/wal.html, "The WAL-Reset Bug"). Commits wait meanwhile: 10 ms, with a
million stored payments 20, on a hard disk seconds. So they are made in pauses, and the callers of a commit are answered
before the checkpoint after it.
"""

import sqlite3

from posd.base.locks import Histogram

#: Functions that were committed since the newest checkpoint, after which the next is made in a pause: some 2,000 pages
#: of the log where each came alone. A page that many commits touched is written back once.
DUE_AFTER = 350
#: So many times that, and it is made without a pause.
OVERDUE = 2

#: A pause: so long nothing is to be written, in seconds, and twice as long as the newest checkpoint took. On a fast
#: disk it comes between two events of a payment, on a slow one between two payments.
LEAST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 10.0
#: Before the first checkpoint it is not known how long one takes.
FIRST_PAUSE_SECONDS = 1.0

#: Buckets of how long one takes, in seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Checkpoints:
    """When the next one is to be made, by the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.seconds = Histogram(BOUNDS)
        self._functions = 0
        self._newest = 0.0  # when something was committed last
        self._pause = FIRST_PAUSE_SECONDS

    def committed(self, functions: int, now: float) -> None:
        """Count the functions of a commit."""
        self._functions += functions
        self._newest = now

    def due(self, now: float) -> float | None:
        """Return in how many seconds the next is to be made if nothing is committed until then; None: none is due."""
        if self._functions < DUE_AFTER:
            return None
        if self._functions >= OVERDUE * DUE_AFTER:
            return 0.0
        return max(0.0, self._newest + self._pause - now)

    def made(self, seconds: float) -> None:
        """Count one, however it went: one that failed is tried again when the next is due."""
        self.seconds.observe(seconds)
        self._functions = 0
        self._pause = min(max(LEAST_PAUSE_SECONDS, 2 * seconds), MAX_PAUSE_SECONDS)


def write_back(db: sqlite3.Connection) -> bool:
    """Write back what no other connection still needs in the log; tell whether that was all. Raise sqlite3.Error."""
    busy, frames, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return bool(not busy and frames == done)


def empty_log(db: sqlite3.Connection) -> bool:
    """Write all back and cut the log to nothing; False where a connection reads in it now. Raise sqlite3.Error."""
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy
