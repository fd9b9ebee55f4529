"""A disk on which writes fail."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def broken_disk(database: Path) -> Iterator[None]:
    """Limit the size of this process's files, so that SQLite gets an I/O error from each COMMIT of the block."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = database.with_name(f"{database.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    # Do not import in the block. The import would leave an incomplete cache file, and later imports would fail.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = writes_none
