#!/usr/bin/env python3
"""abort_button.py PAYMENT_ID AMOUNT: a payment with a button: Enter asks the terminal to abort it.

An abort is a request. Only the outcome says what became of it: the card may have been faster. PAYMENT_ID is a UUID that
the till has stored with the sale. Exit code: 0 paid, 1 not paid, 4 a person has to look.
"""

import asyncio
import sys

from posd.client import (
    Approved,
    AsyncPayment,
    AsyncPosd,
    IdReused,
    NotFound,
    OutcomeUnknown,
    PastPointOfNoReturn,
    Problem,
    Pruned,
    UnknownResult,
    Unreachable,
)

#: Something may have happened under this id: a person looks, and nothing is charged again before that.
UNCLEAR = (IdReused, NotFound, OutcomeUnknown, Pruned, UnknownResult, Unreachable)


async def abort_when_pressed(payment: AsyncPayment, pressed: asyncio.Event) -> None:
    while await pressed.wait():
        pressed.clear()
        try:
            await payment.abort()
            print("Canceling. Wait for the terminal", flush=True)
        except PastPointOfNoReturn:
            print("Too late to cancel: the bank has been asked. Wait for its answer", flush=True)
        except Problem as problem:  # the terminal cannot be reached, runs nothing, or has ended it just now
            print(f"It cannot be canceled: {problem}", flush=True)


async def main(identity: str, amount: str) -> int:
    pressed, loop = asyncio.Event(), asyncio.get_running_loop()

    def key() -> None:
        if sys.stdin.readline():
            pressed.set()
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, key)
    async with AsyncPosd() as posd:
        try:
            payment = await posd.charge(identity, amount)
        except UNCLEAR as error:
            print(f"CALL THE SUPERVISOR: {error}")
            return 4
        except Problem as refusal:  # nothing was sent, nothing is recorded
            print(f"NOT PAID: {refusal}")
            return 1
        print("Present the card, or press Enter to cancel", flush=True)
        button = asyncio.create_task(abort_when_pressed(payment, pressed))
        outcome = await payment.outcome()
        button.cancel()
    if outcome.charged is None:
        print("CALL THE SUPERVISOR: the terminal has said two things about this payment")
        return 4
    print(f"PAID {amount}" if isinstance(outcome, Approved) else f"NOT PAID: {outcome.result}")
    return 0 if outcome.charged else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
