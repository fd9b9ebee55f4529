"""Effect of an operation on money: the amount that it charges, returns, reserves or releases.

The limits of chains, all totals, the report, shifts and the feed use these rules. Head office has the same rules in SQL
(`posd/collect/tables`). The vectors in `tests/vectors/counting.json` test both.

- The sums of amounts are compared, not their members. Absolute values are compared, because some acquirers report a
  refund of 10 as 10, and others as -10.
- The amount that the terminal reports is counted and shown. It may differ from the requested amount. Then the limits
  use the smaller one for a charge or a reservation, and the larger one for a refund or a capture. So no reply of a
  terminal increases the amount that is still allowed.

Source: local API, Amounts, Chains.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

import msgspec

from posd.base.money import ZERO, total
from posd.base.operations import CAPTURE, POST_TIP, RE_AUTH, REFUND, RESERVING, REVERSING, VOID, OperationType
from posd.base.problems import Problem
from posd.config.schema import AmountsConfig
from posd.payments.model import Outcome, Result, Transaction, amount_and_tip, approved

#: Largest number of transactions that a Problem lists.
MAX_SHOWN = 20


class Of(StrEnum):
    """What an operation moves: money, or only a reservation of money."""

    PAYMENT = "payment"
    RESERVATION = "reservation"


class Basis(StrEnum):
    """Source of an amount."""

    AUTHORIZED = "authorized"  # the terminal reported it
    REQUESTED = "requested"  # the till requested it, and the terminal reported no amount
    ORIGINAL = "original"  # for a void or refund without an amount: the amount of its original
    NEW_TOTAL = "new_total"  # for a tip: the terminal reported the new total, so the requested tip counts
    UNKNOWN = "unknown"


class Section(StrEnum):
    """Section of the report to which an operation belongs. Only `counted` is in totals."""

    COUNTED = "counted"  # approved charges, captures and tips; approved voids and refunds of them, negative
    RESERVED = "reserved"  # approved pre-authorizations, re-authorizations, and voids of them
    NOT_CHARGED = "not_charged"  # declined, rejected, canceled, not started
    UNCLEAR = "unclear"  # approved, but with an unknown type or amount
    OPEN = "open"  # no outcome yet


class CountedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that decide the effect of an operation. `requested`: sum of the till's amount with its tip, or 0.

    `added_tip`: the tip that the cardholder added at the terminal.
    """

    type: OperationType | None
    result: Result | None
    requested: Decimal = ZERO
    requested_tip: Decimal = ZERO
    authorized: Decimal | None = None
    added_tip: Decimal | None = None
    reversal: str | None = None


class Original(msgspec.Struct, frozen=True):
    """Original of an operation.

    `came_to`: the amount that it moved; None if it is not approved, or the amount is unknown. `tips`: sum of the
    counted tips that were approved before the operation.
    """

    type: OperationType | None
    came_to: Decimal | None
    tips: Decimal = ZERO


class Effect(msgspec.Struct, frozen=True):
    """Effect of an operation. For an open operation, the effect that an approval would have.

    `kind`: the operation type, or `unknown`. The kind of a void is `cancellation`, `refund`, `void` (if it may be
    either), `release` (of a reservation), or `void of unknown` (if the original is unknown). `of`: None if unknown.
    `amount`: negative for a reversal or a release, None if unknown.
    """

    kind: str
    of: Of | None
    amount: Decimal | None
    basis: Basis
    section: Section

    @property
    def counted(self) -> Decimal | None:
        """Amount in totals, or None if the operation is not in totals."""
        return self.amount if self.section is Section.COUNTED else None


def operation_of(transaction: Transaction) -> CountedOperation:
    """Return the facts of a transaction that decide its effect."""
    return facts_of(transaction.type, transaction.amount, transaction.outcome)


def facts_of(kind: OperationType | None, amount: bytes, outcome: Outcome | None) -> CountedOperation:
    """Return the facts of a transaction, from its type, its stored amount and its outcome."""
    requested, tip = amount_and_tip(amount)
    return CountedOperation(
        type=kind,
        result=outcome.result if outcome else None,
        requested=requested,
        requested_tip=tip,
        authorized=outcome.authorized_amount if outcome else None,
        added_tip=outcome.tip if outcome else None,
        reversal=outcome.reversal if outcome else None,
    )


