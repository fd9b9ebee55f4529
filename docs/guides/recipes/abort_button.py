#!/usr/bin/env python3
"""abort_button.py PAYMENT_ID AMOUNT: charge; the key Enter asks the terminal to abort.

An abort is a request. Only the outcome shows the result: the card may have been faster. PAYMENT_ID is a new UUID
that the till has stored with the sale. Exit codes: 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator
has to check.
"""

import asyncio
import sys
from decimal import Decimal

from posd.client import Approved, AsyncPayment, AsyncPosd, Paid, PosdError


async def abort_when_pressed(payment: AsyncPayment[Paid], pressed: asyncio.Event) -> None:
    while await pressed.wait():
        pressed.clear()
        try:
            await payment.abort()
            print("Canceling. Wait for the terminal", flush=True)
        except PosdError as error:  # too late, or posd is unreachable; the cashier may press the button again
            print(f"It cannot be canceled: {error}", flush=True)


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
            print("Present the card, or press Enter to cancel", flush=True)
            button = asyncio.create_task(abort_when_pressed(payment, pressed))
            outcome = await payment.outcome()
            button.cancel()
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
    sys.exit(asyncio.run(main(*sys.argv[1:])))
