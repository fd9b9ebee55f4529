"""What can go wrong with the database, by what it means for the caller."""


class StoreError(Exception):
    """The database cannot be opened; the message says why and what to do."""


class StorageUnavailable(Exception):
    """Nothing was written, for certain: disk full, locked, too much waiting, or stopping. Ask again."""


class CommitUncertain(Exception):
    """The COMMIT failed in a way that leaves open whether it is on disk: read again before anything is said."""


class StaleState(Exception):
    """The row is no longer in the state that the change started from: another change was first, decide again."""
