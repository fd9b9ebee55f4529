"""The operation types, one row each: what the till has to give, what goes to the terminal, what may follow what.

The terminal API shows the charge, and of the others their words and their references; their paths are
assumptions (`posd.config.profile`). A further operation is a word of `OperationType`, a row here, and a path there;
where its body is special, a function too. What a reply to the request means is the same for all of them:
`posd.payments.start_replies`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final

import msgspec

from posd.payments.model import OperationType, Transaction

CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP, VOID = OperationType.CAPTURE, OperationType.POST_TIP, OperationType.VOID


class Takes(Enum):
    """Which reference is sent for an `original`."""

    ITS_OWN = auto()  # the one that its approval gave
    NEWEST = auto()  # that of its newest approved re-authorization, else its own


class Stands(Enum):
    """When another operation of the same type and original stands in the way."""

    NEVER = auto()
    OPEN = auto()
    OPEN_OR_APPROVED = auto()


def standard_body(transaction: Transaction) -> dict[str, Any]:
    """Return the fields of the request but those that each request has: exact amounts, as the till gave.

    Source: terminal API, Start request.
    """
    body: dict[str, Any] = {}
    if transaction.amount != b"{}":
        body["amount"] = msgspec.Raw(transaction.amount)
    if transaction.transaction_reference is not None:
        body["transaction_reference"] = transaction.transaction_reference
    return body


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation type.

    `originals`: the types that it can be derived from; empty where it begins a chain and takes no reference.
    `wire`: what a final event calls it (terminal API, Events); None where that is not published.
    `compares`: whether what the acquirer authorizes is known to be the amount that was asked for.
    """

    wire: str | None
    originals: frozenset[OperationType] = frozenset()
    takes: Takes = Takes.ITS_OWN
    another: Stands = Stands.NEVER
    needs_amount: bool = True
    compares: bool = True
    body: Callable[[Transaction], dict[str, Any]] = standard_body


OPERATIONS: Final[Mapping[OperationType, Operation]] = MappingProxyType(
    {
        CHARGE: Operation(wire="CHARGE"),
        PRE_AUTH: Operation(wire="PREAUTH"),
        CAPTURE: Operation(
            wire="CAPTURE",
            originals=frozenset({PRE_AUTH}),
            takes=Takes.NEWEST,
            another=Stands.OPEN_OR_APPROVED,
        ),
        # The reference that is sent is the pre-authorization's (terminal API, Events).
        RE_AUTH: Operation(
            wire="REAUTHORIZATION",
            originals=frozenset({PRE_AUTH}),
            another=Stands.OPEN,
        ),
        POST_TIP: Operation(
            wire=None,
            originals=frozenset({CHARGE}),
            another=Stands.OPEN_OR_APPROVED,
            compares=False,
        ),
        # What is held for a re-authorized pre-authorization stands under the newest reference (terminal API, Events).
        VOID: Operation(
            wire=None,
            originals=frozenset({CHARGE, PRE_AUTH, CAPTURE}),
            takes=Takes.NEWEST,
            another=Stands.OPEN_OR_APPROVED,
            needs_amount=False,
            compares=False,
        ),
    }
)

#: Wire names of operation types in a final event; an orphan's type is read from them.
WIRE_TYPES: Final[Mapping[str, OperationType]] = MappingProxyType(
    {row.wire: kind for kind, row in OPERATIONS.items() if row.wire is not None}
)
