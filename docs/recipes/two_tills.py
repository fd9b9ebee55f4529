#!/usr/bin/env python3
"""two_tills.py PAYMENT_ID TILL AMOUNT: charge on a terminal that other tills use too: wait for one's turn.

PAYMENT_ID is a UUID that the till has stored with the sale; run again with it, this starts nothing twice.
Exit code: 0 paid, 1 not paid, 4 a person has to look.
"""

import sys
import time

from posd.client import (
    Approved,
    IdReused,
    NotFound,
    OutcomeUnknown,
    Payment,
    Posd,
    Problem,
    Pruned,
    StillOpen,
    TerminalBusy,
    UnknownResult,
    Unreachable,
)

#: Something may have happened under this id: a person looks, and nothing is charged again before that.
UNCLEAR = (IdReused, NotFound, OutcomeUnknown, Pruned, UnknownResult, Unreachable)


def charge_in_turn(posd: Posd, identity: str, till: str, amount: str) -> Payment:
    """Start it as soon as the terminal is free."""
    while True:
        try:
            return posd.charge(identity, amount, metadata={"till": till})
        except TerminalBusy as busy:  # nothing was sent: the same id is still unused
            other = posd.transaction(busy.extra["blocking_transaction"])
            print(f"The terminal is busy with {other.state().metadata.get('till', 'somebody')}", flush=True)
            try:
                other.outcome(timeout=10)
                time.sleep(0.1)  # it is freed a moment after its outcome
            except StillOpen as still:
                if still.state and still.state.next_step == "ask_person":
                    print("CALL THE SUPERVISOR: nobody knows yet how the payment before this one ended", flush=True)


def main(identity: str, till: str, amount: str) -> int:
    with Posd() as posd:
        try:
            outcome = charge_in_turn(posd, identity, till, amount).outcome()
        except UNCLEAR as error:
            print(f"CALL THE SUPERVISOR: {error}")
            return 4
        except Problem as refusal:  # nothing was sent, nothing is recorded
            print(f"NOT PAID: {refusal}")
            return 1
    if outcome.charged is None:
        print("CALL THE SUPERVISOR: the terminal has said two things about this payment")
        return 4
    print(f"PAID {amount}" if isinstance(outcome, Approved) else f"NOT PAID: {outcome.result}")
    return 0 if outcome.charged else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
