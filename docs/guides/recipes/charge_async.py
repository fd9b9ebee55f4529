#!/usr/bin/env python3
"""charge_async.py AMOUNT: charge.py on asyncio, for a till that updates its screen meanwhile; with its own database.

The program prints what the cashier should see. Exit codes:
0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
5 AMOUNT was not charged, because an open payment was settled or another charge runs;
2 wrong usage; 1 the program failed, and the payment may be open.
"""

import asyncio
import fcntl
import os
import sqlite3
import sys
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from posd.client import Approved, AsyncPayment, AsyncPosd, Paid, PosdError, StoredPayment

PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT = 0, 2, 3, 4, 5, 6


async def main() -> int:
    folder = Path(os.environ.get("TILL_DIR", "."))
    wanted = sys.argv[1] if len(sys.argv) == 2 else None
    lock = os.open(folder / "till.lock", os.O_CREAT | os.O_WRONLY)
    try:  # one run at a time; the lock is released when this program ends, also by a crash
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{wanted} WAS NOT CHARGED: another charge of this till is running")
        return ANOTHER_WAS_OPEN
    till = sqlite3.connect(folder / "till.db")
    till.execute("PRAGMA synchronous = EXTRA")  # a commit survives a power cut
    till.execute(
        "CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, request BLOB, stored_at TEXT, code INTEGER)"
    )

    def store(payment: StoredPayment) -> None:
        """Store a payment on disk before the call."""
        with till:
            row = (payment.id, payment.body, datetime.now(UTC).isoformat())
            till.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, ?, NULL)", row)

    row = till.execute("SELECT id, request, stored_at FROM payments WHERE code IS NULL").fetchone()
    left_open = StoredPayment(row[0], row[1], datetime.fromisoformat(row[2])) if row else None
    async with AsyncPosd(store=store, on_away=lambda _: show("One moment, please")) as posd:
        if left_open:
            identity, amount = left_open.id, str(left_open.request["amount"]["subtotal_iva0"])
            print(f"First, the payment of {amount} that was left open:")
            code = await settle(lambda: resume(posd, left_open), amount)
        elif wanted:
            identity, amount = str(uuid.uuid4()), wanted
            code = await settle(lambda: posd.charge(identity, amount), amount)
        else:
            print("usage: charge_async.py AMOUNT", file=sys.stderr)
            return USAGE
    if code == SUPERVISOR:
        return code  # the payment stays open
    with till:
        till.execute("UPDATE payments SET code = ? WHERE id = ?", (code, identity))
    if left_open and wanted:
        print(f"{wanted} WAS NOT CHARGED: the payment that was left open was settled instead")
        return ANOTHER_WAS_OPEN
    return code


async def resume(posd: AsyncPosd, left_open: StoredPayment) -> AsyncPayment:
    """Return a payment that may have been started. Start it only if posd says that it was never started."""
    payment = posd.transaction(left_open)
    return payment if await payment.is_known(within=0) else await posd.start(left_open)


async def settle(start: Callable[[], Awaitable[AsyncPayment]], amount: str) -> int:
    """Start the payment, wait for its outcome over restarts of posd, and print it. Return the exit code."""
    try:
        outcome = await (await start()).outcome(show=show)
    except PosdError as error:
        print(f"{'NOT PAID' if error.never_started else 'CALL THE SUPERVISOR'}: {error}")
        return NOT_PAID if error.never_started else SUPERVISOR
    if isinstance(outcome, Approved) and outcome.effect is Paid.PAID:
        paid, tip = outcome.authorized_amount, outcome.document.get("tip") or 0
        if paid is not None and paid - tip != Decimal(amount):  # a gift card had less money
            print(f"PAID {paid} of {amount}, ticket {outcome.ticket_number}")
            return PAID_ANOTHER_AMOUNT
        print(f"PAID {amount if paid is None else paid}, ticket {outcome.ticket_number}")  # with the tip
        return PAID
    if outcome.next_step == "new_id_ok":
        reason = outcome.failure_reason.message if outcome.failure_reason else None
        print(f"NOT PAID: {outcome.result} {reason or ''}".rstrip())
        return NOT_PAID
    print(f"CALL THE SUPERVISOR: it is not certain how payment {outcome.id} ended")
    return SUPERVISOR


shown = ""


def show(text: str) -> None:
    global shown
    if text != shown:
        print(text, flush=True)
    shown = text


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
