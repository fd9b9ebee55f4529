"""What is kept when its days have passed: what is open, what a person should look at, what a chain or a sale needs."""

from collections.abc import Iterable
from enum import StrEnum

from posd.payments.model import Transaction, may_be_paid
from posd.printing.model import PrintJob
from posd.records.model import Phase


class Kept(StrEnum):
    """Why something old is kept."""

    OPEN = "open"
    ATTENTION = "attention"
    RECENT = "recent"  # it began before, and ended or changed since
    CHAIN = "chain"  # something that derives from the same original is kept
    SALE = "sale"  # it says that its sale is paid, where a newer attempt is kept that was not


def keeps(item: Transaction | PrintJob, before: str) -> Kept | None:
    """Say why something is kept by itself, None where it has ended before that moment and has no attention."""
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
