#!/usr/bin/env python3
"""two_tills.py PAYMENT_ID TILL AMOUNT: charge on a terminal that other tills use too; wait until it is free.

PAYMENT_ID is a new UUID that the till has stored with the sale; after_a_crash.py settles what a crash left open.
Exit codes: 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check.
"""

import sys
import time
from decimal import Decimal

from posd.client import Approved, Paid, Payment, Posd, PosdError, Problem, StillOpen


def charge_in_turn(posd: Posd, identity: str, till: str, amount: str) -> Payment[Paid]:
    """Start the payment as soon as the terminal is free."""
    while True:
        try:
            return posd.charge(identity, amount, metadata={"till": till})
        except Problem as problem:
            if problem.code != "terminal_busy":
                raise
            other = posd.transaction(problem.extra["blocking_transaction"])
        try:
            print(f"The terminal is busy with {other.state().metadata.get('till', 'another till')}", flush=True)
            other.outcome(timeout=10)
            time.sleep(0.1)  # it is freed a moment after its outcome
        except StillOpen as still:
            if still.state and still.state.next_step == "ask_person":
                print("CALL THE SUPERVISOR: the outcome of the payment before this one is not known", flush=True)
        except PosdError as error:
            print(f"The terminal is busy: {error}", flush=True)
            time.sleep(1)


def main(identity: str, till: str, amount: str) -> int:
    with Posd() as posd:
        try:
            outcome = charge_in_turn(posd, identity, till, amount).outcome()
        except PosdError as error:
            print(f"{'NOT PAID' if error.never_started else 'CALL THE SUPERVISOR'}: {error}")
            return 3 if error.never_started else 4
    if isinstance(outcome, Approved) and outcome.paid is Paid.PAID:
        paid, tip = outcome.authorized_amount, outcome.document.get("tip") or 0
        if paid is not None and paid - tip != Decimal(amount):  # a gift card had less money
            print(f"PAID {paid} of {amount}")
            return 6
        print(f"PAID {amount if paid is None else paid}")  # with the tip
        return 0
    if outcome.paid is Paid.NOT_PAID:
        print(f"NOT PAID: {outcome.result}")
        return 3
    print(f"CALL THE SUPERVISOR: it is not certain how payment {identity} ended")
    return 4


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
