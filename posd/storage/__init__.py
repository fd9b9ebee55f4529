"""SQLite storage without knowledge of payments: opening, migrations, group commit, backup, files."""

# Errors of the database, by their meaning for the caller.


class StoreError(Exception):
    """Database that cannot be opened. The message has the reason and what to do."""


class UnusableFile(StoreError):
    """File that is no backup or database of posd, or is damaged. The message has the reason and what to do."""


class StorageUnavailable(Exception):
    """Error for a write that certainly did not happen: disk full, locked, too many waiting writes, or stopping.

    The caller may retry.
    """


class CommitUncertain(Exception):
    """Error for a COMMIT with an unknown outcome. The caller must read the database before it reports a result."""


class StaleState(Exception):
    """Error for a row that another change has updated since it was read. The caller must decide from the new state."""
