"""Amounts: checks of the till's amounts, and conversion between the units of till and terminal.

Source: local API, Amounts.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from posd.base.json_types import AMOUNT, encode, pointer
from posd.base.money import MOST_DIGITS, ZERO, AmountUnit, fits, from_wire, parse_money, sum_of, to_wire
from posd.base.text import did_you_mean
from posd.config.schema import AmountsConfig
from posd.payments.model import TIP, Transaction
from posd.payments.wire import TransactionEvent
from posd.records.request import MAX_FAULTS, RequestFault

#: Members that are always sent. A missing member is sent as 0.
REQUIRED = ("iva", "subtotal_iva", "subtotal_iva0")
#: Name of the only member that is an object, and the names of its own members.
NESTED = "extra_taxes"
EXTRA_TAXES = ("airport_tax", "iac", "ice", "travel_agency")


#: The defaults of `[amounts]` in the configuration.
NOTHING_MORE = AmountsConfig((), (), 0, partial_void=False, decimals=None, max_amount=None)


def read_amount(given: Mapping[str, object], rules: AmountsConfig) -> tuple[bytes, list[RequestFault]]:
    """Return the till's amount in its stored form, and all faults in it. Null members are omitted."""
    members, taxes = (*REQUIRED, TIP, *rules.members), (*EXTRA_TAXES, *rules.extra_taxes)
    checked: dict[str, Any] = dict.fromkeys(REQUIRED, ZERO)
    faults: list[RequestFault] = []
    for name, value in given.items():
        if name != NESTED:
            if (number := _number((name,), value, members, faults)) is not None:
                checked[name] = number
        elif isinstance(value, Mapping):
            found = {tax: _number((NESTED, tax), number, taxes, faults) for tax, number in value.items()}
            checked[NESTED] = {tax: number for tax, number in found.items() if number is not None}
        elif value is not None:
            faults.append(_fault((NESTED,), f"must be an object with {', '.join(taxes)}"))
    if not faults and sum_of(checked) <= ZERO:
        faults.append(_fault((), "must add up to more than 0"))
    return encode(checked), faults


def unfit(amount: bytes, unit: AmountUnit, decimals: int) -> list[RequestFault]:
    """Return the faults of a stored amount: members with too many decimal places for the unit or the currency."""
    most = min(MOST_DIGITS[unit], decimals)
    because = (
        f"amount_unit of this terminal is {unit}"
        if MOST_DIGITS[unit] <= decimals
        else "[amounts] decimals in the configuration, by default as many as the currency has"
    )
    words = f"must have {f'at most {most}' if most else 'no'} digits after the point: {because}"
    return [_fault(place, words) for place, number in _each(AMOUNT.decode(amount), ()) if not fits(number, most)]


def on_wire(amount: bytes, unit: AmountUnit) -> bytes:
    """Return a checked amount, converted to the unit of a terminal."""
    if unit == "main":
        return amount
    return encode(
        {
            name: to_wire(value, unit)
            if isinstance(value, Decimal)
            else {tax: to_wire(number, unit) for tax, number in value.items()}
            for name, value in AMOUNT.decode(amount).items()
        }
    )


def _fault(place: tuple[str, ...], words: str) -> RequestFault:
    """Return a fault of one member of the amount. `place`: the names on the path to the member."""
    return RequestFault(pointer(("amount", *place)), words)


def _each(amount: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Decimal]]:
    for name, value in amount.items():
        if isinstance(value, Decimal):
            yield (*place, name), value
        else:
            yield from _each(value, (*place, name))


def _number(place: tuple[str, ...], value: object, known: Sequence[str], faults: list[RequestFault]) -> Decimal | None:
    if place[-1] not in known:
        if len(faults) < MAX_FAULTS:
            faults.append(_fault(place, _unknown(place, known)))
        return None
    if value is None:
        return None
    try:
        return parse_money(value)
    except ValueError as error:
        faults.append(_fault(place, str(error)))
        return None


def _unknown(place: tuple[str, ...], known: Sequence[str]) -> str:
    names = known if len(place) > 1 else (*known, NESTED)
    key = NESTED if len(place) > 1 else "members"
    return (
        f"is not a known member{did_you_mean(place[-1], names)}, so the terminal might not charge it. Known "
        f"members are {', '.join(names)}; [amounts] {key} in the configuration allows others"
    )


# Amounts from the terminal, converted to the till's unit.


def authorized(transaction: Transaction, event: TransactionEvent) -> Decimal | None:
    """Return the authorized amount in an event. Return None if the event has none, or the unit is unknown."""
    found = event.raw_response.authorized_amount if event.raw_response is not None else None
    return _read(found, transaction)


def added_tip(transaction: Transaction, event: TransactionEvent) -> Decimal | None:
    """Return the tip that the cardholder added, from an event.

    Return None if the event has no tip, or the unit is unknown.
    """
    return _read(event.tip, transaction)


def _read(number: Decimal | None, transaction: Transaction) -> Decimal | None:
    unit = transaction.answer_unit
    return None if number is None or unit is None else from_wire(number, unit)