def effect(operation: CountedOperation, original: Original | None) -> Effect:
    """Return the effect of an operation. `original`: None if there is none, or it is unknown."""
    kind, of = _kind(operation, original), _of(operation, original)
    amount, basis = _amount(operation, original)
    return Effect(kind, of, amount, basis, _section(operation, of, amount))


def _kind(operation: CountedOperation, original: Original | None) -> str:
    if operation.type is not VOID:
        return operation.type or "unknown"
    of = _of(operation, original)
    if of is None:
        return "void of unknown"
    return "release" if of is Of.RESERVATION else operation.reversal or "void"


def _of(operation: CountedOperation, original: Original | None) -> Of | None:
    named = operation.type
    if named is VOID:
        named = original.type if original else None
    if named is None:
        return None
    return Of.RESERVATION if named in RESERVING else Of.PAYMENT


def _section(operation: CountedOperation, of: Of | None, amount: Decimal | None) -> Section:
    if operation.result is None:
        return Section.OPEN
    if operation.result is not Result.APPROVED:
        return Section.NOT_CHARGED
    if amount is None or of is None:
        return Section.UNCLEAR
    return Section.RESERVED if of is Of.RESERVATION else Section.COUNTED


def _amount(operation: CountedOperation, original: Original | None) -> tuple[Decimal | None, Basis]:
    asked, said = operation.requested, operation.authorized
    came_to = original.came_to if original else None
    if operation.type in REVERSING:
        if said:
            return -abs(said), Basis.AUTHORIZED
        if asked:
            return -asked, Basis.REQUESTED
        if original is None or came_to is None:
            return None, Basis.UNKNOWN
        return -total((came_to, original.tips)), Basis.ORIGINAL
    if said is None:
        return (asked, Basis.REQUESTED) if asked else (None, Basis.UNKNOWN)
    if operation.type is POST_TIP and asked and original is not None and came_to:
        with_tip = total((came_to, asked))
        if said in (with_tip, total((with_tip, original.tips))):
            return asked, Basis.NEW_TOTAL
    return (said, Basis.AUTHORIZED) if said >= ZERO else (None, Basis.UNKNOWN)


def original_of(original: Transaction, members: Iterable[Transaction]) -> Original:
    """Return the facts of an original. `members`: transactions that derived from it before the operation."""
    found = by_type(members)
    standing = reserving(original, found) if original.type in RESERVING else original
    took = approved(standing) and original.type not in REVERSING  # the effect of reversing a reversal is unknown
    facts = Original(original.type, effect(operation_of(standing), None).amount if took else None)
    for tip in found[POST_TIP]:
        moved = effect(operation_of(tip), facts).counted or ZERO
        facts = Original(facts.type, facts.came_to, total((facts.tips, moved)))
    return facts


#: The approved operations of a chain by type, oldest first.
Approved = Mapping[OperationType | None, Sequence[Transaction]]


def by_type(members: Iterable[Transaction]) -> Approved:
    """Return the approved operations by type."""
    found: dict[OperationType | None, list[Transaction]] = {kind: [] for kind in (*OperationType, None)}
    for item in members:
        if approved(item):
            found[item.type].append(item)
    return found


def reserving(original: Transaction, done: Approved) -> Transaction:
    """Return the operation that sets the reserved amount: the newest approved re-authorization, else the original."""
    return (done[RE_AUTH] or [original])[-1]


# Limits: a capture, a void or a refund must not exceed the amount of its original.


def charged(item: Transaction) -> Decimal | None:
    """Return the smallest amount that an approved charge, capture or reservation can have moved, or None if unknown."""
    facts = operation_of(item)
    asked, said = facts.requested, facts.authorized
    if said is None:
        return asked or None
    if not asked:
        return max(said, ZERO)
    most = asked if facts.type in RESERVING else total((asked, facts.added_tip or ZERO))
    return min(abs(said), asked if said < ZERO else most)


def captured(item: Transaction) -> Decimal:
    """Return the largest part of the reservation that an approved capture can have used, without its tips."""
    facts = operation_of(item)
    said = total((abs(facts.authorized or ZERO), -(facts.added_tip or ZERO)))
    return max(total((max(facts.requested, said), -facts.requested_tip)), ZERO)


