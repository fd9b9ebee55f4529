#!/usr/bin/env python3
"""print_receipt.py PAYMENT_ID: print the receipt of a payment on its terminal; a second run prints another copy.

Exit codes: 0 printed; 3 not printed; 4 a person has to check the printer, or an unclear payment.
"""

import os
import sqlite3
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from posd.client import Approved, Paid, Posd, PosdError

WIDTH = 32
till = sqlite3.connect(Path(os.environ.get("TILL_DIR", ".")) / "till.db")
till.execute("PRAGMA synchronous = EXTRA")  # a commit survives a power cut
till.execute("CREATE TABLE IF NOT EXISTS prints (id TEXT PRIMARY KEY, payment TEXT NOT NULL, done INTEGER)")


def line(name: str, value: object) -> str:
    return f"{name}{value!s:>{WIDTH - len(name)}}"


def total(parts: Mapping[str, Any]) -> Decimal:
    return sum((total(part) if isinstance(part, Mapping) else Decimal(part) for part in parts.values()), Decimal())


def job_of(payment: str) -> tuple[str, str | None]:
    """Return the id of the copy to print (an open one, else the next) and the id of the previous copy."""
    rows = till.execute("SELECT id, done FROM prints WHERE payment = ? ORDER BY rowid", (payment,)).fetchall()
    if rows and not rows[-1][1]:
        rows, job = rows[:-1], rows[-1][0]
    else:
        job = f"receipt-{payment}-{len(rows) + 1}"
        with till:
            till.execute("INSERT INTO prints VALUES (?, ?, 0)", (job, payment))  # stored before the call
    return job, rows[-1][0] if rows else None


with Posd() as posd:
    paid = posd.transaction(sys.argv[1]).state()
    outcome = paid.outcome
    if outcome is not None and outcome.effect is Paid.UNCLEAR:
        print("CALL THE SUPERVISOR:", "; ".join(item.detail for item in paid.attention))
        sys.exit(4)
    if not isinstance(outcome, Approved):
        print("There is no receipt: it is not paid")
        sys.exit(3)
    amount = outcome.authorized_amount  # exact; may differ from the requested amount; None if the terminal names none
    card = outcome.receipt
    text = "\n".join(
        [
            "YOUR SHOP".center(WIDTH).rstrip(),
            line("TOTAL", total(paid.amount) if amount is None else amount),
            line("card", card.franchise if card else ""),
            line("authorization", card.authorization_code if card else ""),
            line("ticket", outcome.ticket_number),
        ]
    )
    job, copy_of = job_of(paid.id)
    reference = outcome.ticket_number or ""
    try:
        printed = posd.print_job(
            job, {"text": text}, terminal=paid.terminal, external_reference=reference, reprint_of=copy_of
        ).outcome(timeout=120)
    except PosdError as error:
        if not error.never_started:
            print(f"Look at the printer, and run this again, it prints nothing twice: {error}")
            sys.exit(4)
        print(f"NOT PRINTED: {error}")
        with till:
            till.execute("DELETE FROM prints WHERE id = ?", (job,))
        sys.exit(3)
with till:
    till.execute("UPDATE prints SET done = 1 WHERE id = ?", (job,))
print("PRINTED" if printed.printed else f"NOT PRINTED: {printed.error_code or printed.reason}")
sys.exit(0 if printed.printed else 3)
