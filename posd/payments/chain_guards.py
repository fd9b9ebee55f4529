"""Placing what is to be started in its chain, inside the commit of its intent (the rules: `payments.chains`)."""

from contextlib import suppress
from datetime import tzinfo
from itertools import islice

import msgspec

from posd.base.problems import Problem
from posd.base.times import iso, parse_iso
from posd.payments import chain_rows, final_event, rows
from posd.payments import chains as rules
from posd.payments.events import NotAnEvent, read_event
from posd.payments.model import OperationType, Outcome, Transaction
from posd.payments.operations import OPERATIONS
from posd.payments.reversals import end_of_day
from posd.records import pruned
from posd.storage.batch import Unit

#: Transactions that an `already_derived` names.
MAX_SHOWN = 20


def place(unit: Unit, transaction: Transaction, zone: tzinfo) -> Transaction:
    """Return it with the reference to send and with what it derives from.

    Raise Problem unknown_original or already_derived: nothing is sent.
    """
    kind = transaction.type or OperationType.CHARGE
    if not OPERATIONS[kind].originals:
        return transaction
    placed = _under_original(unit, transaction, kind)
    if not transaction.repeat:
        _refuse_another(unit, placed, kind)
    if kind is not OperationType.VOID or placed.derives_from is None:
        return placed
    original = rows.get(unit.db, placed.derives_from)
    if original is None or original.outcome is None or original.type is OperationType.RE_AUTH:
        return placed  # a re-authorization is of another day than what it re-authorized
    return msgspec.structs.replace(placed, same_day_until=_same_day_until(unit, original, original.outcome, zone))


def _under_original(unit: Unit, transaction: Transaction, kind: OperationType) -> Transaction:
    if transaction.original is None:
        return _under_reference(unit, transaction, kind)
    original = rows.get(unit.db, transaction.original)
    if original is None:
        if (removed := pruned.payment(unit.db, transaction.original)) is not None:
            raise _unknown(
                kind,
                f"{transaction.original} ended {removed.result} on {removed.ended_on}, and its record was removed when "
                "the days passed for which records are kept; give its `transaction_reference` instead",
            )
        raise _unknown(
            kind, f"no transaction {transaction.original} is known here; check the id, or give `transaction_reference`"
        )
    if fault := rules.misfit(kind, original):
        raise _unknown(kind, fault + _named_instead(unit, kind, original))
    try:
        reference = rules.reference(kind, original, chain_rows.members(unit.db, original))
    except rules.Misfit as error:
        raise _unknown(kind, str(error)) from error
    return msgspec.structs.replace(
        transaction, transaction_reference=reference, derives_from=original.client_transaction_id
    )


def _named_instead(unit: Unit, kind: OperationType, original: Transaction) -> str:
    """Say what to name instead of a re-authorization: its pre-authorization."""
    fits = OperationType.PRE_AUTH in OPERATIONS[kind].originals
    if not fits or original.type is not OperationType.RE_AUTH or original.derives_from is None:
        return ""
    above = rows.get(unit.db, original.derives_from)
    known = above is not None and above.type is OperationType.PRE_AUTH
    return f"; name its pre-auth, {original.derives_from}" if known else ""


def _under_reference(unit: Unit, transaction: Transaction, kind: OperationType) -> Transaction:
    """The till names the reference itself: it is sent as it is; what it belongs to is found where it is known here."""
    original = chain_rows.with_reference(unit.db, transaction.transaction_reference or "")
    if original is None:
        return transaction
    if original.type is not None and (fault := rules.misfit(kind, original, by_reference=True)):
        raise _unknown(kind, fault)
    above = original.derives_from if original.type is OperationType.RE_AUTH else None
    return msgspec.structs.replace(transaction, derives_from=above or original.client_transaction_id)


def _refuse_another(unit: Unit, transaction: Transaction, kind: OperationType) -> None:
    original = rows.get(unit.db, transaction.derives_from) if transaction.derives_from else None
    blocking = rules.in_the_way(kind, chain_rows.members(unit.db, original, transaction.transaction_reference))
    if not blocking:
        return
    others = [item.client_transaction_id for item in islice(blocking, MAX_SHOWN)]
    words = ", ".join(f"{item.type} {item.client_transaction_id} ({_standing(item)})" for item in blocking[:MAX_SHOWN])
    raise Problem(
        "already_derived",
        f"cannot start: for the same original there is already {words}; look at it first. If this {kind} is meant "
        'beside it, say so with "repeat": true',
        transactions=others,
    )


def _standing(transaction: Transaction) -> str:
    return transaction.outcome.result if transaction.outcome else "open"


def _same_day_until(unit: Unit, original: Transaction, outcome: Outcome, zone: tzinfo) -> str:
    """Return when the day ends on which it was approved, by the terminal: it can have told posd much later."""
    body = final_event.final_event(unit.db, original)
    with suppress(NotAnEvent, ValueError, OverflowError):  # the latter: a day that no calendar has
        return iso(end_of_day(parse_iso(read_event(body or b"").occurred_at), zone))
    return iso(end_of_day(parse_iso(outcome.decided_at), zone))


def _unknown(kind: OperationType, reason: str) -> Problem:
    return Problem("unknown_original", f"cannot start: {reason}. No {kind} was sent")
