"""What an operator saw working with each terminal, as stored. `terminals.commission` has the rules."""

import sqlite3
from functools import partial

import msgspec
import structlog

from posd.records.terminals import write_decision
from posd.storage import marks
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Commission, Part

log = structlog.get_logger("posd.commissions")


def stored(db: sqlite3.Connection) -> dict[str, Commission]:
    """Return what was seen last of each terminal."""
    return {seen.terminal: seen for seen in map(_known, marks.details(db, marks.COMMISSIONED))}


def _known(detail: str) -> Commission:
    """Read one; a word of a later version of posd, which says nothing here, is left out."""
    stored = msgspec.json.decode(detail)
    stored["proven"] = [word for word in stored["proven"] if word in set(Part)]
    return msgspec.convert(stored, Commission)


def _put(unit: WriteTransaction, seen: Commission) -> None:
    marks.add(unit.db, seen.at, marks.COMMISSIONED, seen)


async def record(store: Store, fleet: Fleet, seen: Commission) -> None:
    """Record what was seen working with a terminal; it replaces what was said before. Raise Problem."""
    await write_decision(store, partial(_put, seen=seen), "nothing was recorded")
    fleet.commission(seen)
    log.info("terminal.commissioned", terminal=seen.terminal, evidence=list(seen.proven), uid=seen.uid)
