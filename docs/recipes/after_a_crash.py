#!/usr/bin/env python3
"""after_a_crash.py: what a till does when it starts: it settles every payment that it left open, and opens then.

It reads the till's own table (here that of charge.py) and asks posd, too, for what a restored backup may have lost.
Exit code: 0 all is settled, 4 a person has to look.
"""

import os
import sqlite3
import sys
from pathlib import Path

from posd.client import NotFound, OutcomeUnknown, Posd, Pruned, StillOpen, UnknownResult

till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, amount TEXT NOT NULL, result TEXT)")
unsettled = 0


def note(identity: str, result: str) -> None:
    with till:
        till.execute("UPDATE payments SET result = ? WHERE id = ?", (result, identity))


with Posd(patience=3600) as posd:  # the machine has just started; so has posd
    for identity, amount in till.execute("SELECT id, amount FROM payments WHERE result IS NULL").fetchall():
        print(f"{amount}: checking", flush=True)
        try:
            # It only asks: to call posd.charge() again would start what never reached posd, and the customer is gone.
            payment = posd.transaction(identity)
            payment.state()
            outcome = payment.outcome(timeout=60)
        except NotFound:  # the till died before its call arrived; nobody makes it any more
            note(identity, "never_started")
            print(f"{amount}: NOT PAID: it was never started")
        except (OutcomeUnknown, Pruned, StillOpen, UnknownResult) as error:
            unsettled += 1
            print(f"{amount}: CALL THE SUPERVISOR: {error}")
        else:
            if outcome.next_step == "ask_person":
                unsettled += 1
                print(f"{amount}: CALL THE SUPERVISOR: the terminal has said two things about it")
            else:
                note(identity, outcome.result)
                print(f"{amount}: {'PAID' if outcome.result == 'approved' else 'NOT PAID: ' + outcome.result}")

    known = {row[0] for row in till.execute("SELECT id FROM payments")}
    for state in posd.transactions(open=True):
        if state.id not in known:
            unsettled += 1
            print(f"payment {state.id} is open, and this till does not know it: is it another till's?")
sys.exit(4 if unsettled else 0)