def tipped(item: Transaction) -> Decimal:
    """Return the smallest amount that an approved tip can have added to the charge."""
    said = operation_of(item).authorized
    return item.total if said is None else min(item.total, abs(said))


def given_back(item: Transaction, whole: Decimal) -> Decimal:
    """Return the largest amount that an approved refund can have given back.

    `whole`: the amount that counts for a refund without an amount.
    """
    return max(item.total or whole, abs(operation_of(item).authorized or ZERO))


def excess(
    asked_for: Transaction, original: Transaction, members: Sequence[Transaction], rules: AmountsConfig
) -> Problem | None:
    """Return the problem of an operation that requests more than its approved original allows, or None.

    `members`: all transactions that derive from the original, oldest first.
    """
    match asked_for.type:
        case OperationType.CAPTURE:
            return _excess_of_capture(asked_for, original, by_type(members), rules)
        case OperationType.VOID if asked_for.total:
            return _excess_of_void(asked_for, original, by_type(members), rules)
        case OperationType.REFUND:
            return _excess_of_refund(asked_for, original, by_type(members))
        case _:
            return None


def _excess_of_capture(
    asked_for: Transaction, original: Transaction, done: Approved, rules: AmountsConfig
) -> Problem | None:
    """Return the problem of a capture if all captures together, without their tips, exceed the reservation."""
    held, captures = reserving(original, done), done[CAPTURE]
    reserved = charged(held)
    if reserved is None:
        return None
    used = total(map(captured, captures))
    allowed = max(ZERO, reserved * (100 + rules.capture_over_percent) / 100 - used)
    asked = total((asked_for.total, -operation_of(asked_for).requested_tip))
    words = f"{reserved} is reserved" + (f" and {used} of it captured" if captures else "")
    return _exceeds(asked_for, asked, allowed, [held, *captures], words) if asked > allowed else None


def _excess_of_void(
    asked_for: Transaction, original: Transaction, done: Approved, rules: AmountsConfig
) -> Problem | None:
    """Return the problem of a void if its amount is neither the charge nor the charge with its later tips.

    The configuration can allow a smaller amount.
    """
    standing, tips = reserving(original, done), done[POST_TIP]
    own = charged(standing)
    if own is None:
        return None
    allowed, asked = total((own, *map(tipped, tips))), asked_for.total
    if asked in (own, allowed):
        return None
    words = f"{allowed} was charged"
    if asked < allowed:
        if rules.partial_void:
            return None
        words += ", and a void is for all of it (leave the amount out); for a part ask for a refund"
    return _exceeds(asked_for, asked, allowed, [standing, *tips], words)


def _excess_of_refund(asked_for: Transaction, original: Transaction, done: Approved) -> Problem | None:
    """Return the problem of a refund if all refunds together exceed the charge.

    A refund without an amount is for the whole charge.
    """
    tips, refunds = done[POST_TIP], done[REFUND]
    counted, own = [original, *tips, *refunds], charged(original)
    if own is None:
        words = "the charged amount is not known, but a refund of it was approved"
        return _exceeds(asked_for, asked_for.total, ZERO, counted, words) if refunds else None
    whole = total((own, *map(tipped, tips)))
    refunded = total(given_back(item, whole) for item in refunds)
    allowed, asked = max(ZERO, whole - refunded), asked_for.total or whole
    words = f"{whole} was charged" + (f" and {refunded} of it refunded" if refunds else "")
    if not asked:
        return _exceeds(asked_for, original.total, ZERO, counted, f"{words}, as the terminal reported")
    return _exceeds(asked_for, asked, allowed, counted, words) if asked > allowed else None


def _exceeds(
    asked_for: Transaction, asked: Decimal, allowed: Decimal, counted: Sequence[Transaction], words: str
) -> Problem:
    """Return the problem of an operation that requests more than `allowed`.

    `counted`: the transactions that determine the limit.
    """
    return Problem(
        "amount_exceeds",
        f"cannot start: {asked_for.type} asks for {asked}, and {allowed} is allowed: {words}. Correct the amount; no "
        f"{asked_for.type} was sent",
        asked=asked,
        allowed=allowed,
        transactions=[item.client_transaction_id for item in counted[:MAX_SHOWN]],
    )
