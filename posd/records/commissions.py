"""What a person has seen working with each terminal, on disk: see `terminals.commission` for what follows from it."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.problems import Problem
from posd.base.times import iso
from posd.storage import marks
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction
from posd.terminals.commission import Commission, Part
from posd.terminals.fleet import Fleet

log = structlog.get_logger("posd.commissions")


def read(db: sqlite3.Connection) -> dict[str, Commission]:
    """Return what was seen last of each terminal."""
    return {seen.terminal: seen for seen in map(_known, marks.details(db, marks.COMMISSIONED))}


def _known(detail: str) -> Commission:
    """Read one; a word of a later version of posd, which says nothing here, is left out."""
    stored = msgspec.json.decode(detail)
    stored["proven"] = [word for word in stored["proven"] if word in set(Part)]
    return msgspec.convert(stored, Commission)


def _put(unit: WriteTransaction, seen: Commission) -> None:
    marks.add(unit.db, seen.at, marks.COMMISSIONED, seen)


class Commissions:
    """Use case of a person: say what was seen working with a terminal. The newest word replaces the one before."""

    def __init__(self, store: Store, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._store = store
        self._fleet = fleet
        self._now = now

    async def record(self, terminal: str, operator: str, note: str, uid: int | None, proven: Sequence[Part]) -> None:
        """Record it with the version of the profile in force. Raise Problem."""
        if terminal not in self._fleet:
            raise Problem("not_found", f"terminal {terminal} is not in the fleet")
        profile = self._fleet.profile_version(terminal)
        seen = Commission(terminal, iso(self._now()), operator, note, uid, tuple(proven), profile)
        try:
            await self._store.write(partial(_put, seen=seen))
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"cannot do it now: {error}; nothing was recorded. Check the disk, and try again"
            raise Problem("storage_unavailable", detail) from error
        self._fleet.commission(seen)
        log.info("terminal.commissioned", terminal=terminal, evidence=list(seen.proven), uid=uid)
