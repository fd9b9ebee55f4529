#!/usr/bin/env python3
"""live_status.py PAYMENT_ID [LANGUAGE]: what the cashier sees while the customer pays, as it happens.

The words are posd's, in English (en) or Spanish (es). It starts nothing: charge.py does that. Exit code: 0 paid (it
shows how much), 3 not paid, 4 a person has to look.
"""

import sys

from posd.client import OutcomeUnknown, Paid, Payment, Posd, Problem, State, UnknownResult, Unreachable

language = sys.argv[2] if len(sys.argv) > 2 else "en"
SPANISH = language == "es"
AWAY = "Un momento, por favor" if SPANISH else "One moment, please"
SUPERVISOR = "LLAME AL SUPERVISOR. No cobre otra vez" if SPANISH else "CALL THE SUPERVISOR. Do not charge again"
CODES = {Paid.PAID: 0, Paid.NOT_PAID: 3, Paid.UNCLEAR: 4}


def show(text: str) -> None:
    print(text, flush=True)


def follow(payment: Payment) -> int:
    """Show how it stands, each time that this changes, and the end; return the exit code."""
    for news in payment.watch():  # over restarts of posd, nothing twice; what the terminal says by itself is for a log
        if isinstance(news, State) and news.phase != "final":
            show(news.display.text)
    outcome = payment.outcome()
    if outcome.display is not None:
        show(outcome.display.text)
    return CODES[outcome.paid]


with Posd(language=language, on_away=lambda _: show(AWAY)) as posd:
    try:
        code = follow(posd.transaction(sys.argv[1]))
    except (OutcomeUnknown, Problem, UnknownResult, Unreachable):  # none of them says how it ended
        show(SUPERVISOR)
        code = 4
sys.exit(code)
