"""Payments that were made long before the run: made at its beginning, and dated back in the database."""

import asyncio
import re
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from random import Random
from uuid import UUID

from posd.base.times import iso, parse_iso
from tests.chaos.faults import Kind
from tests.chaos.plan import OLD_DAYS, OLD_PAYMENTS
from tests.chaos.street import Street

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
#: How many are paid at the same time, and how many are tried on a terminal: all processes have just been started, and a
#: busy machine may not connect in time.
AT_A_TIME, OLD_TRIES = 4, 3 * OLD_PAYMENTS
#: The rows of payments, by table.
TABLES = ("transactions", "events", "journal", "changes")


async def old_payments(street: Street) -> None:
    """Make some on each terminal before anything goes wrong, and date them back."""
    if Kind.CLOCK not in street.plan.on:
        return
    for proxy in street.proxies.values():
        proxy.faulty = False
    gate = asyncio.Semaphore(AT_A_TIME)
    await asyncio.gather(*(_pay(street, serial, gate) for serial in street.plan.terminals))
    # Their files can only be looked at. What came again afterwards would differ from what is dated back.
    while any(terminal.waiting() for terminal in street.terminals.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await street.end_daemon(signal.SIGTERM)
    with closing(sqlite3.connect(street.daemon.database)) as db, db:
        _date_back(db)
    for proxy in street.proxies.values():
        proxy.faulty = True
    await street.start_daemon()


async def _pay(street: Street, serial: str, gate: asyncio.Semaphore) -> None:
    rng = Random(f"old/{street.plan.seed}/{serial}")
    paid = 0
    for _ in range(OLD_TRIES):
        identity = str(UUID(int=rng.getrandbits(128), version=4))
        request = {"terminal": serial, "amount": {"subtotal_iva0": 1}, "metadata": {"scenario": "approve-contactless"}}
        async with gate:
            reply = await street.daemon.call("PUT", f"/transactions/{identity}", request)
            while reply.status == 503:  # a terminal that is not found yet
                await asyncio.sleep(0.1)
                reply = await street.daemon.call("PUT", f"/transactions/{identity}", request)
            outcome = await street.daemon.outcome(identity)
        paid += outcome is not None and outcome["result"] == "approved"
        if paid == OLD_PAYMENTS:
            return
    raise AssertionError(f"{serial} cannot be used at the beginning: {outcome}")


def _date_back(db: sqlite3.Connection) -> None:
    """Move every time of what is there back by the same days."""
    for table in TABLES:
        rows = db.execute(f"SELECT rowid, * FROM {table}")
        columns = [column[0] for column in rows.description][1:]
        for number, *values in rows.fetchall():
            moved = [_moved(value) for value in values]
            names = ", ".join(f"{name} = ?" for name in columns)
            db.execute(f"UPDATE {table} SET {names} WHERE rowid = ?", (*moved, number))


def _moved(value: object) -> object:
    def back(found: re.Match[bytes]) -> bytes:
        return iso(parse_iso(found[0].decode()) - timedelta(days=OLD_DAYS)).encode()

    if isinstance(value, str):
        return _TIME.sub(back, value.encode()).decode()
    return _TIME.sub(back, value) if isinstance(value, bytes) else value
