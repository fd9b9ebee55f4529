#!/usr/bin/env python3
"""split_payment.py SALE TOTAL AMOUNT...: several cards pay one sale, one after the other.

Run it again with the same arguments: it keeps paid parts, settles open ones and retries declined ones with another
card. If a card paid less than its part, add an AMOUNT.
Exit codes: 0 all is paid; 3 nothing is paid; 6 a part is paid; 4 an operator has to check.
"""

import os
import sqlite3
import sys
import uuid
from decimal import Decimal
from pathlib import Path

from posd.client import Approved, Posd, PosdError

sale, total, *amounts = sys.argv[1:]
till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("PRAGMA synchronous = EXTRA")  # a commit survives a power cut
till.execute("CREATE TABLE IF NOT EXISTS parts (id TEXT PRIMARY KEY, sale TEXT, part INTEGER, result TEXT)")


def id_of(part: int) -> tuple[str, bool]:
    """Return the id of the part's open or paid payment, and True; if none exists, a new stored id, and False."""
    query = "SELECT id FROM parts WHERE sale = ? AND part = ? AND (result IS NULL OR result = 'approved')"
    row = till.execute(query, (sale, part)).fetchone()
    identity = row[0] if row else str(uuid.uuid4())
    with till:
        till.execute("INSERT OR IGNORE INTO parts VALUES (?, ?, ?, NULL)", (identity, sale, part))
    return identity, row is not None


left = Decimal(total)  # exact: never a binary float
with Posd() as posd:
    for part, amount in enumerate(amounts, 1):
        if Decimal(amount) > left:
            print(f"part {part}, {amount}: only {left} left")
            break
        identity, may_be_started = id_of(part)
        try:
            payment = posd.transaction(identity)
            if not may_be_started or not payment.is_known(within=0):
                # Without `additional` posd refuses a second payment of a sale.
                payment = posd.charge(identity, amount, sale=sale, additional=part > 1)
            outcome = payment.outcome()
        except PosdError as error:
            if not error.never_started:
                print(f"CALL THE SUPERVISOR: {error}")
                sys.exit(4)
            with till:
                till.execute("DELETE FROM parts WHERE id = ?", (identity,))
            print(f"part {part}, {amount}: NOT PAID: {error}")  # also a sale that was paid in full ends here
            break
        if outcome.next_step not in ("done", "new_id_ok"):
            print(f"CALL THE SUPERVISOR: it is not certain how payment {identity} ended")
            sys.exit(4)
        with till:
            till.execute("UPDATE parts SET result = ? WHERE id = ?", (outcome.result, identity))
        if not isinstance(outcome, Approved):
            print(f"part {part}, {amount}: NOT PAID: {outcome.result}")
            break  # the next card follows only after this result is certain
        paid = Decimal(amount) if outcome.authorized_amount is None else outcome.authorized_amount
        paid -= Decimal(outcome.document.get("tip") or 0)  # the tip of the terminal pays no part of the sale
        left -= paid
        instead = "" if paid == Decimal(amount) else f" {paid} INSTEAD"  # a gift card had less money
        print(f"part {part}, {amount}: PAID{instead}, {left} left", flush=True)
sys.exit(0 if not left else 3 if left == Decimal(total) else 6)
