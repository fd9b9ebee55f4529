"""A disk on which writes fail."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def broken_disk(database: Path) -> Iterator[None]:
    """Limit the size of this process's files to the database's WAL for the block:

    SQLite gets an I/O error at COMMIT.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = database.with_name(f"{database.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    # A module imported meanwhile would leave a half-written cache file, and its next import would fail.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_none
