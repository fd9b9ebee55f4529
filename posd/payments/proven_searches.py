"""Which searches are known to work, because they have found a transaction: a condition of the proof."""

import sqlite3

from posd.storage.batch import Unit

#: Of each search so many are remembered: the one that is asked for, and another.
REMEMBERED = 2


def remember(unit: Unit, terminal: str, search: str, client_transaction_id: str, at: str) -> None:
    """Note that a search (method, path, pointer) found a transaction of a terminal."""
    unit.db.execute(
        "INSERT OR IGNORE INTO proven_searches (terminal, search, client_transaction_id, at)"
        " SELECT :terminal, :search, :id, :at"
        " WHERE (SELECT count(*) FROM proven_searches WHERE terminal = :terminal AND search = :search) < :most",
        {"terminal": terminal, "search": search, "id": client_transaction_id, "at": at, "most": REMEMBERED},
    )


def has_found_another(db: sqlite3.Connection, terminal: str, search: str, client_transaction_id: str) -> bool:
    """Tell whether that search has found another transaction of that terminal than this one."""
    row = db.execute(
        "SELECT 1 FROM proven_searches WHERE terminal = ? AND search = ? AND client_transaction_id <> ?",
        (terminal, search, client_transaction_id),
    ).fetchone()
    return row is not None


def control(db: sqlite3.Connection, terminal: str) -> str | None:
    """Return the newest transaction of a terminal that the terminal itself ended, to try a search on."""
    row = db.execute(
        "SELECT client_transaction_id FROM transactions WHERE terminal = ? AND phase = 'final'"
        " AND outcome ->> 'status' IN ('APPROVAL', 'DECLINED') ORDER BY created_at DESC LIMIT 1",
        (terminal,),
    ).fetchone()
    return row[0] if row else None
