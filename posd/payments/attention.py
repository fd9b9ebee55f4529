"""Raising and closing attentions: conditions that a person should look at; they never change an outcome."""

from datetime import datetime

import msgspec

from posd.base.times import iso
from posd.payments.model import Attention, AttentionCode, Transaction


def attend(transaction: Transaction, code: AttentionCode, now: datetime, detail: str) -> Transaction:
    """Raise an attention; one that is open keeps its beginning and takes the newer detail."""
    old = transaction.attention_of(code)
    item = Attention(code=code, since=old.since if old else iso(now), detail=detail)
    others = tuple(other for other in transaction.attention if other.code is not code)
    return msgspec.structs.replace(transaction, attention=(*others, item))


def clear(transaction: Transaction, *codes: AttentionCode) -> Transaction:
    """Close attentions, open or not."""
    if not transaction.attention:
        return transaction
    kept = tuple(item for item in transaction.attention if item.code not in codes)
    return msgspec.structs.replace(transaction, attention=kept)
