"""Rules for records that are kept longer: open records, attentions, chains and sales."""

from collections.abc import Iterable
from enum import StrEnum

from posd.payments.model import Transaction, may_be_paid
from posd.printing.model import PrintJob
from posd.records.model import Phase


class RetentionReason(StrEnum):
    """Reason why an old record is kept."""

    OPEN = "open"
    ATTENTION = "attention"
    RECENT = "recent"  # the record ended or changed after `before`, or may have
    CHAIN = "chain"  # a record that derives from the same original is kept
    SALE = "sale"  # the record shows its sale as paid, and a newer unpaid attempt of the sale is kept


def keeps(item: Transaction | PrintJob, before: str) -> RetentionReason | None:
    """Return why a record is kept by itself. Return None if it ended before `before` and has no attention."""
    if item.phase is not Phase.FINAL:
        return RetentionReason.OPEN
    if item.attention:
        return RetentionReason.ATTENTION
    return RetentionReason.RECENT if item.updated_at >= before else None


def keeps_together(items: Iterable[Transaction] | Iterable[PrintJob], before: str) -> RetentionReason | None:
    """Return why a whole chain is kept, or None."""
    reasons = [keeps(item, before) for item in items]
    found = {reason for reason in reasons if reason is not None}
    if not found:
        return None
    return found.pop() if len(reasons) == 1 else RetentionReason.CHAIN


def guards_sale(item: Transaction, others: Iterable[Transaction], before: str) -> bool:
    """Return whether other payments of the sale are kept, and only this payment shows that the sale is paid."""
    if item.sale is None or not may_be_paid(item):
        return False
    kept = [other for other in others if keeps(other, before) is not None]
    return bool(kept) and not any(may_be_paid(other) for other in kept)
