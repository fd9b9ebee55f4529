#!/usr/bin/env python3
"""live_status.py PAYMENT_ID: what the cashier sees while the customer pays, in English and Spanish, as it happens.

It starts nothing: charge.py does that. Exit code: 0 paid (it shows how much), 3 not paid, 4 a person has to look.
"""

import sys
from typing import assert_never

from posd.client import (
    Approved,
    Canceled,
    Change,
    Declined,
    NotStarted,
    Outcome,
    OutcomeUnknown,
    Paid,
    Payment,
    Posd,
    Problem,
    Rejected,
    UnknownResult,
    Unreachable,
)

STEPS = {
    "TERMINAL_ACKNOWLEDGED": ("Present the card", "Acerque o inserte la tarjeta"),
    "CARD_PRESENTED": ("Card read: follow the terminal", "Tarjeta leída: siga el terminal"),
    "APPROVAL_REQUESTED": ("Asking the bank", "Consultando al banco"),
}
DOUBT = ("Checking the payment. Do not charge again", "Verificando el pago. No cobre otra vez")
SUPERVISOR = ("CALL THE SUPERVISOR", "LLAME AL SUPERVISOR")
AWAY = ("One moment, please", "Un momento, por favor")


def show(words: tuple[str, str]) -> None:
    print(" / ".join(words), flush=True)


def follow(payment: Payment) -> int:
    """Show each step, and the end; return the exit code."""
    if payment.state().phase == "in_doubt":
        show(DOUBT)
    for news in payment.watch():  # over restarts of posd, nothing twice; the outcome comes last
        if not isinstance(news, Change):
            return tell(news)
        if news.verdict == "applied" and news.status in STEPS:
            show(STEPS[news.status])
    raise AssertionError("watch() ends with the outcome")


def tell(outcome: Outcome) -> int:
    if outcome.paid is Paid.UNCLEAR:
        show(SUPERVISOR)
        return 4
    match outcome:
        case Approved(authorized_amount=amount):  # not always what was asked for: a gift card has less on it
            show((f"PAID {amount or ''}".rstrip(), f"PAGADO {amount or ''}".rstrip()))
        case Declined():
            show(("NOT PAID: the bank declined", "NO PAGADO: el banco rechazó"))
        case Rejected():
            show(("NOT PAID: the terminal gave up", "NO PAGADO: el terminal no terminó el cobro"))
        case Canceled():
            show(("NOT PAID: canceled", "NO PAGADO: cancelado"))
        case NotStarted():
            show(("NOT PAID: nothing was started", "NO PAGADO: no se inició"))
        case _:
            assert_never(outcome)  # a type checker says here what was forgotten
    return 0 if outcome.paid is Paid.PAID else 3


with Posd(on_away=lambda _: show(AWAY)) as posd:
    try:
        code = follow(posd.transaction(sys.argv[1]))
    except (OutcomeUnknown, Problem, UnknownResult, Unreachable):  # none of them says how it ended
        show(SUPERVISOR)
        code = 4
sys.exit(code)
