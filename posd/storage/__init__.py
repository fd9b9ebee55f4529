"""SQLite storage without knowledge of payments: opening, migrations, group commit, backup, files."""

# Errors of the database, by their meaning for the caller.


class StoreError(Exception):
    """Error for a database that cannot be opened. The message has the reason and what to do."""


class UnusableFile(StoreError):
    """Error for a file that is damaged, or is neither a backup nor a database of posd.

    The message has the reason and advice.
    """


class StorageUnavailable(Exception):
    """Error for a write that certainly did not happen: disk full, locked, too many waiting writes, or stopping.

    The caller may retry.
    """


class CommitUncertain(Exception):
    """Error for a COMMIT with an unknown outcome. The caller must read the database before it reports a result."""


class StaleState(Exception):
    """Error for a row that another change has updated since it was read. The caller must decide from the new state."""
