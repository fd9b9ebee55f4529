#!/usr/bin/env python3
"""end_of_day.py [YYYY-MM-DD]: what the day's payments came to, to the cent, and what keeps it from being closed.

`posd report` is the shop's own reckoning; this is for a till that books its day by itself. The two agree, but for
payments around midnight: this one goes by when the till asked. Exit code: 0 it can be closed, 4 a person has to look.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from posd.client import Approved, Posd, Problem, Transaction

CHARGES = ("charge", "capture", "post-tip")
ZONE = ZoneInfo(os.environ.get("MERCHANT_TIMEZONE", "America/Guayaquil"))
day = date.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else datetime.now(ZONE).date()
midnight = datetime.combine(day, time(), ZONE)


def amount(state: Transaction) -> Decimal:
    """Return what it moved: what the terminal authorized, else what was asked for."""
    if isinstance(state.outcome, Approved) and state.outcome.authorized_amount is not None:
        return state.outcome.authorized_amount
    return sum(numbers(state.amount), Decimal())


def numbers(parts: Mapping[str, object]) -> Iterator[Decimal]:
    for part in parts.values():
        if isinstance(part, Mapping):
            yield from numbers(part)  # extra_taxes
        elif isinstance(part, Decimal | int | str):
            yield Decimal(part)


def looked_up(posd: Posd, identity: str | None) -> Transaction | None:
    """Return a payment, None where posd does not have it: a void can name one by the terminal's reference."""
    try:
        return posd.transaction(identity).state() if identity else None
    except Problem:
        return None


totals: dict[str, Decimal] = {}
with Posd() as posd:
    # Of any day: what is still open, and what no person has looked at (an outcome may have been corrected later).
    unclear = {state.id: state for state in posd.transactions(open=True)}
    unclear |= {state.id: state for state in posd.transactions(attention=True)}
    for state in posd.transactions(since=midnight, until=midnight + timedelta(days=1), page_size=500):
        if not isinstance(state.outcome, Approved):
            continue
        if state.type in CHARGES:
            totals[state.type] = totals.get(state.type, Decimal()) + amount(state)
        elif state.type == "void":
            original = looked_up(posd, state.original)
            if original is None:
                unclear[state.id] = state
            elif original.type in CHARGES:  # else it gave up a reservation, which moved nothing
                totals["void"] = totals.get("void", Decimal()) - amount(original)

for name, total in sorted(totals.items()):
    print(f"{name:10} {total:>12}")
print(f"{'total':10} {sum(totals.values(), Decimal()):>12}")
for state in unclear.values():
    why = [item.detail for item in state.attention] or [state.phase if state.outcome is None else "of what?"]
    print(f"NOT CLEAR: {state.type} {state.id} ({amount(state)}): {'; '.join(why)}")
sys.exit(4 if unclear else 0)
