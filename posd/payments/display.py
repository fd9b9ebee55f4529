"""Display for a cashier: the code and text for the state of a transaction (local API, `display`).

No text may suggest another charge while another charge is unsafe. So `not_paid` is used only if the till may start a
new payment (`new_id_ok`). If the outcome is unknown, the text tells the cashier not to charge again.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base.operations import OPERATIONS, OperationType
from posd.base.text import Language, Text
from posd.payments.lifecycle import Status
from posd.payments.model import NextStep, Result, Transaction
from posd.records.model import Phase


class DisplayCode(StrEnum):
    """Code of a display. The till can show a text of its own for each code."""

    SENDING = "sending"
    PRESENT_CARD = "present_card"
    CARD_READ = "card_read"
    ASKING_BANK = "asking_bank"
    ABORTING = "aborting"
    LOOKING = "looking"
    PAID = "paid"
    RESERVED = "reserved"
    REVERSED = "reversed"
    NOT_PAID = "not_paid"
    CALL_SUPERVISOR = "call_supervisor"


class Display(msgspec.Struct, frozen=True):
    """Message that a till may show to its cashier."""

    code: Annotated[DisplayCode, Meta(description="the meaning of the text; with `type` it decides the text")]
    text: Annotated[
        str, Meta(description="one line, in the language of the call's `Accept-Language`, else of the configuration")
    ]


_CARD = Text("Present the card", "Presente la tarjeta")
#: Text for operations that may need no card.
_FOLLOW = Text("Follow the terminal, it may ask for the card", "Siga los pasos del terminal, puede pedir la tarjeta")
#: Text for an orphan of unknown type, which may be a charge or a refund.
_UNDONE = Text("NOT APPROVED: nothing has changed", "NO APROBADO: no cambió nada")

#: Texts that do not depend on the operation type.
TEXTS: Mapping[DisplayCode, Text] = {
    DisplayCode.SENDING: Text("Sending to the terminal, please wait", "Enviando al terminal. Espere, por favor"),
    DisplayCode.CARD_READ: Text("Card read, please wait", "Tarjeta leída. Espere, por favor"),
    DisplayCode.ASKING_BANK: Text("Asking the bank, please wait", "Consultando al banco. Espere, por favor"),
    DisplayCode.ABORTING: Text(
        "Stopping at the terminal. Wait for the result", "Deteniendo la operación en el terminal. Espere el resultado"
    ),
    DisplayCode.LOOKING: Text(
        "Checking with the terminal. Do not charge again", "Verificando con el terminal. No cobre otra vez"
    ),
    DisplayCode.PAID: Text("PAID{amount}", "PAGADO{amount}"),
    DisplayCode.RESERVED: Text("RESERVED{amount}", "RESERVADO{amount}"),
    DisplayCode.REVERSED: Text("REVERSED{amount}", "REVERSADO{amount}"),
    DisplayCode.CALL_SUPERVISOR: Text(
        "CALL THE SUPERVISOR. It is not certain what was done. Do not charge again",
        "LLAME AL SUPERVISOR. No se sabe qué se hizo. No cobre otra vez",
    ),
}

#: Word between the authorized amount and a larger requested amount.
OF = Text("of", "de")

#: Lifecycle state of an active transaction -> display code. Any other state has the code `looking`.
ACTIVE: Mapping[Status | None, DisplayCode] = {
    Status.TERMINAL_ACKNOWLEDGED: DisplayCode.PRESENT_CARD,
    Status.CARD_PRESENTED: DisplayCode.CARD_READ,
    Status.APPROVAL_REQUESTED: DisplayCode.ASKING_BANK,
}


def code(transaction: Transaction, step: NextStep) -> DisplayCode:
    """Return the display code of a transaction. `step`: the till's next step for it."""
    phase, outcome = transaction.phase, transaction.outcome
    if step is NextStep.ASK_PERSON:
        return DisplayCode.CALL_SUPERVISOR
    if outcome is not None:
        return approval(transaction.type) if outcome.result is Result.APPROVED else DisplayCode.NOT_PAID
    if transaction.trail.aborting:
        return DisplayCode.ABORTING
    if phase is Phase.STARTING:
        return DisplayCode.SENDING
    return ACTIVE.get(transaction.status, DisplayCode.LOOKING) if phase is Phase.ACTIVE else DisplayCode.LOOKING


def approval(kind: OperationType | None) -> DisplayCode:
    """Return the display code for an approved operation of that type."""
    if kind is None:
        return DisplayCode.CALL_SUPERVISOR
    if OPERATIONS[kind].reverses:
        return DisplayCode.REVERSED
    return DisplayCode.RESERVED if OPERATIONS[kind].reserves else DisplayCode.PAID


def text(said: DisplayCode, kind: OperationType | None) -> Text:
    """Return the text of a code. `kind`: the operation type of the transaction."""
    row = OPERATIONS[kind] if kind else None
    match said:
        case DisplayCode.NOT_PAID:
            return row.undone if row else _UNDONE
        case DisplayCode.REVERSED if kind is OperationType.REFUND:
            return Text("REFUNDED{amount}", "DEVUELTO{amount}")
        case DisplayCode.PRESENT_CARD:
            return _CARD if row and row.asks_for_card else _FOLLOW
        case _:
            return TEXTS[said]


def display(transaction: Transaction, step: NextStep, language: Language) -> Display:
    """Return the display of a transaction. `step`: the till's next step for it."""
    said = code(transaction, step)
    return Display(said, text(said, transaction.type).of(language, _amount(transaction, language)))


def _amount(transaction: Transaction, language: Language) -> str:
    """Return the authorized amount, else the requested amount, with a leading space.

    Return an empty text if both are unknown. If less was authorized than requested, return both amounts, because the
    rest is not paid.
    """
    outcome, asked = transaction.outcome, transaction.total
    authorized = outcome.authorized_amount if outcome is not None else None
    if authorized is None:
        return f" {written(asked)}" if asked else ""
    less = authorized < asked and (transaction.type is None or OPERATIONS[transaction.type].compares)
    return f" {written(authorized)} {OF.of(language)} {written(asked)}" if less else f" {written(authorized)}"


def written(amount: Decimal) -> str:
    """Return an amount as text: all its digits, and at least two after the point."""
    whole, _, fraction = f"{amount:f}".partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"
