#!/usr/bin/env python3
"""after_a_crash.py: what a till does when it starts: it settles every payment that it left open, and opens then.

It reads the till's own table (here that of charge.py) and asks posd, too, for what a restored backup may have lost.
GRACE_SECONDS (30): for how long a call of the till that died may still be on its way.
Exit code: 0 all is settled, 4 a person has to look.
"""

import os
import sqlite3
import sys
import time
from decimal import Decimal
from pathlib import Path

from posd.client import (
    Approved,
    NotFound,
    OutcomeUnknown,
    Paid,
    Payment,
    Posd,
    Problem,
    StillOpen,
    UnknownResult,
    Unreachable,
)

till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, amount TEXT NOT NULL, result TEXT)")
late = time.monotonic() + float(os.environ.get("GRACE_SECONDS", "30"))
unsettled = 0
said = ""


def say(text: str) -> None:
    """Say it once, however often it is true."""
    global said
    if text != said:
        print(text, flush=True)
    said = text


def settle(payment: Payment, amount: str) -> tuple[str | None, str, int]:
    """Return its result, None where that is not clear, the words for it, and whether a person has to look (1)."""
    outcome = payment.outcome(timeout=60)
    if outcome.paid is Paid.UNCLEAR:  # not certain, although there is a result
        return None, "CALL THE SUPERVISOR: " + "; ".join(item.detail for item in payment.state().attention), 1
    if not isinstance(outcome, Approved):
        return outcome.result, f"NOT PAID: {outcome.result}", 0
    if outcome.authorized_amount not in (None, Decimal(amount)):  # a gift card had less on it
        return outcome.result, f"PAID {outcome.authorized_amount} INSTEAD OF {amount}", 1
    return outcome.result, "PAID", 0


def started(payment: Payment, amount: str) -> bool:
    """Return whether it was. It only asks: to call posd.charge() again would start it, and the customer is gone."""
    while True:
        try:
            payment.state()
        except NotFound:
            if time.monotonic() > late:
                return False
            say(f"{amount}: not known yet, asking again")
            time.sleep(3)
        else:
            return True


with Posd(patience=3600, on_away=lambda _: say("posd is not there yet")) as posd:
    for identity, amount in till.execute("SELECT id, amount FROM payments WHERE result IS NULL").fetchall():
        say(f"{amount}: checking")
        payment = posd.transaction(identity)
        try:
            if started(payment, amount):
                result, words, look = settle(payment, amount)
            else:
                result, words, look = "never_started", "NOT PAID: it was never started", 0
        except (OutcomeUnknown, Problem, StillOpen, UnknownResult, Unreachable) as error:
            result, words, look = None, f"CALL THE SUPERVISOR: {error}", 1
        say(f"{amount}: {words}")
        with till:
            till.execute("UPDATE payments SET result = ? WHERE id = ?", (result, identity))
        unsettled += look

    looked_at = {row[0] for row in till.execute("SELECT id FROM payments WHERE result IS NULL")}
    for state in posd.transactions(open=True):
        if state.id not in looked_at:
            unsettled += 1
            print(f"payment {state.id} is open, and this till does not have it as open: is it another till's?")
sys.exit(4 if unsettled else 0)
