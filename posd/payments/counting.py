"""Effect of an operation on money: what it took, gave back, reserved or released. One rule for all that adds money up.

Limits of chains, totals, report, shifts and feed read it from here. Head office has it as SQL
(`posd/collect/tables`), held to it by the vectors in `tests/vectors/counting.json`.

- Sums are compared, not members. The size of a number counts, never its sign: acquirers answer a refund as 10 or -10.
- The terminal's number counts and is shown. A limit takes the smaller of two numbers for what was taken or reserved,
  and the larger one for what was given back or captured. So no answer raises what is still allowed.

Source: local API, Amounts, Chains; design, 13.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

import msgspec

from posd.base.json_types import exact
from posd.base.money import ZERO, read_money, total
from posd.base.operations import CAPTURE, POST_TIP, RE_AUTH, REFUND, RESERVING, REVERSING, VOID, OperationType
from posd.payments.amounts import TIP, AmountRules
from posd.payments.model import Result, Transaction, approved


class Of(StrEnum):
    """What an operation moves."""

    PAYMENT = "payment"
    RESERVATION = "reservation"


class Basis(StrEnum):
    """What an amount rests on."""

    AUTHORIZED = "authorized"  # the terminal said it
    REQUESTED = "requested"  # the till asked for it, and the terminal named none
    ORIGINAL = "original"  # of a void or refund of all: the effect of its original
    NEW_TOTAL = "new_total"  # of a tip: the terminal named the total of the payment, so what was asked for counts
    UNKNOWN = "unknown"


class Section(StrEnum):
    """Where an operation stands in totals. Only what is counted is in them."""

    COUNTED = "counted"  # approved charges, captures and tips; approved voids and refunds of them, negative
    RESERVED = "reserved"  # approved pre-authorizations, re-authorizations, and voids of them
    NOT_CHARGED = "not_charged"  # declined, rejected, canceled, not started
    UNCLEAR = "unclear"  # approved, but its type or amount is not known
    OPEN = "open"  # no outcome yet


class CountedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an operation that count. `requested`: the sum of the till's amount, its tip included, 0 for none.

    `added_tip`: what the cardholder added at the terminal.
    """

    type: OperationType | None
    result: Result | None
    requested: Decimal = ZERO
    requested_tip: Decimal = ZERO
    authorized: Decimal | None = None
    added_tip: Decimal | None = None
    reversal: str | None = None


class Original(msgspec.Struct, frozen=True):
    """What an operation is done to. `came_to`: None if it is not approved, or its amount is not known.

    `tips`: what approved tips before the operation asked for.
    """

    type: OperationType | None
    came_to: Decimal | None
    tips: Decimal = ZERO


class Effect(msgspec.Struct, frozen=True):
    """What an operation moves, or would move if it were approved.

    `kind`: its type, or what a void is: `cancellation`, `refund`, `void` (not known which), `release` (of a
    reservation), `void of unknown`; `unknown` without a type. `of` is None if the kind does not tell. `amount` is
    negative where it gives back or releases, None if not known.
    """

    kind: str
    of: Of | None
    amount: Decimal | None
    basis: Basis
    section: Section

    @property
    def counted(self) -> Decimal | None:
        """What of it is in totals, None if nothing is."""
        return self.amount if self.section is Section.COUNTED else None


def operation_of(transaction: Transaction) -> CountedOperation:
    """Return the facts of a transaction that count."""
    outcome = transaction.outcome
    return CountedOperation(
        type=transaction.type,
        result=outcome.result if outcome else None,
        requested=transaction.total,
        requested_tip=requested_tip(transaction),
        authorized=outcome.authorized_amount if outcome else None,
        added_tip=outcome.tip if outcome else None,
        reversal=outcome.reversal if outcome else None,
    )


def requested_tip(transaction: Transaction) -> Decimal:
    """Return the tip that the till asked for."""
    return read_money(exact(transaction.amount.decode()).get(TIP)) or ZERO


def effect(operation: CountedOperation, original: Original | None) -> Effect:
    """Return the effect of an operation on money; `original` is None if it has none, or none that is known."""
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
    """Return what an operation is done to. `members`: what derives from the original, before the operation."""
    found = by_type(members)
    standing = reserving(original, found) if original.type in RESERVING else original
    took = approved(standing) and original.type not in REVERSING  # the effect of undoing a reversal is unknown
    came_to = effect(operation_of(standing), None).amount if took else None
    return Original(original.type, came_to, total(item.total for item in found[POST_TIP]))


#: The approved operations of a chain by type, oldest first.
Approved = Mapping[OperationType | None, Sequence[Transaction]]


