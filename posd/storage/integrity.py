"""SQLite's tests of a whole file, the same for a backup, a restore and `posd verify`. A start reads only the header."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from posd.storage.connection import connect_reader

#: SQLite operations between two checks of `stop`. These operations take some milliseconds.
OPERATIONS_AT_A_TIME = 100_000
#: Maximum number of faults that SQLite lists for one file.
MAX_FAULTS = 100

#: One fault: ("damaged" or "dangling", subject or "" for the file, finding).
FileFault = tuple[str, str, str]

#: Query for the view of lost events. An older schema has an index and a foreign key in its place.
_KNOWS_LOST = "SELECT 1 FROM sqlite_master WHERE name = 'lost_events'"


def _pages(db: sqlite3.Connection) -> Iterator[FileFault]:
    for (fault,) in db.execute(f"PRAGMA integrity_check({MAX_FAULTS})"):
        if fault != "ok":
            yield "damaged", "", fault.replace("\n", "; ")


def _references(db: sqlite3.Connection) -> Iterator[FileFault]:
    for table, rowid, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield "dangling", f"{table} {rowid}", f"there is no such row in {parent}"


def _lost_events(db: sqlite3.Connection) -> Iterator[FileFault]:
    if db.execute(_KNOWS_LOST).fetchone():
        for seq, identity in db.execute("SELECT seq, client_transaction_id FROM lost_events"):
            yield "dangling", f"events {seq}", f"there is no payment {identity} that names it"


#: Part of the file -> its test.
TESTS: Mapping[str, Callable[[sqlite3.Connection], Iterator[FileFault]]] = {
    "the file": _pages,
    "references": _references,
    "references of events": _lost_events,
}


def check(path: Path, stop: Callable[[], bool] = lambda: False) -> int:
    """Read a whole database. Return its number of transactions. Raise sqlite3.Error."""
    with closing(connect_reader(path)) as db:
        db.set_progress_handler(stop, OPERATIONS_AT_A_TIME)
        for test in TESTS.values():
            for _, subject, fault in test(db):
                raise sqlite3.DatabaseError(f"{subject}: {fault}" if subject else fault)
        transactions: int = db.execute("SELECT count(*) FROM transactions").fetchone()[0]
        return transactions
