"""Retention: what may be removed when its days have passed, and what is still said of it then (design 1 and 9).

Removed is what has ended and what nobody has to look at, with everything that came of it and for it. Its id stays, with
terminal, type, result and day, for as long as the database lives: it is never started again, and whoever asks for it
hears how it ended.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from posd.payments.model import RESULTS, Phase, Result, Transaction, may_be_paid
from posd.printing.model import PrintJob
from posd.records.problems import Problem

#: The code of the problem that a call with a removed id hears.
CODE = "pruned"


class Kept(StrEnum):
    """Why something old is kept."""

    OPEN = "open"
    ATTENTION = "attention"
    RECENT = "recent"  # it began before, and ended or changed since
    CHAIN = "chain"  # something that derives from the same original is kept
    SALE = "sale"  # it says that its sale is paid, where a newer attempt is kept that was not


class Pruned(msgspec.Struct, frozen=True):
    """What is left of a payment that was removed."""

    client_transaction_id: str
    terminal: str
    type: str | None
    result: str
    ended_on: str


class PrunedJob(msgspec.Struct, frozen=True):
    """What is left of a print job that was removed; `status` is None where it was not accepted."""

    print_job_id: str
    terminal: str | None
    status: str | None
    ended_on: str


def keeps(item: Transaction | PrintJob, before: str) -> Kept | None:
    """Say why something is kept by itself, None where it has ended before that moment and is looked at by nobody."""
    if item.phase is not Phase.FINAL:
        return Kept.OPEN
    if item.attention:
        return Kept.ATTENTION
    return Kept.RECENT if item.updated_at >= before else None


def keeps_together(items: Iterable[Transaction] | Iterable[PrintJob], before: str) -> Kept | None:
    """Say why a chain is kept: as a whole, or not at all."""
    reasons = [keeps(item, before) for item in items]
    found = {reason for reason in reasons if reason is not None}
    if not found:
        return None
    return found.pop() if len(reasons) == 1 else Kept.CHAIN


def guards_sale(item: Transaction, others: Iterable[Transaction], before: str) -> bool:
    """Whether a payment is the only one that says that its sale is paid, among those of the sale that are kept."""
    if item.sale is None or not may_be_paid(item):
        return False
    kept = [other for other in others if keeps(other, before) is not None]
    return bool(kept) and not any(may_be_paid(other) for other in kept)


def contradicts(pruned: Pruned, status: str) -> bool:
    """Whether an event says that a removed payment ended otherwise than it is known here."""
    stated = {str(final): result for final, result in RESULTS.items()}.get(status)
    return stated is not None and stated != pruned.result


def refusal(pruned: Pruned) -> Problem:
    """Return what a call about a removed payment hears; it must not be mistaken for "nothing was charged"."""
    kind = pruned.type or "payment"
    paid = pruned.result == Result.APPROVED
    advice = "The customer was charged then: do not charge again for it" if paid else "The customer was not charged"
    return Problem(
        CODE,
        f"{pruned.client_transaction_id} was used before: a {kind} on terminal {pruned.terminal or 'unknown'} that "
        f"ended {pruned.result} on {pruned.ended_on}. {advice}. Its record was removed when the days passed for which "
        "records are kept; this call did nothing. For a new payment choose a new id",
        result=pruned.result,
        terminal=pruned.terminal,
        transaction_type=pruned.type,
        ended_on=pruned.ended_on,
    )


def job_refusal(pruned: PrunedJob) -> Problem:
    """Return what a call about a removed print job hears."""
    return Problem(
        CODE,
        f"{pruned.print_job_id} was used before: a print job that ended {pruned.status or 'without being accepted'} on "
        f"{pruned.ended_on}. Its record was removed when the days passed for which records are kept; this call did "
        "nothing. For a new document choose a new id",
        print_status=pruned.status,
        terminal=pruned.terminal,
        ended_on=pruned.ended_on,
    )
