"""Amounts: what a till may ask for, and what an original allows. Money that does not add up is not sent.

Sums are compared, not members. What an approval took is what the acquirer authorized, else what was asked for.

Source: local API, Amounts.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from posd.base.json_types import AMOUNT, encode, exact
from posd.base.money import ZERO, AmountUnit, fits, from_wire, numbers, parse_money, read_money, to_wire
from posd.base.text import nearest
from posd.payments.model import OperationType, Transaction, approved
from posd.payments.wire import TransactionEvent

#: Members that are always sent, 0 where the till leaves them out.
REQUIRED = ("iva", "subtotal_iva", "subtotal_iva0")
TIP = "tip"
#: The one member that is an object, and its members.
NESTED = "extra_taxes"
EXTRA_TAXES = ("airport_tax", "iac", "ice", "travel_agency")


class AmountRules(msgspec.Struct, frozen=True):
    """What the configuration says of amounts.

    `members`, `extra_taxes`: further names that a till may send. `capture_over_percent`: by how much a capture may
    exceed what is reserved. `partial_void`: a void may be for a part.
    """

    members: tuple[str, ...] = ()
    extra_taxes: tuple[str, ...] = ()
    capture_over_percent: int = 0
    partial_void: bool = False


#: The configuration as it is where it says nothing.
NOTHING_MORE = AmountRules()


class AmountFault(NamedTuple):
    """What is wrong with an amount: the names that lead to the member, and words."""

    place: tuple[str, ...]
    words: str


def read_amount(given: Mapping[str, object], rules: AmountRules) -> tuple[bytes, list[AmountFault]]:
    """Return an amount as it is sent and stored, and all that is wrong with it. A member that is null is left out."""
    members, taxes = (*REQUIRED, TIP, *rules.members), (*EXTRA_TAXES, *rules.extra_taxes)
    checked: dict[str, Any] = dict.fromkeys(REQUIRED, ZERO)
    faults: list[AmountFault] = []
    for name, value in given.items():
        if name != NESTED:
            if (number := _number((name,), value, members, faults)) is not None:
                checked[name] = number
        elif isinstance(value, Mapping):
            found = {tax: _number((NESTED, tax), number, taxes, faults) for tax, number in value.items()}
            checked[NESTED] = {tax: number for tax, number in found.items() if number is not None}
        elif value is not None:
            faults.append(AmountFault((NESTED,), f"must be an object with {', '.join(taxes)}"))
    if not faults and sum(numbers(checked), ZERO) <= ZERO:
        faults.append(AmountFault((), "must add up to more than 0"))
    return encode(checked), faults


#: unit -> what is wrong with an amount that does not fit in it.
_UNFIT: Mapping[AmountUnit, str] = {
    "main": "",
    "whole": "must have no fraction: amount_unit of this terminal is whole",
    "hundredths": "must have at most 2 digits after the point: amount_unit of this terminal is hundredths",
}


def unfit(amount: bytes, unit: AmountUnit) -> list[AmountFault]:
    """Return what of an amount as it is stored cannot be sent to a terminal with that unit."""
    return [
        AmountFault(place, _UNFIT[unit]) for place, number in _each(AMOUNT.decode(amount), ()) if not fits(number, unit)
    ]


def on_wire(amount: bytes, unit: AmountUnit) -> bytes:
    """Write an amount that is fit as a terminal with that unit takes it."""
    if unit == "main":
        return amount
    members = AMOUNT.decode(amount)
    return encode(
        {
            name: to_wire(value, unit)
            if isinstance(value, Decimal)
            else {tax: to_wire(number, unit) for tax, number in value.items()}
            for name, value in members.items()
        }
    )


def _each(amount: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Decimal]]:
    for name, value in amount.items():
        if isinstance(value, Decimal):
            yield (*place, name), value
        else:
            yield from _each(value, (*place, name))


def _number(place: tuple[str, ...], value: object, known: Sequence[str], faults: list[AmountFault]) -> Decimal | None:
    if place[-1] not in known:
        faults.append(AmountFault(place, _unknown(place, known)))
        return None
    if value is None:
        return None
    try:
        return parse_money(value)
    except ValueError as error:
        faults.append(AmountFault(place, str(error)))
        return None


def _unknown(place: tuple[str, ...], known: Sequence[str]) -> str:
    names = known if len(place) > 1 else (*known, NESTED)
    near = nearest(place[-1].lower(), names)
    meant = f"Did you mean {near}? " if near is not None else ""
    key = NESTED if len(place) > 1 else "members"
    return (
        f"is not a member that is known here, so it might be charged to no customer. {meant}Known are "
        f"{', '.join(names)}; [amounts] {key} in the configuration admits further ones"
    )


# What the terminal says of amounts, in the unit of the till.


def authorized(transaction: Transaction, event: TransactionEvent) -> Decimal | None:
    """Return what the acquirer authorized by an event, None where it does not say it, or its unit is not known."""
    found = event.raw_response.authorized_amount if event.raw_response is not None else None
    return _read(found, transaction)


def added_tip(transaction: Transaction, event: TransactionEvent) -> Decimal | None:
    """Return the tip that the cardholder added by an event, None as above."""
    return _read(event.tip, transaction)


def _read(number: Decimal | None, transaction: Transaction) -> Decimal | None:
    unit = transaction.answer_unit
    return None if number is None or unit is None else from_wire(number, unit)


# What an original allows: a capture, a void or a refund is for at most what stands behind it.


class Excess(NamedTuple):
    """An operation that asks for more than its original allows; the ids of what was counted, and words."""

    asked: Decimal
    allowed: Decimal
    transactions: list[str]
    words: str


def taken(item: Transaction) -> Decimal:
    """Return the sum that an approval took, released or gave back; 0 where that is not known."""
    authorized = item.outcome.authorized_amount if item.outcome is not None else None
    return item.total if authorized is None else authorized


def tip(item: Transaction) -> Decimal:
    """Return the tip that was asked for with it."""
    return read_money(exact(item.amount.decode()).get(TIP)) or ZERO


def excess(
    asked_for: Transaction, original: Transaction, members: Sequence[Transaction], rules: AmountRules
) -> Excess | None:
    """Return by what it asks for more than its approved original allows, None where it does not.

    `members` is all that derives from the original, oldest first.
    """
    match asked_for.type:
        case OperationType.CAPTURE:
            return _excess_of_capture(asked_for, original, _approved(members), rules)
        case OperationType.VOID if asked_for.total:
            return _excess_of_void(asked_for, original, _approved(members), rules)
        case OperationType.REFUND:
            return _excess_of_refund(asked_for, original, _approved(members))
        case _:
            return None


def _approved(members: Sequence[Transaction]) -> Mapping[OperationType | None, list[Transaction]]:
    found: dict[OperationType | None, list[Transaction]] = {kind: [] for kind in OperationType}
    for item in members:
        if approved(item):
            found.setdefault(item.type, []).append(item)
    return found


_Approved = Mapping[OperationType | None, list[Transaction]]


def _excess_of_capture(
    asked_for: Transaction, original: Transaction, done: _Approved, rules: AmountRules
) -> Excess | None:
    """All captures together are for at most what is reserved, without their tips."""
    reserving, captures = _reserving(original, done), done[OperationType.CAPTURE]
    reserved = taken(reserving)
    captured = sum((max(ZERO, taken(item) - tip(item)) for item in captures), ZERO)
    allowed = max(ZERO, reserved * (100 + rules.capture_over_percent) / 100 - captured)
    asked = asked_for.total - tip(asked_for)
    words = f"{reserved} is reserved" + (f" and {captured} of it captured" if captures else "")
    return _beyond(asked, allowed, [reserving, *captures], words)


def _excess_of_void(
    asked_for: Transaction, original: Transaction, done: _Approved, rules: AmountRules
) -> Excess | None:
    """A void is for all that was charged, with or without the tips that were added later, unless a part will do."""
    charged, tips = _reserving(original, done), done[OperationType.POST_TIP]
    own = taken(charged)
    allowed, asked = own + sum(map(taken, tips), ZERO), asked_for.total
    if asked == own or (rules.partial_void and asked <= allowed):
        return None
    if asked < allowed:
        words = (
            f"{allowed} was charged, and a void is for all of it (leave the amount out); for a part ask for a refund"
        )
        return Excess(asked, allowed, _ids([charged, *tips]), words)
    return _beyond(asked, allowed, [charged, *tips], f"{allowed} was charged")


def _excess_of_refund(asked_for: Transaction, original: Transaction, done: _Approved) -> Excess | None:
    """All refunds together are for at most what was charged; one without an amount is for all of it."""
    tips, refunds = done[OperationType.POST_TIP], done[OperationType.REFUND]
    charged = taken(original) + sum(map(taken, tips), ZERO)
    refunded = sum((taken(item) or charged for item in refunds), ZERO)
    words = f"{charged} was charged" + (f" and {refunded} of it refunded" if refunds else "")
    return _beyond(asked_for.total or charged, max(ZERO, charged - refunded), [original, *tips, *refunds], words)


def _reserving(original: Transaction, done: _Approved) -> Transaction:
    """Return what says how much stands: the newest approved re-authorization, else the original."""
    return (done[OperationType.RE_AUTH] or [original])[-1]


def _beyond(asked: Decimal, allowed: Decimal, counted: Sequence[Transaction], words: str) -> Excess | None:
    return Excess(asked, allowed, _ids(counted), words) if asked > allowed else None


def _ids(counted: Sequence[Transaction]) -> list[str]:
    return [item.client_transaction_id for item in counted]
