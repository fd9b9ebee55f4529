"""What a shift counts: each payment once, and what was counted differently before as a correction.

No clock decides it. A payment counts in the shift in which it was first seen decided. What a closed shift has counted
of a payment is kept with that shift, so that any later change of the payment is a difference to it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from posd.base.money import ZERO
from posd.cli.report.closed import Closed, Counted, Line
from posd.cli.report.facts import Facts, add, read
from posd.cli.report.standing import CORRECTION, Basis, Correction, Payment, Section


def account(payments: Iterable[Payment], known: Mapping[str, Counted]) -> tuple[list[Payment], list[Line]]:
    """Return the rows of a shift, and what it counts of each payment; `known` is what earlier ones have counted."""
    rows: list[Payment] = []
    lines: list[Line] = []
    for payment in payments:
        identity = payment.facts.id
        now = None if payment.facts.result is None else payment.counted or ZERO
        before = known.get(identity)
        if before is None or before.amount is None:
            rows.append(replace(payment, open_at=before.shift if before else None))
            lines.append(Line(identity, now))
        elif now != before.amount:
            line = Line(identity, now, before.amount, before.shift)
            rows += correct(payment, line)
            lines.append(line)
    return rows, lines


def correct(payment: Payment, line: Line) -> list[Payment]:
    """Return the row of a correction, and one more where the payment is open again."""
    difference = add(line.counted or ZERO, -(line.was or ZERO))
    correction = replace(
        payment,
        section=Section.COUNTED,
        kind=CORRECTION,
        amount=difference,
        parts={},
        in_question=payment.in_question and line.counted is not None,
        differs=False,
        became=None,
        correction=Correction(line.shift or 0, line.was or ZERO, line.counted),
    )
    return [correction] if line.counted is not None else [correction, payment]


def printed_again(payment: Payment, line: Line) -> list[Payment]:
    """Return the rows of a payment as a closed shift has counted it, whatever has become of it since."""
    if line.was is not None:
        return correct(_open(payment) if line.counted is None else payment, line)
    if line.counted is None:
        return [_open(payment)]
    if line.counted == (payment.counted or ZERO) and payment.facts.result is not None:
        return [payment]
    section = Section.COUNTED if line.counted else Section.NOT_CHARGED
    amount = line.counted or payment.amount
    changed = payment.facts.result is not None or payment.section is not Section.OPEN
    return [replace(payment, section=section, amount=amount, parts={}, in_question=False, changed_since=changed)]


def _open(payment: Payment) -> Payment:
    if payment.facts.result is None:
        return payment
    facts = replace(payment.facts, result=None, state="open at the close", attention=(), by_person=False, corrects=None)
    return replace(payment, facts=facts, section=Section.OPEN, in_question=True, differs=False, became=None)


#: `at_by` of a payment whose record was removed: it stands at the time of the close.
REMOVED = "shift"


def removed(line: Line, shift: Closed, left: Mapping[str, Any]) -> Payment:
    """Return the row of a payment whose record was removed; `left` is what the local API still says of it."""
    facts: Facts = read(
        {
            "client_transaction_id": line.id,
            "terminal": left.get("terminal") or "removed",
            "type": left.get("transaction_type"),
            "created_at": shift.closed_at.isoformat(),
            "phase": "final",
            "status": None,
            "outcome": None,
            "amount": {},
            "metadata": {},
            "original": None,
            "derived": (),
            "sale": None,
            "next_step": "done",
            "abortable": False,
            "attention": (),
        }
    )
    result = left.get("result") or "removed"
    return Payment(
        facts=replace(facts, result=result, state=result, at_by=REMOVED),
        section=Section.COUNTED if line.counted else Section.NOT_CHARGED,
        kind=facts.type or "unknown",
        amount=line.counted or None,
        basis=Basis.UNKNOWN,
        parts={},
        brand=None,
        in_question=False,
        differs=False,
    )