def by_type(members: Iterable[Transaction]) -> Approved:
    """Return what is approved, by type."""
    found: dict[OperationType | None, list[Transaction]] = {kind: [] for kind in (*OperationType, None)}
    for item in members:
        if approved(item):
            found[item.type].append(item)
    return found


def reserving(original: Transaction, done: Approved) -> Transaction:
    """Return the operation that says how much is reserved: the newest approved re-authorization, else the original."""
    return (done[RE_AUTH] or [original])[-1]


# Limits: a capture, a void or a refund is for at most what stands behind it.


def charged(item: Transaction) -> Decimal | None:
    """Return what an approved charge, capture or reservation certainly took or reserved, None if nothing tells."""
    facts = operation_of(item)
    asked, said = facts.requested, facts.authorized
    if said is None:
        return asked or None
    if not asked:
        return max(said, ZERO)
    most = asked if facts.type in RESERVING else total((asked, facts.added_tip or ZERO))
    return min(abs(said), asked if said < ZERO else most)


def captured(item: Transaction) -> Decimal:
    """Return the most that an approved capture may have used of what is reserved, without its tips."""
    facts = operation_of(item)
    said = total((abs(facts.authorized or ZERO), -(facts.added_tip or ZERO)))
    return max(total((max(facts.requested, said), -facts.requested_tip)), ZERO)


def tipped(item: Transaction) -> Decimal:
    """Return what an approved tip certainly added to what was charged."""
    said = operation_of(item).authorized
    return item.total if said is None else min(item.total, abs(said))


def given_back(item: Transaction, whole: Decimal) -> Decimal:
    """Return the most that an approved refund may have given back; without an amount it is for the whole."""
    return max(item.total or whole, abs(operation_of(item).authorized or ZERO))


class Excess(NamedTuple):
    """An operation that asks for more than its original allows; the ids of what was counted, and words."""

    asked: Decimal
    allowed: Decimal
    transactions: list[str]
    words: str


def excess(
    asked_for: Transaction, original: Transaction, members: Sequence[Transaction], rules: AmountRules
) -> Excess | None:
    """Return by what it asks for more than its approved original allows, None if it does not.

    `members` is all that derives from the original, oldest first.
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
    asked_for: Transaction, original: Transaction, done: Approved, rules: AmountRules
) -> Excess | None:
    """All captures together are for at most what is reserved, without their tips."""
    held, captures = reserving(original, done), done[CAPTURE]
    reserved = charged(held)
    if reserved is None:
        return None
    used = total(map(captured, captures))
    allowed = max(ZERO, reserved * (100 + rules.capture_over_percent) / 100 - used)
    asked = asked_for.total - requested_tip(asked_for)
    words = f"{reserved} is reserved" + (f" and {used} of it captured" if captures else "")
    return _beyond(asked, allowed, [held, *captures], words)


def _excess_of_void(asked_for: Transaction, original: Transaction, done: Approved, rules: AmountRules) -> Excess | None:
    """A void is for all that was charged, with or without the tips that were added later, unless a part will do."""
    standing, tips = reserving(original, done), done[POST_TIP]
    own = charged(standing)
    if own is None:
        return None
    allowed, asked = total((own, *map(tipped, tips))), asked_for.total
    if asked == own or (rules.partial_void and asked <= allowed):
        return None
    if asked < allowed:
        words = (
            f"{allowed} was charged, and a void is for all of it (leave the amount out); for a part ask for a refund"
        )
        return Excess(asked, allowed, _ids([standing, *tips]), words)
    return _beyond(asked, allowed, [standing, *tips], f"{allowed} was charged")


def _excess_of_refund(asked_for: Transaction, original: Transaction, done: Approved) -> Excess | None:
    """All refunds together are for at most what was charged; one without an amount is for all of it."""
    tips, refunds = done[POST_TIP], done[REFUND]
    counted, own = [original, *tips, *refunds], charged(original)
    if own is None:
        words = "what was charged is not known, and a refund of it was approved"
        return Excess(asked_for.total, ZERO, _ids(counted), words) if refunds else None
    whole = total((own, *map(tipped, tips)))
    refunded = total(given_back(item, whole) for item in refunds)
    allowed, asked = max(ZERO, whole - refunded), asked_for.total or whole
    words = f"{whole} was charged" + (f" and {refunded} of it refunded" if refunds else "")
    if not asked:
        return Excess(original.total, ZERO, _ids(counted), f"{words}, by the terminal's word")
    return _beyond(asked, allowed, counted, words)


def _beyond(asked: Decimal, allowed: Decimal, counted: Sequence[Transaction], words: str) -> Excess | None:
    return Excess(asked, allowed, _ids(counted), words) if asked > allowed else None


def _ids(counted: Sequence[Transaction]) -> list[str]:
    return [item.client_transaction_id for item in counted]
