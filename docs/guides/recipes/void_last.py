#!/usr/bin/env python3
"""void_last.py: void the last sale. After a crash, a second run finishes the same void.

Exit codes: 0 given back; 3 not given back; 4 an operator has to check.
"""

import os
import sqlite3
import sys
import uuid
from pathlib import Path

from posd.client import Approved, Posd, PosdError, Transaction

till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("PRAGMA synchronous = EXTRA")  # a commit survives a power cut
till.execute("CREATE TABLE IF NOT EXISTS voids (id TEXT PRIMARY KEY, original TEXT NOT NULL, result TEXT)")


def last_sale(posd: Posd) -> Transaction | None:
    """Return the newest approved charge. A shop with several tills filters by its metadata."""
    sales = (state for state in posd.transactions() if state.type == "charge")
    return next((state for state in sales if isinstance(state.outcome, Approved)), None)


def main() -> int:
    with Posd() as posd:
        row = till.execute("SELECT id, original FROM voids WHERE result IS NULL").fetchone()
        if row:
            identity, original = row
        elif sale := last_sale(posd):
            # Like a payment, a void has its own id, stored before the call.
            identity, original = str(uuid.uuid4()), sale.id
            with till:
                till.execute("INSERT INTO voids VALUES (?, ?, NULL)", (identity, original))
        else:
            print("There is no sale")
            return 3

        try:
            void = posd.transaction(identity)
            if not row or not void.is_known(within=0):
                void = posd.void(identity, original=original)
            outcome = void.outcome()
        except PosdError as error:
            if not error.never_started:
                print(f"CALL THE SUPERVISOR: {error}")
                return 4
            result, code = "refused", 3  # given back before, or that is under way
            print(f"NOT GIVEN BACK: {error}")
        else:
            if outcome.next_step not in ("done", "new_id_ok"):
                print(f"CALL THE SUPERVISOR: it is not certain how void {identity} ended")
                return 4
            result, code = outcome.result, 0 if isinstance(outcome, Approved) else 3
            if isinstance(outcome, Approved):
                # On the day of the sale the charge never appears on the customer's statement. Later it is a refund.
                print(f"GIVEN BACK {outcome.authorized_amount or ''}: {outcome.reversal}")
            else:
                print(f"NOT GIVEN BACK: {outcome.result}")
    with till:
        till.execute("UPDATE voids SET result = ? WHERE id = ?", (result, identity))
    return code


sys.exit(main())
