#!/usr/bin/env python3
"""after_a_crash.py: what a till does when it starts: it settles every payment that it left open, and opens then.

It reads what the till has stored (here that of charge.py) and asks posd, too, for what a restored backup may have lost.
GRACE_SECONDS (30): for how long a call of the till that died may still be on its way.
Exit code: 0 all is settled, 4 a person has to look.
"""

import os
import sys
from pathlib import Path

from posd.client import Approved, Paid, Payment, PaymentStore, Posd, PosdError

GRACE_SECONDS = float(os.environ.get("GRACE_SECONDS", "30"))
store = PaymentStore(Path(os.environ.get("TILL_DIR", ".")) / "open-payments")
unsettled = 0
said = ""


def say(text: str) -> None:
    """Say it once, however often it is true."""
    global said
    if text != said:
        print(text, flush=True)
    said = text


def settle(payment: Payment) -> tuple[str, bool, bool]:
    """Return how it ended, whether that is sure, and whether a person has to look. It only asks, and starts nothing."""
    if not payment.is_known(within=GRACE_SECONDS):  # to start it now would charge a customer who has left
        return "NOT PAID: it was never started", True, False
    outcome = payment.outcome(timeout=60)
    if isinstance(outcome, Approved) and outcome.effect is Paid.PAID:
        paid, amount = outcome.authorized_amount, outcome.amount["subtotal_iva0"]
        if paid is not None and paid - (outcome.document.get("tip") or 0) != amount:  # a gift card had less on it
            return f"PAID {paid} of {amount}", True, True
        return "PAID", True, False
    if outcome.next_step == "new_id_ok":
        return f"NOT PAID: {outcome.result}", True, False
    return f"CALL THE SUPERVISOR: it is not certain how payment {outcome.id} ended", False, True


with Posd(patience=3600, on_away=lambda _: say("posd is not there yet")) as posd:
    for stored in store.open_payments():
        name = stored.request.get("amount", {}).get("subtotal_iva0", stored.id)  # by its id, if the file is damaged
        say(f"{name}: checking")
        try:
            words, sure, look = settle(posd.transaction(stored))
        except PosdError as error:
            words, sure, look = f"CALL THE SUPERVISOR: {error}", False, True
        say(f"{name}: {words}")
        if sure:
            store.remove(stored.id)  # a till books the result before
        unsettled += look

    stays_open = {stored.id for stored in store.open_payments()}
    for state in posd.transactions(open=True):
        if state.id not in stays_open:
            unsettled += 1
            print(f"payment {state.id} is open, and this till does not have it as open: is it another till's?")
sys.exit(4 if unsettled else 0)
