"""Placing what is to be started in its chain, inside the commit of its intent (core.chains has the rules)."""

from contextlib import suppress
from datetime import datetime, tzinfo
from itertools import islice

import msgspec

from posd.core import chains as rules
from posd.core.events import NotAnEvent, read_event
from posd.core.operations import OPERATIONS
from posd.core.problems import Problem
from posd.core.reversals import end_of_day
from posd.core.times import iso, parse_iso
from posd.core.transactions import OperationType, Outcome, Transaction
from posd.store import chains, finals, transactions
from posd.store.writer import Unit

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
    original = transactions.get(unit.db, placed.derives_from)
    if original is None or original.outcome is None:
        return placed
    until = end_of_day(_approved_at(unit, original, original.outcome), zone)
    return msgspec.structs.replace(placed, same_day_until=iso(until))


def _under_original(unit: Unit, transaction: Transaction, kind: OperationType) -> Transaction:
    if transaction.original is None:
        return _under_reference(unit, transaction, kind)
    original = transactions.get(unit.db, transaction.original)
    if original is None:
        raise _unknown(
            kind, f"no transaction {transaction.original} is known here; check the id, or give `transaction_reference`"
        )
    if fault := rules.misfit(kind, original):
        raise _unknown(kind, fault)
    try:
        reference = rules.reference(kind, original, chains.derived(unit.db, original.client_transaction_id))
    except rules.Misfit as error:
        raise _unknown(kind, str(error)) from error
    return msgspec.structs.replace(
        transaction, transaction_reference=reference, derives_from=original.client_transaction_id
    )


def _under_reference(unit: Unit, transaction: Transaction, kind: OperationType) -> Transaction:
    """The till names the reference itself: it is sent as it is; what it belongs to is found where it is known here."""
    original = chains.with_reference(unit.db, transaction.transaction_reference or "")
    if original is None:
        return transaction
    if original.type is OperationType.RE_AUTH and original.derives_from is not None:
        original = transactions.get(unit.db, original.derives_from) or original
    if original.type is not None and (fault := rules.misfit(kind, original)):
        raise _unknown(kind, fault)
    return msgspec.structs.replace(transaction, derives_from=original.client_transaction_id)


def _refuse_another(unit: Unit, transaction: Transaction, kind: OperationType) -> None:
    blocking = rules.in_the_way(kind, chains.siblings(unit.db, transaction))
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


def _approved_at(unit: Unit, original: Transaction, outcome: Outcome) -> datetime:
    """Return when the terminal says that it was approved; it can have told posd much later."""
    body = finals.final_event(unit.db, original)
    with suppress(NotAnEvent, ValueError):
        return parse_iso(read_event(body or b"").occurred_at)
    return parse_iso(outcome.decided_at)


def _unknown(kind: OperationType, reason: str) -> Problem:
    return Problem("unknown_original", f"cannot start: {reason}. No {kind} was sent")
