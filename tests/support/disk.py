"""A disk that does not take what is written to it."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def broken_disk(database: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the database's WAL for the block: SQLite gets an I/O error at COMMIT."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = database.with_name(f"{database.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
