#!/usr/bin/env python3
"""two_tills.py PAYMENT_ID TILL AMOUNT: charge on a terminal that other tills use too: wait for one's turn.

PAYMENT_ID is a UUID that the till has stored with the sale; run again with it, this starts nothing twice.
Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look.
"""

import sys
import time
from decimal import Decimal

from posd.client import (
    Approved,
    IdMayBeUsed,
    OutcomeUnknown,
    Paid,
    Payment,
    Posd,
    Problem,
    StillOpen,
    TerminalBusy,
    UnknownResult,
    Unreachable,
)

#: Of the wait for a payment that was started: these say nothing of how it ended.
TROUBLE = (OutcomeUnknown, Problem, UnknownResult, Unreachable)


def charge_in_turn(posd: Posd, identity: str, till: str, amount: str) -> Payment:
    """Start it as soon as the terminal is free."""
    while True:
        try:
            return posd.charge(identity, amount, metadata={"till": till})
        except TerminalBusy as busy:  # nothing was sent: the same id is still unused
            other = posd.transaction(busy.extra["blocking_transaction"])
            try:
                print(f"The terminal is busy with {other.state().metadata.get('till', 'somebody')}", flush=True)
                other.outcome(timeout=10)
                time.sleep(0.1)  # it is freed a moment after its outcome
            except TROUBLE as error:
                print(f"The terminal is busy: {error}", flush=True)
                time.sleep(1)
            except StillOpen as still:
                if still.state and still.state.next_step == "ask_person":
                    print("CALL THE SUPERVISOR: nobody knows yet how the payment before this one ended", flush=True)


def main(identity: str, till: str, amount: str) -> int:
    with Posd() as posd:
        try:
            payment = charge_in_turn(posd, identity, till, amount)
        except (IdMayBeUsed, Unreachable) as error:  # an earlier call may have started it: a person looks
            print(f"CALL THE SUPERVISOR: {error}")
            return 4
        except (Problem, ValueError) as refusal:  # nothing was sent, nothing is recorded
            print(f"NOT PAID: {refusal}")
            return 3
        try:
            outcome = payment.outcome()
            if outcome.paid is Paid.UNCLEAR:  # not certain, although there is a result
                print("CALL THE SUPERVISOR:", "; ".join(item.detail for item in payment.state().attention))
                return 4
        except TROUBLE as error:
            print(f"CALL THE SUPERVISOR: {error}")
            return 4
    if not isinstance(outcome, Approved):
        print(f"NOT PAID: {outcome.result}")
        return 3
    if outcome.authorized_amount not in (None, Decimal(amount)):  # a gift card had less on it
        print(f"PAID {outcome.authorized_amount} of {amount}")
        return 6
    print(f"PAID {amount}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
