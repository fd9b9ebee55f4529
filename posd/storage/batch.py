"""Argument that each function of a commit receives: the transaction, and the changes to publish."""

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec


class RecordedChange(msgspec.Struct, frozen=True):
    """Row of the feed: a change of one transaction or print job, and its reason."""

    seq: int
    at: str
    kind: str
    id: str
    reason: str
    phase: str
    status: str | None
    result: str | None
    attention: tuple[str, ...]
    terminal: str | None = None  # None in rows of the first schema


class WriteTransaction:
    """Transaction that the functions of one commit share: its connection, and the changes to publish."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.changes: list[RecordedChange] = []
        self.moved_pages = False  # whether pages were moved, which SQLite does not count as a change of a row
        self._before = db.total_changes

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit. An empty COMMIT does not wait for the disk."""
        return self.moved_pages or self.db.total_changes != self._before


Function = Callable[[WriteTransaction], Any]
