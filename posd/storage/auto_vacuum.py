"""Whether a database can be cut when rows are removed, and making it so (see `posd.storage.space`)."""

import sqlite3

INCREMENTAL = 2

#: A database up to this size is written anew when it is opened, in bytes: it takes a second or two. A larger one is
#: when it is restored, where nobody waits for a payment.
SMALL_BYTES = 64 * 1024 * 1024


def can_shrink(db: sqlite3.Connection) -> bool:
    """Whether free pages can be given back."""
    return bool(db.execute("PRAGMA auto_vacuum").fetchone()[0] == INCREMENTAL)


def make_shrinkable(db: sqlite3.Connection) -> None:
    """Write a database anew so that it can be cut; nothing where it can be. Raise sqlite3.Error: it is as it was.

    VACUUM may give rows without a number of their own new ones, in principle; payments of before the journal are known
    by theirs. It has never done so where a table has an index; where it ever does, it is not kept.
    """
    if can_shrink(db):
        return
    numbers = _numbers(db)
    db.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}").close()
    db.execute("VACUUM").close()
    if _numbers(db) != numbers:
        raise sqlite3.IntegrityError("VACUUM has changed the numbers of rows")


def _numbers(db: sqlite3.Connection) -> list[tuple[int, int, int, int]]:
    query = "SELECT count(*), coalesce(min(rowid), 0), coalesce(max(rowid), 0), coalesce(sum(rowid), 0) FROM"
    return [db.execute(f"{query} {table}").fetchone() for table in ("transactions", "print_jobs", "marks")]
