#!/usr/bin/env python3
"""charge.py AMOUNT: charge a card and wait for the outcome. charge.py: finish the payment that a crash left open.

It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
"""

import os
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import assert_never

from posd.client import (
    Approved,
    Canceled,
    Declined,
    IdMayBeUsed,
    NotStarted,
    Outcome,
    OutcomeUnknown,
    Paid,
    Payment,
    PaymentStore,
    Posd,
    Problem,
    Rejected,
    State,
    UnknownResult,
    Unreachable,
)

PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT = 0, 2, 3, 4, 5, 6


def main() -> int:
    # Each payment is on disk before the call, so that the same call can be repeated after any failure.
    store = PaymentStore(Path(os.environ.get("TILL_DIR", ".")) / "open-payments")
    left_open = store.open_payments()
    wanted = sys.argv[1] if len(sys.argv) == 2 else None
    with Posd(store=store.save, on_away=lambda _: show("One moment, please. Nothing is lost.")) as posd:
        if left_open:
            identity, amount = left_open[0].id, str(left_open[0].request["amount"]["subtotal_iva0"])
            print(f"First, the payment of {amount} that was left open:")
            code = settle(lambda: posd.start(left_open[0]), amount)
        elif wanted:
            identity, amount = str(uuid.uuid4()), wanted
            code = settle(lambda: posd.charge(identity, amount), amount)
        else:
            print("usage: charge.py AMOUNT", file=sys.stderr)
            return USAGE
        if code == SUPERVISOR:
            return code  # it stays open: never charge under another id before the outcome of this one is known
        store.remove(identity)  # a till books the result before
    if left_open and wanted:
        print(f"{wanted} WAS NOT CHARGED: it was the turn of the payment that was left open")
        return ANOTHER_WAS_OPEN
    return code


def settle(start: Callable[[], Payment], amount: str) -> int:
    """Start it, or hear that it is known, and wait for its end; return the exit code."""
    try:
        payment = start()
    except (IdMayBeUsed, Unreachable) as error:  # an earlier call may have started it: a person looks
        return call_supervisor(error)
    except (Problem, ValueError) as refusal:  # nothing was sent, nothing is recorded
        print(f"NOT PAID: {refusal}")
        return NOT_PAID
    try:
        outcome = wait(payment)
        if outcome.paid is Paid.UNCLEAR:  # not certain, although there is a result
            return call_supervisor("; ".join(item.detail for item in payment.state().attention))
    except (OutcomeUnknown, Problem, UnknownResult, Unreachable) as error:  # of a payment that was started
        return call_supervisor(error)
    return tell(outcome, amount)


def wait(payment: Payment) -> Outcome:
    """Wait for the outcome, over restarts of posd, and show the cashier how it stands."""
    for news in payment.watch():
        if isinstance(news, State) and news.phase != "final":
            show(news.display.text)
    return payment.outcome()


def tell(outcome: Outcome, amount: str) -> int:
    """Say how it ended; return the exit code."""
    match outcome:
        case Approved(ticket_number=ticket, authorized_amount=authorized):
            if authorized not in (None, Decimal(amount)):  # a gift card had less on it
                print(f"PAID {authorized} of {amount}, ticket {ticket}")
                return PAID_ANOTHER_AMOUNT
            print(f"PAID {amount}, ticket {ticket}")
            return PAID
        case Declined() | Rejected() | Canceled() | NotStarted():
            reason = outcome.failure_reason.message if outcome.failure_reason else None
            print(f"NOT PAID: {outcome.result} {reason or ''}".rstrip())
            return NOT_PAID
        case _:
            assert_never(outcome)  # a type checker says here what was forgotten


def call_supervisor(why: object) -> int:
    print(f"CALL THE SUPERVISOR: {why}")
    return SUPERVISOR


shown = ""


def show(text: str) -> None:
    global shown
    if text != shown:
        print(text, flush=True)
    shown = text


if __name__ == "__main__":
    sys.exit(main())
