#!/usr/bin/env python3
"""charge_async.py AMOUNT: charge.py on asyncio, for a till whose screen must go on meanwhile, with its own database.

It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
"""

import asyncio
import os
import sqlite3
import sys
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import assert_never

from posd.client import (
    Approved,
    AsyncPayment,
    AsyncPosd,
    Canceled,
    Declined,
    IdMayBeUsed,
    NotStarted,
    Outcome,
    OutcomeUnknown,
    Paid,
    Problem,
    Rejected,
    State,
    StoredPayment,
    UnknownResult,
    Unreachable,
)

PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT = 0, 2, 3, 4, 5, 6


async def main() -> int:
    till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
    till.execute("PRAGMA synchronous = EXTRA")  # what is committed outlives a power cut
    till.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, request BLOB NOT NULL, result TEXT)")

    def store(payment: StoredPayment) -> None:
        """Have a payment on disk before the call, so that the same call can be repeated after any failure."""
        with till:
            till.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, NULL)", (payment.id, payment.body))

    row = till.execute("SELECT id, request FROM payments WHERE result IS NULL").fetchone()
    left_open = StoredPayment(*row) if row else None
    wanted = sys.argv[1] if len(sys.argv) == 2 else None
    async with AsyncPosd(store=store, on_away=lambda _: show("One moment, please. Nothing is lost.")) as posd:
        if left_open:
            identity, amount = left_open.id, str(left_open.request["amount"]["subtotal_iva0"])
            print(f"First, the payment of {amount} that was left open:")
            result, code = await settle(lambda: posd.start(left_open), amount)
        elif wanted:
            identity, amount = str(uuid.uuid4()), wanted
            result, code = await settle(lambda: posd.charge(identity, amount), amount)
        else:
            print("usage: charge_async.py AMOUNT", file=sys.stderr)
            return USAGE
    if code == SUPERVISOR:
        return code  # it stays open: never charge under another id before the outcome of this one is known
    with till:
        till.execute("UPDATE payments SET result = ? WHERE id = ?", (result, identity))
    if left_open and wanted:
        print(f"{wanted} WAS NOT CHARGED: it was the turn of the payment that was left open")
        return ANOTHER_WAS_OPEN
    return code


async def settle(start: Callable[[], Awaitable[AsyncPayment]], amount: str) -> tuple[str, int]:
    """Start it, or hear that it is known, and wait for its end; return the result and the exit code."""
    try:
        payment = await start()
    except (IdMayBeUsed, Unreachable) as error:  # an earlier call may have started it: a person looks
        return call_supervisor(error)
    except (Problem, ValueError) as refusal:  # nothing was sent, nothing is recorded
        print(f"NOT PAID: {refusal}")
        return "refused", NOT_PAID
    try:
        outcome = await wait(payment)
        if outcome.paid is Paid.UNCLEAR:  # not certain, although there is a result
            return call_supervisor("; ".join(item.detail for item in (await payment.state()).attention))
    except (OutcomeUnknown, Problem, UnknownResult, Unreachable) as error:  # of a payment that was started
        return call_supervisor(error)
    return tell(outcome, amount)


async def wait(payment: AsyncPayment) -> Outcome:
    """Wait for the outcome, over restarts of posd, and show the cashier how it stands."""
    async for news in payment.watch():
        if isinstance(news, State) and news.phase != "final":
            show(news.display.text)
    return await payment.outcome()


def tell(outcome: Outcome, amount: str) -> tuple[str, int]:
    """Say how it ended; return the result and the exit code."""
    match outcome:
        case Approved(ticket_number=ticket, authorized_amount=authorized):
            if authorized not in (None, Decimal(amount)):  # a gift card had less on it
                print(f"PAID {authorized} of {amount}, ticket {ticket}")
                return outcome.result, PAID_ANOTHER_AMOUNT
            print(f"PAID {amount}, ticket {ticket}")
            return outcome.result, PAID
        case Declined() | Rejected() | Canceled() | NotStarted():
            reason = outcome.failure_reason.message if outcome.failure_reason else None
            print(f"NOT PAID: {outcome.result} {reason or ''}".rstrip())
            return outcome.result, NOT_PAID
        case _:
            assert_never(outcome)  # a type checker says here what was forgotten


def call_supervisor(why: object) -> tuple[str, int]:
    print(f"CALL THE SUPERVISOR: {why}")
    return "unclear", SUPERVISOR


shown = ""


def show(text: str) -> None:
    global shown
    if text != shown:
        print(text, flush=True)
    shown = text


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
