"""Giving the space of removed rows back to the disk, a little at a time.

A database that was made with `auto_vacuum = INCREMENTAL` can be cut: pages from its end are moved into the free ones.
One that was not needs to be written anew once; until then, its free pages are used again by new payments.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from posd.storage.batch import Unit
from posd.storage.opening import connect_writer


def free_pages(db: sqlite3.Connection) -> int:
    """Return how many pages are free."""
    count: int = db.execute("PRAGMA freelist_count").fetchone()[0]
    return count


def size(db: sqlite3.Connection) -> int:
    """Return how large the database is, in bytes, without its log."""
    pages, page = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * page)


def give_back(unit: Unit, pages: int) -> int:
    """Cut so many free pages off; return how many are left."""
    unit.moved_pages = True
    unit.db.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    return free_pages(unit.db)


def empty_log(path: Path) -> bool:
    """Write all that is committed into the database file, and empty the log; False where somebody reads in it now.

    For a thread: it waits for the disk. Raise sqlite3.Error.
    """
    with closing(connect_writer(path)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # without the lock, so that the rest is short
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
