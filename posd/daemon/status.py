"""`GET /status`: the state of all parts in one response, also without a readable database."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.api.documents import Counters, DaemonStatus, Disk, Health, LastPayment, TerminalStatus, Version
from posd.api.metrics import DatabaseGauges, read_gauges
from posd.api.service import overall
from posd.api.terminals import CHECK_SECONDS
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls.app import json_response
from posd.daemon.health import HealthChecks
from posd.daemon.parts import Daemon
from posd.payments.rows import leases
from posd.records.model import Phase

#: Payments that are searched for the last one of each terminal.
RECENT = 1000
_FIELDS = "SELECT client_transaction_id, created_at, phase, CASE WHEN json_valid(outcome) THEN outcome ->> 'result' END"
#: The newest of those recorded lately, by terminal: in the order of recording, which no wrong clock changes.
_RECENT = (
    f"SELECT terminal, max(rowid) FROM (SELECT rowid, terminal FROM transactions ORDER BY rowid DESC LIMIT {RECENT})"  # noqa: S608
    " GROUP BY terminal"
)
_RECORDED = f"{_FIELDS} FROM transactions WHERE rowid = ?"
#: Of a terminal that none of these is of.
_LAST = (
    f"{_FIELDS} FROM transactions INDEXED BY transactions_terminal WHERE terminal = ?"
    " ORDER BY created_at DESC, client_transaction_id DESC LIMIT 1"
)


class StoredStatus(NamedTuple):
    """Values from the database; `last` and `held` by serial."""

    figures: DatabaseGauges
    last: dict[str, LastPayment]
    held: dict[str, str]


def stored(db: sqlite3.Connection, serials: Sequence[str]) -> StoredStatus:
    """Read the values of the database, for all and for these terminals."""
    recent = dict(db.execute(_RECENT))
    last = {
        serial: LastPayment(*row)
        for serial in serials
        for row in (db.execute(_RECORDED, (recent[serial],)) if serial in recent else db.execute(_LAST, (serial,)))
    }
    return StoredStatus(read_gauges(db), last, dict(leases(db)))


class StatusCalls:
    """Handler of /v1/status."""

    def __init__(self, daemon: Daemon, health: HealthChecks, version: Version) -> None:
        self._daemon = daemon
        self._health = health
        self._version = version

    async def get_status(self, request: Request) -> Response:
        """Return the response to `GET /status`; with `check=true`, probe terminals without a recent probe first."""
        parts, fleet = self._daemon, self._daemon.fleet
        if request.state.query["check"]:
            await fleet.check_stale(CHECK_SECONDS)
        checks = await self._health.checks()
        try:
            found = await parts.context.read(partial(stored, serials=list(fleet.serials)))
        except Problem:
            found = None
        terminals = fleet.documents(found.held if found else {}, everything=False)
        last = found.last if found else {}
        newest = await parts.backups.newest()
        return json_response(
            DaemonStatus(
                at=iso(parts.now()),
                started_at=iso(parts.started.at(parts.now())),
                uptime_seconds=round(parts.started.seconds, 1),
                version=self._version,
                health=Health(overall(checks), checks),
                configuration=parts.in_force.state(),
                clock=checks.clock,
                certificate=checks.certificate,
                restore=checks.restore,
                relay=None,
                disk=_disk(parts.config.database.path),
                backup_at=None if newest is None else iso(datetime.fromtimestamp(newest[0], UTC)),
                counters=None if found is None else _counters(found.figures),
                terminals=[
                    TerminalStatus(**msgspec.structs.asdict(item), last_payment=last.get(item.serial))
                    for item in terminals
                ],
            )
        )


def _counters(figures: DatabaseGauges) -> Counters:
    return Counters(
        open_payments=sum(figures.open.values()),
        in_doubt=figures.open.get(Phase.IN_DOUBT, 0),
        attention=sum(figures.attention.values()),
        open_print_jobs=sum(figures.open_prints.values()),
        print_attention=sum(figures.print_attention.values()),
        quarantine=figures.quarantined,
    )


def _disk(database: Path) -> Disk:
    free = size = used = None
    with suppress(OSError):
        found = os.statvfs(database.parent)
        free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    with suppress(OSError):
        used = database.stat().st_size
    return Disk(free, size, used)
