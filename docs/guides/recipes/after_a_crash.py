#!/usr/bin/env python3
"""after_a_crash.py: settle every payment that the till left open, before its first sale.

It reads the payments that the till has stored (here, those of charge.py). It also asks posd for open payments that a
restored backup of the till may have lost.
GRACE_SECONDS (30): time in which the last call before the crash may still reach posd.
Exit codes: 0 all payments are settled; 4 an operator has to check one.
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
    """Print a text, unless it was the last printed one."""
    global said
    if text != said:
        print(text, flush=True)
    said = text


def settle(payment: Payment) -> tuple[str, bool, bool]:
    """Return the result, whether it is certain, and whether an operator has to check. Start nothing."""
    if not payment.is_known(within=GRACE_SECONDS):  # a start now would charge a customer who has left
        return "NOT PAID: it was never started", True, False
    outcome = payment.outcome(timeout=60)
    if isinstance(outcome, Approved) and outcome.effect is Paid.PAID:
        paid, amount = outcome.authorized_amount, outcome.amount["subtotal_iva0"]
        if paid is not None and paid - (outcome.document.get("tip") or 0) != amount:  # a gift card had less money
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
            store.remove(stored.id)  # a till books the result first
        unsettled += look

    stays_open = {stored.id for stored in store.open_payments()}
    for state in posd.transactions(open=True):
        if state.id not in stays_open:
            unsettled += 1
            print(f"payment {state.id} is open, and this till does not have it as open: is it another till's?")
sys.exit(4 if unsettled else 0)
