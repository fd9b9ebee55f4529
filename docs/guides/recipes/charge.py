#!/usr/bin/env python3
"""charge.py AMOUNT: charge a card and wait for the outcome. charge.py: settle the payment that a crash left open.

The program prints what the cashier should see. Exit codes:
0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
5 AMOUNT was not charged, because an open payment was settled or another charge runs;
2 wrong usage; 1 the program failed, and the payment may be open.
"""

import fcntl
import os
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from posd.client import Approved, Paid, Payment, PaymentStore, Posd, PosdError, StoredPayment

PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT = 0, 2, 3, 4, 5, 6


def main() -> int:
    # Each payment is on disk before the call.
    store = PaymentStore(Path(os.environ.get("TILL_DIR", ".")) / "open-payments")
    wanted = sys.argv[1] if len(sys.argv) == 2 else None
    lock = os.open(store.folder / "lock", os.O_CREAT | os.O_WRONLY)
    try:  # one run at a time; the lock is released when this program ends, also by a crash
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{wanted} WAS NOT CHARGED: another charge of this till is running")
        return ANOTHER_WAS_OPEN
    left_open = store.open_payments()
    with Posd(store=store.save, on_away=lambda _: show("One moment, please")) as posd:
        if left_open:
            identity, amount = left_open[0].id, str(left_open[0].request["amount"]["subtotal_iva0"])
            print(f"First, the payment of {amount} that was left open:")
            code = settle(lambda: resume(posd, left_open[0]), amount)
        elif wanted:
            identity, amount = str(uuid.uuid4()), wanted
            code = settle(lambda: posd.charge(identity, amount), amount)
        else:
            print("usage: charge.py AMOUNT", file=sys.stderr)
            return USAGE
    if code == SUPERVISOR:
        return code  # the payment stays open
    store.remove(identity)  # a till books the result first
    if left_open and wanted:
        print(f"{wanted} WAS NOT CHARGED: the payment that was left open was settled instead")
        return ANOTHER_WAS_OPEN
    return code


def resume(posd: Posd, left_open: StoredPayment) -> Payment:
    """Return a payment that may have been started. Start it only if posd says that it was never started."""
    payment = posd.transaction(left_open)
    return payment if payment.is_known(within=0) else posd.start(left_open)


def settle(start: Callable[[], Payment], amount: str) -> int:
    """Start the payment, wait for its outcome over restarts of posd, and print it. Return the exit code."""
    try:
        outcome = start().outcome(show=show)
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
    sys.exit(main())
