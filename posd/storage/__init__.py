"""SQLite storage without knowledge of payments: opening, migrations, the single writer with group commit, backup,
files.
"""

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
    """COMMIT with an unknown outcome. The caller must read again before it reports anything."""


class StaleState(Exception):
    """Row that another change has updated since it was read. The caller must decide again from the new state."""
