"""Stored data about terminals: the trusted address, and the commissioning by an operator.

`terminals.identity` has the rules.
"""

import sqlite3
from functools import partial
from typing import Any

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.json_types import encode
from posd.records.service import storage_problem
from posd.storage import marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Commission, Part, Proof, Trusted
from posd.terminals.terminal import FleetTerminal

COLUMNS = ("base_url", "proof", "at", "operator", "note", "uid", "turned_down", "other_serial")

log = structlog.get_logger("posd.identity")


def trusted_ones(db: sqlite3.Connection) -> dict[str, Trusted]:
    """Return the newest trust record of each terminal."""
    rows = db.execute(
        f"SELECT terminal, {', '.join(COLUMNS)} FROM terminal_addresses ORDER BY terminal, number"  # noqa: S608
    )
    return {terminal: _trusted(values) for terminal, *values in rows}


def _trusted(values: list[Any]) -> Trusted:
    found = dict(zip(COLUMNS, values, strict=True))
    turned_down = msgspec.json.decode(found.pop("turned_down"), type=tuple[str, ...])
    return Trusted(**found | {"proof": Proof(found["proof"]), "turned_down": turned_down})


def put(unit: WriteTransaction, terminal: str, trusted: Trusted) -> None:
    """Store a new trust record of a terminal. Runs inside a commit."""
    row = "SELECT number FROM terminal_addresses WHERE terminal = ? ORDER BY number DESC LIMIT 1"
    (number,) = unit.db.execute(row, (terminal,)).fetchone() or (0,)
    unit.db.execute("DELETE FROM terminal_addresses WHERE terminal = ? AND operator IS NULL", (terminal,))
    values = msgspec.structs.asdict(trusted) | {"turned_down": encode(trusted.turned_down).decode()}
    unit.db.execute(
        f"INSERT INTO terminal_addresses (terminal, number, {', '.join(COLUMNS)})"  # noqa: S608
        f" VALUES (?, ?, {', '.join('?' * len(COLUMNS))})",
        (terminal, number + 1, *(values[name] for name in COLUMNS)),
    )


def proved(unit: WriteTransaction, terminal: str, trusted: Trusted) -> None:
    """Store the proof of the device at the trusted address of a terminal. Runs inside a commit."""
    _set(unit, "proof", trusted.proof, terminal, trusted.base_url)


def record_other_identity(unit: WriteTransaction, terminal: str, base_url: str, other_serial: str | None) -> None:
    """Store another serial that the device at the trusted address reports, or None. Runs inside a commit."""
    _set(unit, "other_serial", other_serial, terminal, base_url)


def _set(unit: WriteTransaction, column: str, value: str | None, terminal: str, base_url: str) -> None:
    unit.db.execute(
        f"UPDATE terminal_addresses SET {column} = ? WHERE terminal = ? AND base_url = ? AND number ="  # noqa: S608
        " (SELECT max(number) FROM terminal_addresses WHERE terminal = ?)",
        (value, terminal, base_url, terminal),
    )


async def decide_identity(store: Store, terminal: FleetTerminal, trusted: Trusted) -> None:
    """Store an operator's decision about which device is the terminal, and apply it. Raise Problem."""
    crash_point("identity.before_commit")
    with storage_problem("not possible now: {error}; nothing was decided. Check the disk, and try again"):
        await store.write(partial(put, terminal=terminal.serial, trusted=trusted))
    crash_point("identity.committed")
    terminal.trust(trusted)
    log.info("terminal.identity_decided", terminal=terminal.serial, host=trusted.base_url, uid=trusted.uid)


# Commissioning: the functions of a terminal that an operator saw working.


def commissions(db: sqlite3.Connection) -> dict[str, Commission]:
    """Return the newest commissioning of each terminal."""
    return {seen.terminal: seen for seen in map(_known, marks.details(db, marks.COMMISSIONED))}


def _known(detail: str) -> Commission:
    """Return a stored commissioning, without functions that only a later version of posd knows."""
    stored = msgspec.json.decode(detail)
    stored["proven"] = [word for word in stored["proven"] if word in set(Part)]
    return msgspec.convert(stored, Commission)


def _put(unit: WriteTransaction, seen: Commission) -> None:
    marks.add(unit.db, seen.at, marks.COMMISSIONED, seen)


async def record_commission(store: Store, fleet: Fleet, seen: Commission) -> None:
    """Store the commissioning of a terminal, and apply it in place of an earlier one. Raise Problem."""
    with storage_problem("not possible now: {error}; nothing was recorded. Check the disk, and try again"):
        await store.write(partial(_put, seen=seen))
    fleet.commission(seen)
    log.info("terminal.commissioned", terminal=seen.terminal, evidence=list(seen.proven), uid=seen.uid)
