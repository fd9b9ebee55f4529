"""The operation types, one row each: how a terminal is asked for them, what they do to money, what may follow what.

The terminal API shows the charge, and of the others their words and their references; their paths are assumptions
(`posd.config.profile`). A further operation is a word of `OperationType` and a row here. What a reply to the request
means is the same for all of them: `posd.payments.answers`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from posd.base.negotiation import Text


class OperationType(StrEnum):
    """What is asked of the terminal (local API, `type`)."""

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


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation type.

    `path`: the last word of its path. `published`: the terminal API has that path.
    `wire`: what a final event calls it (terminal API, Events); None if not published.
    `undone`: what a cashier is shown where it ended without approval (`posd.payments.display`).
    `asks_for_card`: it is known to ask for the card; of the others that is not known.

    `originals`: the types that it can be derived from; empty if it begins a chain and takes no reference.
    `takes_newest`: it is sent the reference of the original's newest approved re-authorization, if there is one.
    `ended_by`: after an approved one of these from the same original it is never started.
    `repeats`: after an approved one of these from the same original it needs `additional`. Source: local API, Chains.

    `compares`: whether what the acquirer authorizes is known to be the amount that was asked for.
    `reserves`: it moves a reservation, and no money. `reverses`: it gives back, or releases.
    `by_original`: what it moves depends on its original.
    """

    path: str
    published: bool = False
    wire: str | None = None
    undone: Text
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
        path="charge",
        published=True,
        wire="CHARGE",
        undone=Text("NOT PAID", "NO PAGADO"),
        asks_for_card=True,
    ),
    PRE_AUTH: Operation(
        path="authorization",
        wire="PREAUTH",
        undone=Text("NOT RESERVED", "NO RESERVADO"),
        asks_for_card=True,
        reserves=True,
    ),
    CAPTURE: Operation(
        path="capture",
        wire="CAPTURE",
        undone=Text("NOT CAPTURED: the reservation is as before", "NO CAPTURADO: la reserva sigue como antes"),
        originals=frozenset({PRE_AUTH}),
        takes_newest=True,
        ended_by=frozenset({VOID}),
        repeats=frozenset({CAPTURE}),
    ),
    # The reference that is sent is the pre-authorization's (terminal API, Events).
    RE_AUTH: Operation(
        path="re_authorization",
        wire="REAUTHORIZATION",
        undone=Text("NOT CHANGED: the reservation is as before", "SIN CAMBIO: la reserva sigue como antes"),
        originals=frozenset({PRE_AUTH}),
        ended_by=frozenset({VOID}),
        repeats=frozenset({CAPTURE}),
        reserves=True,
    ),
    POST_TIP: Operation(
        path="pos_tip",
        undone=Text("TIP NOT PAID: the payment is as before", "PROPINA NO PAGADA: el pago sigue como antes"),
        originals=frozenset({CHARGE, CAPTURE}),
        ended_by=frozenset({VOID}),
        repeats=frozenset({POST_TIP}),
        compares=False,
        by_original=True,
    ),
    # What is held for a re-authorized pre-authorization stands under the newest reference (terminal API, Events).
    # After a capture the capture is the original to void.
    VOID: Operation(
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

#: Wire names of operation types in a final event; an orphan's type is read from them.
WIRE_TYPES: Final[Mapping[str, OperationType]] = {
    row.wire: kind for kind, row in OPERATIONS.items() if row.wire is not None
}
#: Types that move a reservation, that give back, and whose effect no original changes.
RESERVING: Final = frozenset(kind for kind, row in OPERATIONS.items() if row.reserves)
REVERSING: Final = frozenset(kind for kind, row in OPERATIONS.items() if row.reverses)
STANDALONE: Final = frozenset((None, *(kind for kind, row in OPERATIONS.items() if not row.by_original)))
