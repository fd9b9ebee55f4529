"""Operation types: the effect of each on the customer's money, and the method that starts it.

The table and the methods repeat `posd.base.operations`, because the client imports no other part of posd.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, NoReturn, TypeAlias, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

Id: TypeAlias = UUID | str
Json: TypeAlias = Mapping[str, object]
#: A part of an amount, or a whole amount as one sum, which is sent as `subtotal_iva0`.
Number: TypeAlias = Decimal | int | str
Amount: TypeAlias = Number | Mapping[str, Number | Mapping[str, Number]]

PaidOne = TypeVar("PaidOne", covariant=True)
ReservedOne = TypeVar("ReservedOne", covariant=True)
ReversedOne = TypeVar("ReversedOne", covariant=True)


class _ThreeValued(Enum):
    """Effect of an operation, for `match`: yes, no, or unclear.

    An effect has no truth value, and can only be compared with an effect. Any other use raises TypeError with the
    correct code.
    """

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} is neither true nor false: {self._write()}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _ThreeValued):  # a result False would look like "not paid"
            raise TypeError(f"{self} cannot be compared with {other!r}: {self._write()}")
        return self is other

    __hash__ = Enum.__hash__

    @classmethod
    def _write(cls) -> str:
        done, undone, unclear = (str(each) for each in cls)
        return (
            f"there are three answers. Write `match outcome.{cls.__name__.lower()}:` with `case {done}:`, "
            f"`case {undone}:` and `case {unclear}:` (a person has to check first: do not pay again)"
        )


class Paid(_ThreeValued):
    """Effect of a charge, a capture or a tip.

    `PAID`: the customer has paid (`authorized_amount` can be less than the requested amount). `NOT_PAID`: the customer
    has certainly not paid; pay again under a new id. `UNCLEAR`: an operator has to check before anything is paid again.
    """

    PAID = "paid"
    NOT_PAID = "not_paid"
    UNCLEAR = "unclear"


class Reserved(_ThreeValued):
    """Effect of a pre-auth or a re-auth. Nothing is paid before a capture."""

    RESERVED = "reserved"
    NOT_RESERVED = "not_reserved"
    UNCLEAR = "unclear"


class Reversed(_ThreeValued):
    """Effect of a void or a refund: money returned, or a reservation released."""

    REVERSED = "reversed"
    NOT_REVERSED = "not_reversed"
    UNCLEAR = "unclear"


#: Effect of an operation on the customer's money.
Effect: TypeAlias = Paid | Reserved | Reversed

#: Type of operation -> its effect.
EFFECTS: dict[str | None, type[Effect]] = {
    "charge": Paid,
    "pre-auth": Reserved,
    "re-auth": Reserved,
    "capture": Paid,
    "post-tip": Paid,
    "void": Reversed,
    "refund": Reversed,
}


class StartFields(TypedDict, total=False):
    """Arguments of each call that starts a payment, besides its id and amount (see `Starts`)."""

    terminal: str | None
    sale: str | None
    metadata: Json | None
    options: Json | None
    additional: bool
    repeat: bool  # an older name of `additional`
    not_after: datetime | None


class DerivedFields(StartFields, total=False):
    """Arguments of each call that starts an operation on another payment.

    A call names that payment by one of the two ids.
    """

    original: Id | None
    transaction_reference: Id | None


class Operations(ABC, Generic[PaidOne, ReservedOne, ReversedOne]):
    """One method for each operation type (see `Starts`)."""

    @abstractmethod
    def _start(
        self, kind: str, given: Id, amount: Amount | None, fields: Mapping[str, object], names: type, *, whole: bool
    ) -> Any:
        """Start an operation.

        `names`: its arguments. `whole`: without an amount, the operation is for the whole original.
        """

    def charge(self, id: Id, amount: Amount, **fields: Unpack[StartFields]) -> PaidOne:  # noqa: A002 - the field's name
        """Charge a card."""
        return cast(PaidOne, self._start("charge", id, amount, fields, StartFields, whole=False))

    def pre_auth(self, id: Id, amount: Amount, **fields: Unpack[StartFields]) -> ReservedOne:  # noqa: A002
        """Reserve an amount on a card, to capture it later."""
        return cast(ReservedOne, self._start("pre-auth", id, amount, fields, StartFields, whole=False))

    def re_auth(self, id: Id, amount: Amount, **fields: Unpack[DerivedFields]) -> ReservedOne:  # noqa: A002
        """Change the amount that a pre-authorization reserves."""
        return cast(ReservedOne, self._start("re-auth", id, amount, fields, DerivedFields, whole=False))

    def capture(self, id: Id, amount: Amount, **fields: Unpack[DerivedFields]) -> PaidOne:  # noqa: A002
        """Charge the amount that a pre-authorization reserves, or a part of that amount."""
        return cast(PaidOne, self._start("capture", id, amount, fields, DerivedFields, whole=False))

    def post_tip(self, id: Id, amount: Amount, **fields: Unpack[DerivedFields]) -> PaidOne:  # noqa: A002
        """Add a tip to an approved charge."""
        return cast(PaidOne, self._start("post-tip", id, amount, fields, DerivedFields, whole=False))

    def void(self, id: Id, amount: Amount | None = None, **fields: Unpack[DerivedFields]) -> ReversedOne:  # noqa: A002
        """Reverse a charge, a capture or a pre-authorization. No amount is needed."""
        return cast(ReversedOne, self._start("void", id, amount, fields, DerivedFields, whole=True))

    def refund(self, id: Id, amount: Amount | None = None, **fields: Unpack[DerivedFields]) -> ReversedOne:  # noqa: A002
        """Refund a charge or a capture, or only a part of it (`amount`)."""
        return cast(ReversedOne, self._start("refund", id, amount, fields, DerivedFields, whole=True))
