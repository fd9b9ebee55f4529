"""Operation types, one row each: request to the terminal, effect on money, and allowed following operations.

The terminal API describes only the charge completely. For the other types the terminal API gives only the names in
events and the references. The paths here are assumptions (`posd.config.profile`). To add an operation, add a word to
`OperationType` and a row here. The meaning of a reply does not depend on the type: see `posd.payments.answers`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from posd.base.text import Text


class OperationType(StrEnum):
    """Requested operation (local API, `type`)."""

    CHARGE = "charge"
    PRE_AUTH = "pre-auth"
    RE_AUTH = "re-auth"
    CAPTURE = "capture"
    POST_TIP = "post-tip"
    VOID = "void"
    REFUND = "refund"


CHARGE, PRE_AUTH, RE_AUTH = OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.RE_AUTH
CAPTURE, POST_TIP = OperationType.CAPTURE, OperationType.POST_TIP
VOID, REFUND = OperationType.VOID, OperationType.REFUND

_Types = frozenset[OperationType]
_NONE: _Types = frozenset()


class Operation(NamedTuple):
    """One operation type. It is not a Struct, because shell completion reads it without loading msgspec.

    `command`: name of the command that starts it. `purpose`: what the command does.
    `path`: last part of the path. `published`: whether the terminal API has that path.
    `wire`: word for the type in a final event (terminal API, Events); None if not published.
    `undone`: text for a cashier if the operation was not approved (`posd.payments.display`).
    `asks_for_card`: whether the terminal certainly asks for the card. For other types this is unknown.

    `originals`: types that its original can have; empty if it begins a chain and has no reference.
    `takes_newest`: whether it is sent with the reference of the original's newest approved re-authorization.
    `ended_by`: after an approved operation of one of these types on the same original, this one is never started.
    `repeats`: after an approved operation of one of these types on the same original, this one needs `additional`.
    Source: local API, Chains.

    `compares`: whether the authorized amount must equal the requested amount.
    `reserves`: whether it changes a reservation, and moves no money. `reverses`: whether it returns or releases money.
    `by_original`: whether its effect depends on the original.
    """

    command: str
    purpose: str
    path: str
    undone: Text
    published: bool = False
    wire: str | None = None
    asks_for_card: bool = False
    originals: _Types = _NONE
    takes_newest: bool = False
    ended_by: _Types = _NONE
    repeats: _Types = _NONE
    needs_amount: bool = True
    compares: bool = True
    reserves: bool = False
    reverses: bool = False
    by_original: bool = False


OPERATIONS: Final[Mapping[OperationType, Operation]] = {
    CHARGE: Operation(
        command="charge",
        purpose="Charge a card",
        path="charge",
        published=True,
        wire="CHARGE",
        undone=Text("NOT PAID", "NO PAGADO"),
        asks_for_card=True,
    ),
    PRE_AUTH: Operation(
        command="preauth",
        purpose="Reserve an amount on a card, to capture it later",
        path="authorization",
        wire="PREAUTH",
        undone=Text("NOT RESERVED", "NO RESERVADO"),
        asks_for_card=True,
        reserves=True,
    ),
    CAPTURE: Operation(
        command="capture",
        purpose="Charge what a pre-authorization reserves",
        path="capture",
        wire="CAPTURE",
        undone=Text("NOT CAPTURED: the reservation is as before", "NO CAPTURADO: la reserva sigue como antes"),
        originals=frozenset({PRE_AUTH}),
        takes_newest=True,
        ended_by=frozenset({VOID}),
        repeats=frozenset({CAPTURE}),
    ),
    # A re-authorization is sent with the reference of the pre-authorization (terminal API, Events).
    RE_AUTH: Operation(
        command="reauth",
        purpose="Change what a pre-authorization reserves",
        path="re_authorization",
        wire="REAUTHORIZATION",
        undone=Text("NOT CHANGED: the reservation is as before", "SIN CAMBIOS: la reserva sigue como antes"),
        originals=frozenset({PRE_AUTH}),
        ended_by=frozenset({VOID}),
        repeats=frozenset({CAPTURE}),
        reserves=True,
    ),
    POST_TIP: Operation(
        command="tip",
        purpose="Add a tip to an approved charge or capture",
        path="pos_tip",
        undone=Text("TIP NOT PAID: the payment is as before", "PROPINA NO PAGADA: el pago sigue como antes"),
        originals=frozenset({CHARGE, CAPTURE}),
        ended_by=frozenset({VOID}),
        repeats=frozenset({POST_TIP}),
        compares=False,
        by_original=True,
    ),
    # The reservation of a re-authorized pre-authorization has the newest reference (terminal API, Events).
    # After a capture, the capture is the original to void.
    VOID: Operation(
        command="void",
        purpose="Reverse a charge, a capture or a pre-authorization",
        path="void",
        undone=Text("NOT REVERSED: all is as before", "NO REVERSADO: todo sigue como antes"),
        originals=frozenset({CHARGE, PRE_AUTH, CAPTURE}),
        takes_newest=True,
        ended_by=frozenset({CAPTURE, REFUND, VOID}),
        needs_amount=False,
        compares=False,
        reverses=True,
        by_original=True,
    ),
    REFUND: Operation(
        command="refund",
        purpose="Give back a charge or a capture, or a part of it",
        path="refund",
        undone=Text("NOT REFUNDED: the payment is as before", "NO DEVUELTO: el pago sigue como antes"),
        originals=frozenset({CHARGE, CAPTURE}),
        ended_by=frozenset({VOID}),
        repeats=frozenset({REFUND}),
        needs_amount=False,
        compares=False,
        reverses=True,
        by_original=True,
    ),
}

#: Word in a final event -> operation type. The word gives the type of an orphan.
WIRE_TYPES: Final[Mapping[str | None, OperationType]] = {
    row.wire: kind for kind, row in OPERATIONS.items() if row.wire is not None
}
#: Types that change a reservation, types that return money, and types whose effect does not depend on an original.
RESERVING: Final = frozenset(kind for kind, row in OPERATIONS.items() if row.reserves)
REVERSING: Final = frozenset(kind for kind, row in OPERATIONS.items() if row.reverses)
STANDALONE: Final = frozenset((None, *(kind for kind, row in OPERATIONS.items() if not row.by_original)))
