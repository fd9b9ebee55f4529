"""What stands in JSON, said beside the fields that hold it: the description of the local API is made from it.

A field that keeps JSON as bytes says with `Wire` what has to be in them. Everything else is in the annotations: types,
limits, and words (`msgspec.Meta`).
"""

from decimal import Decimal
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from posd.base.money import MAX_FRACTION_DIGITS, MAX_INTEGER_DIGITS


class Wire(msgspec.Struct, frozen=True):
    """What a field is on the wire, where it is held as something else; `required`: it has to be there.

    A type in words is of the API's documents, which the core does not know.
    """

    type: Any
    required: bool = False


#: Of words in an answer: there may be more of them one day, and whoever reads them has to bear it.
OPEN = Meta(extra={"open": True})

#: A moment as posd writes it.
Moment = Annotated[str, Meta(description="ISO 8601, UTC, milliseconds", extra_json_schema={"format": "date-time"})]
#: A UUID: accepted in any case, written in lower case.
Uuid = Annotated[
    str,
    Meta(
        pattern="^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
        extra_json_schema={"format": "uuid"},
    ),
]
#: An amount that posd writes: a JSON number with the digits that it has.
Exact = Annotated[Decimal, Meta(description="an exact decimal: read it as one, never as a binary float")]
#: An amount that posd reads.
Money = Annotated[
    Decimal | Annotated[str, Meta(pattern=f"^[0-9]{{1,{MAX_INTEGER_DIGITS}}}(\\.[0-9]{{1,{MAX_FRACTION_DIGITS}}})?$")],
    Meta(
        description=f"an exact decimal, as a number or as a string: not negative, at most {MAX_INTEGER_DIGITS} digits "
        f"before and {MAX_FRACTION_DIGITS} after the point",
        extra_json_schema={"minimum": 0, "exclusiveMaximum": 10**MAX_INTEGER_DIGITS},
    ),
]


class ExtraTaxes(msgspec.Struct, frozen=True):
    """Further taxes; members that are not named here go to the terminal as they are."""

    MORE: ClassVar[Any] = Money

    airport_tax: Money = Decimal(0)
    iac: Money = Decimal(0)
    ice: Money = Decimal(0)
    travel_agency: Money = Decimal(0)


class AskedAmount(msgspec.Struct, frozen=True):
    """What is to be paid. The sum of all has to be above 0. Further members, such as `tip`, go to the terminal as they
    are.
    """

    MORE: ClassVar[Any] = Money

    iva: Annotated[Money, Meta(description="the tax on `subtotal_iva`")] = Decimal(0)
    subtotal_iva: Annotated[Money, Meta(description="what is taxed, without the tax")] = Decimal(0)
    subtotal_iva0: Annotated[Money, Meta(description="what is not taxed")] = Decimal(0)
    extra_taxes: Annotated[ExtraTaxes | None, Meta(description="further taxes")] = None


class Amount(msgspec.Struct, frozen=True):
    """What was asked for, as it went to the terminal; empty where nothing is known of it, and for a void that named
    none. Further members are those that the till wrote.
    """

    MORE: ClassVar[Any] = Exact

    iva: Annotated[Exact | msgspec.UnsetType, Meta(description="the tax on `subtotal_iva`")] = msgspec.UNSET
    subtotal_iva: Annotated[Exact | msgspec.UnsetType, Meta(description="what is taxed")] = msgspec.UNSET
    subtotal_iva0: Annotated[Exact | msgspec.UnsetType, Meta(description="what is not taxed")] = msgspec.UNSET
    extra_taxes: Annotated[dict[str, Exact] | msgspec.UnsetType, Meta(description="further taxes")] = msgspec.UNSET
