"""Rules of chains: which operation may derive from which, and guards against a double payment.

A chain begins with a charge or a pre-authorization. Re-authorizations derive from the pre-authorization. Each
re-authorization gets a new reference, and only the newest reference is valid. `posd.base.operations` has the types.

Source: terminal API, Events.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Literal

import msgspec

from posd.base.operations import OPERATIONS, OperationType
from posd.base.times import parse_iso
from posd.payments.model import Result, Transaction, approved, undecided


def misfit(kind: OperationType, original: Transaction, *, by_reference: bool = False) -> str | None:
    """Return why an operation of that type cannot derive from this transaction, or None.

    `by_reference`: the till named the original by its reference. This database may lack a pre-authorization. So a
    re-authorization that has the reference is accepted in its place.
    """
    outcome, name = original.outcome, original.client_transaction_id
    stands_for = OperationType.PRE_AUTH if by_reference and original.type is OperationType.RE_AUTH else original.type
    if stands_for not in OPERATIONS[kind].originals:
        fitting = " or ".join(sorted(OPERATIONS[kind].originals))
        return f"{name} is a {original.type or 'payment of unknown type'}; {kind} is for a {fitting}"
    if outcome is None:
        return f"{name} is not approved: it is still open; wait for its outcome"
    if outcome.result is not Result.APPROVED:
        return f"{name} is not approved: it ended as {outcome.result}"
    return None


def source_of(kind: OperationType, original: Transaction, members: Sequence[Transaction]) -> Transaction:
    """Return the payment whose reference is sent to the terminal: the original, or its newest re-authorization.

    `members`: all transactions that derive from the original, oldest first.
    """
    if not OPERATIONS[kind].takes_newest:
        return original
    again = [item for item in members if item.type is OperationType.RE_AUTH and approved(item)]
    return again[-1] if again else original


Clash = Literal["already_derived", "chain_conflict"]


class BlockingOperation(msgspec.Struct, frozen=True):
    """Reason to refuse an operation.

    `code`: the problem code. `others`: the blocking transactions. `by_repeat`: whether the till's `additional`
    overrides the refusal.
    """

    code: Clash
    others: Sequence[Transaction]
    by_repeat: bool = False


def in_the_way(
    kind: OperationType, members: Sequence[Transaction], chain: Sequence[Transaction], *, repeat: bool
) -> BlockingOperation | None:
    """Return what prevents an operation, or None.

    `members`: all transactions that derive from the same original. `chain`: the whole chain, oldest first. Open
    transactions are reported first, then those that block even with `additional`, then all others.
    """
    same = {item.client_transaction_id for item in members}
    still_open = [item for item in chain if _derives(item) and undecided(item)]
    alike = [item for item in still_open if item.type is kind and item.client_transaction_id in same]
    if still_open:
        return BlockingOperation("already_derived", alike) if alike else BlockingOperation("chain_conflict", still_open)
    row = OPERATIONS[kind]
    done = [item for item in members if approved(item)]
    ended = [item for item in done if item.type in row.ended_by]
    lifted = [item for item in done if item.type in row.repeats]
    if ended:
        again = all(item.type is kind for item in ended) and not repeat
        return BlockingOperation("already_derived" if again else "chain_conflict", ended)
    if lifted and not repeat:
        again = any(item.type is kind for item in lifted)
        return BlockingOperation("already_derived" if again else "chain_conflict", lifted, by_repeat=True)
    return None


def _derives(item: Transaction) -> bool:
    """Whether an operation derives from another. An operation of unknown type may do so, and counts as if it does."""
    return item.type is None or bool(OPERATIONS[item.type].originals)


# Kind of a void: a cancellation on the calendar day of its original, in the merchant's time zone, else a refund.
#
# Source: terminal API, Lifecycle.

Reversal = Literal["cancellation", "refund"]


def end_of_day(moment: datetime, zone: tzinfo) -> datetime:
    """Return the midnight, in UTC, that ends the calendar day of a moment in that zone.

    A day can have 23 or 25 hours (daylight saving). If a clock change skips midnight, return the first moment after
    midnight.
    """
    day = moment.astimezone(zone).date() + timedelta(days=1)
    return datetime.combine(day, time.min, zone).astimezone(UTC)


def reversal(same_day_until: str | None, occurred_at: str, received_at: datetime) -> Reversal | None:
    """Return whether an approved void is a cancellation or a refund, or None if the original's day is unknown.

    `occurred_at`: the terminal's time of the approval, in ISO 8601. If it cannot be parsed, `received_at` is used.
    """
    if same_day_until is None:
        return None
    try:
        at = parse_iso(occurred_at)
    except ValueError:
        at = received_at
    return "cancellation" if at < parse_iso(same_day_until) else "refund"
