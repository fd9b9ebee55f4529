"""Errors of the database, by their meaning for the caller."""


class StoreError(Exception):
    """Database that cannot be opened; the message names the reason and the cure."""


class StorageUnavailable(Exception):
    """Nothing was written, for certain: disk full, locked, too many waiting writes, or stopping.

    The caller may retry.
    """


class CommitUncertain(Exception):
    """COMMIT of unknown outcome: the caller must read again before it reports anything."""


class StaleState(Exception):
    """Row that another change has moved on: the caller must decide again from the new state."""
