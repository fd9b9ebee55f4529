"""A disk that does not take what is written to it."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def broken_disk(database: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the database's WAL for the block: SQLite gets an I/O error at COMMIT."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = database.with_name(f"{database.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    # What is imported meanwhile would be left half written, and fail whoever imports it next.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_none
