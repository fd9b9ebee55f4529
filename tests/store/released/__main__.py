"""Fill a database with the present daemon, for tests of later versions.

Run `python -m tests.store.released` with the older code before you add a migration. The command makes payments and
print jobs in every phase and with every end. Some records need an operator, and some have refused callbacks.
"""

import asyncio
import gzip
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.rig.prints import Job
from tests.rig.shop import Payment, Shop, answering, hanging_up, open_counters
from tests.rig.terminal import Script

HERE = Path(__file__).parent
CONFIG = '[merchant]\nid = "M-1"\n'
REFUSED = answering(422, {"message": "refused"})
COURSE = ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL")

#: number -> (type, reply to the start, later states, further fields of the request). The reply None accepts the start.
PAYMENTS: Mapping[int, tuple[str, Script | None, tuple[str, ...], dict[str, Any]]] = {
    1: ("charge", None, COURSE, {"metadata": {"reference": "ticket 1", "till": 3}, "sale": "sale 1"}),
    2: ("charge", None, (*COURSE[:3], "DECLINED"), {}),
    3: ("charge", None, (*COURSE[:2], "TERMINAL_CANCELED"), {"metadata": {"reference": "ticket 3"}}),
    4: ("charge", None, (COURSE[0], "TERMINAL_REJECTED"), {}),
    5: ("charge", REFUSED, (), {}),
    6: ("pre-auth", None, COURSE, {}),
    7: ("charge", None, COURSE[:2], {"metadata": {"reference": "stays open"}}),
    8: ("charge", hanging_up, (), {}),
    9: ("charge", None, (COURSE[0], "SOMETHING_NEW"), {}),
    10: ("charge", None, COURSE[:1], {}),
    11: ("charge", None, (*COURSE, "DECLINED"), {}),
}
#: Payments that keep their lease. Each of these payments has its own terminal.
STAY_OPEN = (7, 8, 9, 10)
#: Payment whose refused callback is not an event.
REFUSED_CALLBACK = 10
JOBS: Mapping[int, tuple[Script | None, str | None]] = {
    1: (None, "COMPLETED"),
    2: (None, "FAILED"),
    3: (REFUSED, None),
    4: (None, None),
}


def name(number: int) -> str:
    return str(UUID(int=number, version=4))


async def pay(
    shop: Shop, number: int, kind: str, answer: Script | None = None, states: tuple[str, ...] = (), **fields: Any
) -> None:
    """Start a payment and deliver events with these states. `answer`: the terminal's reply to the start."""
    payment = Payment(shop, name(number), shop.terminal.serial)
    shop.terminal.start = answer
    reply = await payment.put(type=kind, **fields)
    assert reply.status == 201, reply.body
    for state, previous in zip(states, (None, *states), strict=False):
        assert await payment.event(state, previous) == 200
    if number == REFUSED_CALLBACK:
        assert await payment.deliver(b"half an eve") == 400


async def print_out(shop: Shop, number: int, answer: Script | None, end: str | None) -> None:
    """Start a print job. `answer`: the terminal's reply. `end`: status of the webhook, or None for no webhook."""
    job = Job(shop.daemon, shop.terminal, f"job-{number}")
    shop.terminal.print_start = answer
    assert (await job.put(terminal=shop.terminal.serial)).status == 201
    if end is not None:
        error = {"errorCode": "E7", "errorMessage": "out of paper"} if end == "FAILED" else {}
        assert await job.webhook(end, **error) == 200


async def fill(shops: list[Shop]) -> None:
    """Record every kind of payment and print job of this version. The last terminal is switched off."""
    usual, *held, away = shops
    for number, (kind, answer, states, fields) in PAYMENTS.items():
        shop = held[STAY_OPEN.index(number)] if number in STAY_OPEN else usual
        await pay(shop, number, kind, answer, states, **fields)
    await away.terminal.unplug()
    await pay(away, 20, "charge")
    await pay(usual, 21, "capture", None, COURSE, original=name(6))
    for number, (answer, end) in JOBS.items():
        await print_out(usual, number, answer, end)


async def run() -> None:
    """Fill a database. Write it beside this file, compressed."""
    async with open_counters(len(STAY_OPEN) + 2, CONFIG) as shops:
        await fill(shops)
        database = shops[0].daemon.database
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        schema = db.execute("PRAGMA user_version").fetchone()[0]
    (HERE / f"schema-{schema}.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))


if __name__ == "__main__":
    asyncio.run(run())
