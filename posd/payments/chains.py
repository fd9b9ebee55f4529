"""Chains: what may be derived from what, under which reference, and what stands in the way of paying twice.

A chain begins with a charge or a pre-authorization. Its re-authorizations derive from the pre-authorization, each gives
a new reference, and the newest is the one that counts.

Source: terminal API, Events.
"""

from collections.abc import Sequence
from typing import assert_never

from posd.payments.model import OperationType, Result, Transaction, may_be_paid, undecided
from posd.payments.operations import OPERATIONS, Operation, Stands, Takes


class Misfit(ValueError):
    """Nothing can be derived so; the message says why and what to do."""


def misfit(kind: OperationType, original: Transaction, *, by_reference: bool = False) -> str | None:
    """Say why an operation of that type cannot be derived from this transaction, None where it can.

    By its reference a re-authorization stands for what it re-authorized, which may not be known here.
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


def reference(kind: OperationType, original: Transaction, members: Sequence[Transaction]) -> str:
    """Return the reference to send for an original that fits; `members` is all that derives from it, oldest first.

    Raise Misfit where the one that counts is not known.
    """
    source = original
    if OPERATIONS[kind].takes is Takes.NEWEST:
        approved = [item for item in members if item.type is OperationType.RE_AUTH and _approved(item)]
        source = approved[-1] if approved else original
    found = source.outcome.transaction_reference if source.outcome else None
    if found is None:
        raise Misfit(
            f"{source.client_transaction_id} was approved without a transaction_reference; if you have it from the "
            "receipt or the acquirer, give it as `transaction_reference` instead"
        )
    return found


def in_the_way(kind: OperationType, members: Sequence[Transaction]) -> list[Transaction]:
    """Return those, of all that derives from the same original, because of which another one may pay twice."""
    operation = OPERATIONS[kind]
    return [item for item in members if _stands(operation, kind, item)]


def _stands(operation: Operation, kind: OperationType, other: Transaction) -> bool:
    if other.type is OperationType.RE_AUTH and operation.takes is Takes.NEWEST:
        return undecided(other)  # which reference counts is not known before it has ended
    if other.type is not kind:
        return False
    match operation.another:
        case Stands.NEVER:
            return False
        case Stands.OPEN:
            return undecided(other)
        case Stands.OPEN_OR_APPROVED:
            return may_be_paid(other)
        case _:
            assert_never(operation.another)


def _approved(transaction: Transaction) -> bool:
    return transaction.outcome is not None and transaction.outcome.result is Result.APPROVED
