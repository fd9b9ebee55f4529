"""Wire format of JSON, times and amounts, and the operations of the terminal.

Numbers are int or Decimal from the request to the event, and never float. Amounts are added exactly.

Each operation is a row of `OPERATIONS`. The names of the first four are from the terminal API. The wire names of
post-tip, void and refund are not published, and are invented here. Only the path of the charge is published. The other
paths are assumptions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

import msgspec

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class SettingsError(ValueError):
    """Error for a setting or an action that is impossible for the terminal.

    The message says what is wrong, why, and what to do.
    """


#: Edition of the vendor's documents: the older edition, or that of 2026.
Edition = Literal["classic", "2026"]


class Refused(Exception):
    """Refused request. `status`: HTTP status of the reply.

    `kind`: the published type of the refusal, if `code` is published. `param`: path of the invalid field.
    """

    def __init__(
        self, status: int, code: str, message: str, *, kind: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.kind = kind
        self.param = param


def decode(raw: bytes | str) -> Any:
    """Decode one JSON document. Numbers with a point or an exponent become Decimal, with all their digits.

    Raise ValueError if the text is not a JSON document.
    """
    try:
        return _DECODER.decode(raw)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise ValueError(str(error)) from error


def encode(value: Any) -> bytes:
    """Encode JSON. A Decimal keeps its digits (10.10 stays 10.10)."""
    return _ENCODER.encode(value)


def timestamp(offset: float = 0.0) -> str:
    """Return this moment in the format of events: ISO 8601, UTC, milliseconds, `Z` (terminal API, Events).

    `offset`: number of seconds by which the clock is ahead.
    """
    moment = datetime.now(UTC) + timedelta(seconds=offset)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Amounts of requests (terminal API, Start request) and of final events.

#: A JSON number.
Number = int | Decimal
#: Unit of the numbers in an amount: the currency's main unit, the main unit without fractions, or hundredths of it.
AmountUnit = Literal["main", "whole", "hundredths"]
#: Maximum number of digits before the point. The acquirer's field has twelve.
MAX_WHOLE_DIGITS = 12
#: Maximum number of digits after the point. Some currencies and tax sums use four.
MAX_FRACTION_DIGITS = 4

#: The members of `extra_taxes` (terminal API, Events).
EXTRA_TAXES = ("airport_tax", "iac", "ice", "travel_agency")
#: Amount members that the event leaves out when they are zero (terminal API, Events).
OMITTED_WHEN_ZERO = ("iva", "subtotal_iva")


@dataclass(frozen=True, slots=True)
class Processed:
    """Processed amount. `reported`: amount of the event. `authorized`: its total.

    `process` returns it in the main unit, and `told_in` in the unit of the terminal's replies.
    """

    reported: Mapping[str, Any]
    authorized: Number

    def told_in(self, unit: AmountUnit) -> "Processed":
        """Convert this amount from the main unit to another unit."""
        return Processed(
            converted(self.reported, lambda value: from_main(value, unit)), from_main(self.authorized, unit)
        )


def number_fault(value: Any) -> str | None:
    """Return as text why a value cannot be a member of an amount, or None."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return "must be a number"
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # infinity or NaN
        return "must be a number"
    if number < 0:
        return "must not be negative"
    if number.adjusted() >= MAX_WHOLE_DIGITS or exponent < -MAX_FRACTION_DIGITS:
        return f"must have at most {MAX_WHOLE_DIGITS} digits before and {MAX_FRACTION_DIGITS} after the point"
    return None


def to_main(value: Number, unit: AmountUnit) -> Number:
    """Convert a number from `unit` to the main unit, exactly."""
    return Decimal(value).scaleb(-2) if unit == "hundredths" else value


def from_main(value: Number, unit: AmountUnit) -> Number:
    """Convert a number from the main unit to `unit`, exactly: 438.90 is 43890 hundredths."""
    if unit != "hundredths":
        return value
    hundredths = Decimal(value).scaleb(2)
    return int(hundredths) if hundredths == hundredths.to_integral_value() else hundredths


def converted(amount: Mapping[str, Any], convert: Callable[[Number], Number]) -> dict[str, Any]:
    """Return an amount with each of its numbers converted."""
    return {
        name: converted(value, convert)
        if isinstance(value, Mapping)
        else convert(value)
        if isinstance(value, int | Decimal)
        else value
        for name, value in amount.items()
    }


