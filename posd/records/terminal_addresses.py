"""Where each terminal was trusted last, on disk: see `terminals.identity` for what follows from it."""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.json_types import encode
from posd.base.problems import Problem
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import WriteTransaction
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Proof, Trusted

COLUMNS = ("base_url", "proof", "at", "operator", "note", "uid", "turned_down", "other_serial")

log = structlog.get_logger("posd.identity")


def read(db: sqlite3.Connection) -> dict[str, Trusted]:
    """Return where each terminal was trusted last."""
    rows = db.execute(
        f"SELECT terminal, {', '.join(COLUMNS)} FROM terminal_addresses ORDER BY terminal, number"  # noqa: S608
    )
    return {terminal: _trusted(values) for terminal, *values in rows}


def _trusted(values: list[Any]) -> Trusted:
    found = dict(zip(COLUMNS, values, strict=True))
    turned_down = msgspec.json.decode(found.pop("turned_down"), type=tuple[str, ...])
    return Trusted(**found | {"proof": Proof(found["proof"]), "turned_down": turned_down})


def put(unit: WriteTransaction, terminal: str, trusted: Trusted) -> None:
    """Write down where a terminal is trusted from now on (runs inside a commit)."""
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
    """Write down that the device there has proven itself (runs inside a commit)."""
    _set(unit, "proof", trusted.proof, terminal, trusted.base_url)


def record_other_identity(unit: WriteTransaction, terminal: str, base_url: str, other_serial: str | None) -> None:
    """Write down what the device at the address that a terminal is trusted at says it is (runs inside a commit)."""
    _set(unit, "other_serial", other_serial, terminal, base_url)


def _set(unit: WriteTransaction, column: str, value: str | None, terminal: str, base_url: str) -> None:
    unit.db.execute(
        f"UPDATE terminal_addresses SET {column} = ? WHERE terminal = ? AND base_url = ? AND number ="  # noqa: S608
        " (SELECT max(number) FROM terminal_addresses WHERE terminal = ?)",
        (value, terminal, base_url, terminal),
    )


class IdentityDecisions:
    """Use case of a person: say which of the claims is the terminal."""

    def __init__(self, store: Store, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._store = store
        self._fleet = fleet
        self._now = now

    async def decide(self, terminal: str, operator: str, note: str, uid: int | None, base_url: str) -> None:
        """Trust the device at that address to be the terminal. Raise Problem."""
        if terminal not in self._fleet:
            raise Problem("not_found", f"terminal {terminal} is not in the fleet")
        trusted = self._fleet.addresses.decision(terminal, base_url, operator, note, uid)
        crash_point("identity.before_commit")
        try:
            await self._store.write(partial(put, terminal=terminal, trusted=trusted))
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"cannot do it now: {error}; nothing was decided. Check the disk, and try again"
            raise Problem("storage_unavailable", detail) from error
        crash_point("identity.committed")
        self._fleet.addresses.trust(terminal, trusted)
        log.info("terminal.identity_decided", terminal=terminal, host=trusted.base_url, uid=uid)
