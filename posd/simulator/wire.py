"""JSON, times and amounts as they stand on the wire.

Numbers are int or Decimal from the request to the event, never float; amounts are added exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class NotJson(ValueError):
    """The bytes are not a JSON document."""


def decode(raw: bytes | str) -> Any:
    """Read one JSON document; numbers with a point or an exponent become Decimal, digit by digit.

    Raises NotJson.
    """
    try:
        return _DECODER.decode(raw)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise NotJson(str(error)) from error


def encode(value: Any) -> bytes:
    """Write JSON; a Decimal is written as the number that it was read from (10.10 stays 10.10)."""
    return _ENCODER.encode(value)


def timestamp() -> str:
    """Return this moment as events bear it: ISO 8601, UTC, milliseconds, `Z` (terminal API, Events)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Amounts: what the terminal takes in a request (terminal API, Start request), and what stands in the final event.

#: A JSON number.
Number = int | Decimal
#: Digits before the point that an amount may have: the acquirer's field has twelve.
MAX_WHOLE_DIGITS = 12
#: Digits after the point that an amount may have: some currencies and tax sums use four.
MAX_FRACTION_DIGITS = 4

#: The members of `extra_taxes` (terminal API, Events).
EXTRA_TAXES = ("airport_tax", "iac", "ice", "travel_agency")
#: Amount members that the event leaves out when they are zero (terminal API, Events).
OMITTED_WHEN_ZERO = ("iva", "subtotal_iva")


@dataclass(frozen=True, slots=True)
class Processed:
    """An amount as the terminal has processed it: `reported` is the event's, `authorized` its total."""

    reported: Mapping[str, Any]
    authorized: Number


def number_fault(value: Any) -> str | None:
    """Say in words why a value cannot be a member of an amount; None where it can."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return "must be a number"
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # infinite or not a number
        return "must be a number"
    if number < 0:
        return "must not be negative"
    if number.adjusted() >= MAX_WHOLE_DIGITS or exponent < -MAX_FRACTION_DIGITS:
        return f"must have at most {MAX_WHOLE_DIGITS} digits before and {MAX_FRACTION_DIGITS} after the point"
    return None


def process(amount: Mapping[str, Any], *, currency: str, tip: Number | None) -> Processed:
    """Process a request's amount: currency, tip and taxes added, zero taxes left out (terminal API, Events).

    `tip` is what the cardholder adds to the tip of the request; None adds nothing.
    """
    if tip is not None:
        amount = {**amount, "tip": amount.get("tip", 0) + tip}
    reported = {
        "currency": currency,
        "subtotal_iva0": 0,
        "tip": 0,
        **amount,
        "extra_taxes": dict.fromkeys(EXTRA_TAXES, 0) | amount.get("extra_taxes", {}),
    }
    for name in OMITTED_WHEN_ZERO:
        if reported.get(name) == 0:
            del reported[name]
    return Processed(reported, total(amount))


def total(amount: Mapping[str, Any]) -> Number:
    """Add up what the cardholder pays: taxes, subtotals, tip and extra taxes."""
    members = [amount.get(name, 0) for name in ("iva", "subtotal_iva", "subtotal_iva0", "tip")]
    taxes = amount.get("extra_taxes", {})
    return sum([*members, *(taxes.get(name, 0) for name in EXTRA_TAXES)], start=Decimal(0))