def process(amount: Mapping[str, Any], *, currency: str, tip: Number | None) -> Processed:
    """Process a request's amount: add currency, tip and taxes, and omit zero taxes (terminal API, Events).

    `tip`: tip that the cardholder adds to the tip of the request, or None.
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
    """Return the amount that the cardholder pays: the sum of taxes, subtotals, tip and extra taxes."""
    members = [amount.get(name, 0) for name in ("iva", "subtotal_iva", "subtotal_iva0", "tip")]
    taxes = amount.get("extra_taxes", {})
    return sum([*members, *(taxes.get(name, 0) for name in EXTRA_TAXES)], start=Decimal(0))


#: Access mode of a call: over the terminal's local network, or through the cloud service with the serial in the path.
#: Source: terminal API, Events.
AccessMode = Literal["local", "cloud"]


@dataclass(frozen=True, slots=True)
class SimulatedOperation:
    """One operation. `Record.original` applies `originals`, `not_after` and `renews`."""

    #: Name in the acknowledgement (terminal API, Acknowledgement).
    name: str
    #: Name in the final event (terminal API, Events).
    reported_as: str
    #: Path below `/terminal/v1/`, and in the cloud below the serial (terminal API, Calls to a terminal).
    path: str
    #: Word for an original after this operation, for example "refunded".
    done: str = ""
    #: Operations whose approval the request must reference. Empty: the request has no reference.
    originals: tuple[str, ...] = ()
    #: Operations on the same original after which this operation is impossible.
    not_after: tuple[str, ...] = ()
    #: Whether its reference replaces that of the original.
    renews: bool = False
    #: Whether the final event has the reference of the request (terminal API, Events).
    reports_reference: bool = False
    #: Whether the request needs an amount. Otherwise the amount of the original is the default.
    needs_amount: bool = True
    #: Whether the cardholder can add a tip.
    takes_tip: bool = False


#: All operations. To add one, add a row.
OPERATIONS = (
    SimulatedOperation("charge", "CHARGE", "async/charge", takes_tip=True),
    SimulatedOperation("pre-auth", "PREAUTH", "async/authorization", takes_tip=True),
    SimulatedOperation(
        "re-auth",
        "REAUTHORIZATION",
        "async/re_authorization",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        renews=True,
        reports_reference=True,
        takes_tip=True,
    ),
    SimulatedOperation(
        "capture",
        "CAPTURE",
        "async/capture",
        done="captured",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        reports_reference=True,
        takes_tip=True,
    ),
    SimulatedOperation(
        "post-tip",
        "POST_TIP",  # invented
        "async/pos_tip",
        done="tipped",
        originals=("charge", "capture"),
        not_after=("void", "post-tip"),
    ),
    SimulatedOperation(
        "void",
        "VOID",  # invented
        "async/void",
        done="voided",
        originals=("charge", "capture", "pre-auth", "re-auth"),
        not_after=("capture", "void", "refund"),
        needs_amount=False,
    ),
    SimulatedOperation(
        "refund",
        "REFUND",  # invented
        "async/refund",
        done="refunded",
        originals=("charge", "capture"),
        not_after=("void",),
        needs_amount=False,
    ),
)
#: Name -> operation.
BY_NAME: Mapping[str, SimulatedOperation] = {operation.name: operation for operation in OPERATIONS}


class PaymentStatus(StrEnum):
    """The seven states of a payment (terminal API, Lifecycle)."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    CARD_PRESENTED = "CARD_PRESENTED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: States after which no event follows (terminal API, Lifecycle).
FINALS = frozenset(
    {PaymentStatus.APPROVAL, PaymentStatus.DECLINED, PaymentStatus.TERMINAL_REJECTED, PaymentStatus.TERMINAL_CANCELED}
)
#: States after the payment was sent to the acquirer. APPROVAL_REQUESTED is the point of no return (terminal API,
#: Lifecycle).
SENT = frozenset({PaymentStatus.APPROVAL_REQUESTED, PaymentStatus.DECLINED, PaymentStatus.APPROVAL})
#: Results from the acquirer (terminal API, Lifecycle).
ACQUIRERS = frozenset({PaymentStatus.DECLINED, PaymentStatus.APPROVAL})
#: Values of `reading_type` (terminal API, Events) in the shipped scenarios and in manual actions.
CONTACTLESS = "CONTACTLESS"
CHIP = "CHIP"
