#!/usr/bin/env python3
"""live_status.py PAYMENT_ID: what the cashier sees while the customer pays, in English and Spanish, as it happens.

It starts nothing: charge.py does that. Exit code: 0 paid, 1 not paid, 4 a person has to look.
"""

import sys

from posd.client import Approved, Canceled, Change, Declined, NotStarted, Posd, Rejected

STEPS = {
    "TERMINAL_ACKNOWLEDGED": ("Present the card", "Acerque o inserte la tarjeta"),
    "CARD_PRESENTED": ("Card read: follow the terminal", "Tarjeta leída: siga el terminal"),
    "APPROVAL_REQUESTED": ("Asking the bank", "Consultando al banco"),
}
DOUBT = ("Checking the payment. Do not charge again", "Verificando el pago. No cobre otra vez")
AWAY = ("One moment, please", "Un momento, por favor")


def show(words: tuple[str, str]) -> None:
    print(" / ".join(words), flush=True)


with Posd(on_away=lambda _: show(AWAY)) as posd:
    payment = posd.transaction(sys.argv[1])
    if payment.state().phase == "in_doubt":
        show(DOUBT)
    for news in payment.watch():  # over restarts of posd, nothing twice; the outcome comes last
        match news:
            case Change(status=status, verdict="applied") if status in STEPS:
                show(STEPS[status])
            case Approved(next_step="done"):
                show(("PAID", "PAGADO"))
                sys.exit(0)
            case Declined(next_step="new_id_ok"):
                show(("NOT PAID: the bank declined", "NO PAGADO: el banco rechazó"))
                sys.exit(1)
            case Rejected(next_step="new_id_ok"):
                show(("NOT PAID: the terminal gave up", "NO PAGADO: el terminal no terminó el cobro"))
                sys.exit(1)
            case Canceled(next_step="new_id_ok"):
                show(("NOT PAID: canceled", "NO PAGADO: cancelado"))
                sys.exit(1)
            case NotStarted(next_step="new_id_ok"):
                show(("NOT PAID: nothing was started", "NO PAGADO: no se inició"))
                sys.exit(1)
show(("CALL THE SUPERVISOR", "LLAME AL SUPERVISOR"))
sys.exit(4)
