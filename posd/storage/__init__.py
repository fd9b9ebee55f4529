"""SQLite without a domain: opening, migrations, the single writer with group commit, backup, files."""

# Errors of the database, by their meaning for the caller.


class StoreError(Exception):
    """Database that cannot be opened; the message names the reason and the cure."""


class StorageUnavailable(Exception):
    """Nothing was written, with certainty: disk full, locked, too many waiting writes, or stopping.

    The caller may retry.
    """


class CommitUncertain(Exception):
    """COMMIT with an unknown outcome. The caller must read again before it reports anything."""


class StaleState(Exception):
    """Row that another change has updated meanwhile. The caller must decide again from the new state."""
