#!/usr/bin/env python3
"""split_payment.py SALE AMOUNT AMOUNT...: several cards pay one sale, one after the other.

Run it again with the same words: what is paid stays paid, what was left open is finished, and what was declined is
tried with another card. Exit code: 0 all is paid, 1 something is left to pay, 4 a person has to look.
"""

import os
import sqlite3
import sys
import uuid
from decimal import Decimal
from pathlib import Path

from posd.client import IdReused, NotFound, OutcomeUnknown, Posd, Problem, Pruned, UnknownResult, Unreachable

#: Something may have happened under this id: a person looks, and nothing is charged again before that.
UNCLEAR = (IdReused, NotFound, OutcomeUnknown, Pruned, UnknownResult, Unreachable)

sale, *amounts = sys.argv[1:]
till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("CREATE TABLE IF NOT EXISTS parts (id TEXT PRIMARY KEY, sale TEXT, part INTEGER, result TEXT)")


def id_of(part: int) -> str:
    """Return the id of the part's payment that is open or paid; else store a new one."""
    query = "SELECT id FROM parts WHERE sale = ? AND part = ? AND (result IS NULL OR result = 'approved')"
    row = till.execute(query, (sale, part)).fetchone()
    identity = row[0] if row else str(uuid.uuid4())
    with till:
        till.execute("INSERT OR IGNORE INTO parts VALUES (?, ?, ?, NULL)", (identity, sale, part))
    return identity


left = sum(map(Decimal, amounts))  # exact: never a binary float
with Posd() as posd:
    for part, amount in enumerate(amounts, 1):
        identity = id_of(part)
        try:
            # Without `repeat` posd refuses a second payment of a sale: only a part that is meant to be one says it.
            outcome = posd.charge(identity, amount, sale=sale, repeat=part > 1).outcome()
        except UNCLEAR as error:
            print(f"CALL THE SUPERVISOR: {error}")
            sys.exit(4)
        except Problem as refusal:  # nothing was sent; a sale that was paid as a whole ends here, too
            with till:
                till.execute("DELETE FROM parts WHERE id = ?", (identity,))
            print(f"part {part}, {amount}: NOT PAID: {refusal}")
            break
        if outcome.charged is None:
            print(f"part {part}, {amount}: CALL THE SUPERVISOR")
            sys.exit(4)
        with till:
            till.execute("UPDATE parts SET result = ? WHERE id = ?", (outcome.result, identity))
        if not outcome.charged:
            print(f"part {part}, {amount}: NOT PAID: {outcome.result}")
            break  # the next card is asked for only when it is clear what this one did
        left -= Decimal(amount)
        print(f"part {part}, {amount}: PAID, {left} left", flush=True)
sys.exit(1 if left else 0)
