#!/usr/bin/env python3
"""live_status.py PAYMENT_ID [LANGUAGE]: show the text for the cashier while the customer pays.

The text is posd's, in English (en) or Spanish (es). It starts nothing: charge.py does that. Exit codes: 0 paid (it
shows how much); 3 not paid; 4 an operator has to check.
"""

import sys

from posd.client import Posd, PosdError

language = sys.argv[2] if len(sys.argv) > 2 else "en"
SPANISH = language == "es"
AWAY = "Un momento, por favor" if SPANISH else "One moment, please"
SUPERVISOR = "LLAME AL SUPERVISOR. No cobre otra vez" if SPANISH else "CALL THE SUPERVISOR. Do not charge again"
CODES = {"done": 0, "new_id_ok": 3}


def show(text: str) -> None:
    print(text, flush=True)


with Posd(language=language, on_away=lambda _: show(AWAY)) as posd:
    try:
        # Each text once, also over restarts of posd. The last one is the result.
        code = CODES.get(posd.transaction(sys.argv[1]).outcome(show=show).next_step, 4)
    except PosdError:  # the text does not tell the result
        show(SUPERVISOR)
        code = 4
sys.exit(code)
