#!/usr/bin/env python3
"""charge_async.py AMOUNT: charge.py on asyncio, for a till whose screen must go on meanwhile.

It says what the cashier should see. Exit code: 0 paid, 1 not paid, 2 wrong usage, 4 a person has to look.
"""

import asyncio
import os
import sqlite3
import sys
import uuid
from pathlib import Path
from typing import assert_never

from posd.client import (
    Approved,
    AsyncPayment,
    AsyncPosd,
    Canceled,
    Declined,
    IdReused,
    NotFound,
    NotStarted,
    Outcome,
    OutcomeUnknown,
    Problem,
    Pruned,
    Rejected,
    StillOpen,
    Transaction,
    UnknownResult,
    Unreachable,
)

#: Something may have happened under this id: a person looks, and nothing is charged again before that.
UNCLEAR = (IdReused, NotFound, OutcomeUnknown, Pruned, UnknownResult, Unreachable)

PROGRESS = {"CARD_PRESENTED": "Card read: follow the terminal", "APPROVAL_REQUESTED": "Asking the bank"}


async def main() -> int:
    till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
    till.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, amount TEXT NOT NULL, result TEXT)")
    row = till.execute("SELECT id, amount FROM payments WHERE result IS NULL").fetchone()
    if row:
        print("First, the payment that was left open:")
        identity, amount = row
    elif len(sys.argv) == 2:
        # Id and request are on disk before the call: whatever happens now, the same call can be repeated.
        identity, amount = str(uuid.uuid4()), sys.argv[1]
        with till:
            till.execute("INSERT INTO payments VALUES (?, ?, NULL)", (identity, amount))
    else:
        print("usage: charge_async.py AMOUNT", file=sys.stderr)
        return 2

    async with AsyncPosd(on_away=lambda _: show("One moment, please. Nothing is lost.")) as posd:
        try:
            result, code = tell(await wait(await posd.charge(identity, amount)), amount)
        except UNCLEAR as error:
            # It stays open: never again under another id before somebody knows what became of this one.
            print(f"CALL THE SUPERVISOR: {error}")
            return 4
        except (Problem, ValueError) as refusal:  # nothing was sent, nothing is recorded
            print(f"NOT PAID: {refusal}")
            result, code = "refused", 1
    if code != 4:
        with till:
            till.execute("UPDATE payments SET result = ? WHERE id = ?", (result, identity))
    return code


async def wait(payment: AsyncPayment) -> Outcome:
    """Wait for the outcome, over restarts of posd, and keep the cashier informed."""
    show(progress(await payment.state()))
    while True:
        try:
            return await payment.outcome(timeout=2)  # the 2 seconds are for what is shown, they decide nothing
        except StillOpen as still:
            if still.state:
                show(progress(still.state))


def progress(state: Transaction) -> str:
    if state.next_step == "ask_person":
        return "CALL THE SUPERVISOR: it is not known whether the customer has paid. Do not charge again."
    if state.phase == "in_doubt":
        return "Checking the payment. Do not charge again."
    return PROGRESS.get(state.status or "", "Present the card")


def tell(outcome: Outcome, amount: str) -> tuple[str, int]:
    """Say how it ended; return the result and the exit code."""
    if outcome.next_step == "ask_person":
        print("CALL THE SUPERVISOR: the terminal has said two things about this payment")
        return outcome.result, 4
    match outcome:
        case Approved(ticket_number=ticket):
            print(f"PAID {amount}, ticket {ticket}")
            return outcome.result, 0
        case Declined() | Rejected() | Canceled() | NotStarted():  # the customer was not charged
            reason = outcome.failure_reason.message if outcome.failure_reason else None
            print(f"NOT PAID: {outcome.result} {reason or ''}".rstrip())
            return outcome.result, 1
        case _:
            assert_never(outcome)  # a type checker says here what was forgotten


shown = ""


def show(text: str) -> None:
    global shown
    if text != shown:
        print(text, flush=True)
    shown = text


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
