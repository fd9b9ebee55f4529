"""A row of the texts of `posd explain`, and the sentences that codes of several kinds share.

In texts ID, SERIAL, CODE and NAME stand for what a person fills in.
"""

from typing import Final, NamedTuple

#: A text in English and in Spanish.
Words = tuple[str, str]

NONE: Final[Words] = ("", "")


class Row(NamedTuple):
    """What is said of a code.

    `means`: what it is. `comes`: how it comes about. `money`: whether money is at stake. `do`: what to do, and
    `commands` to type, in their order. `see`: the heading in docs/operations.md, empty where there is none.
    """

    means: Words = NONE
    comes: Words = NONE
    money: Words = NONE
    do: Words = NONE
    commands: tuple[str, ...] = ()
    see: str = ""


def es(text: str) -> Words:
    """Return the Spanish of a text whose English stands in another table, from where `rows()` of the kind takes it."""
    return "", text


def sentence(words: str) -> str:
    """Write a half sentence of another table as a sentence, without the marks of Markdown."""
    plain = words.replace("`", "")
    first = plain.partition(" ")[0]
    if first == "posd" or "_" in first:  # names are written as they are
        return plain + "."
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "?")) else ".")


NO: Final = ("No.", "No.")
NOT_SENT: Final = (
    "No. Nothing of this call was sent or recorded: no customer was charged by it.",
    "No. No se envió ni se guardó nada de esta llamada: no se cobró a ningún cliente por ella.",
)
MAY_BE_CHARGED: Final = (
    "The customer may be charged: do not charge again.",
    "Puede que se haya cobrado al cliente: no cobre otra vez.",
)
SOON_CHARGED: Final = (
    "The customer may be charged soon: do not charge again.",
    "Pronto puede cobrarse: no cobre otra vez.",
)
IN_DOUBT: Final = (
    "The customer may be charged: do not take the card again until this is settled.",
    "Puede que se haya cobrado al cliente: no pase la tarjeta otra vez hasta que esté aclarado.",
)
#: Of payments that a restore may have lost.
AFTER_RESTORE: Final = (
    (
        "Compare the payments since then with the slips, the terminals and the bank. What one of them shows as paid, "
        "record: its call is answered from that. Say that you have looked; only a call that none shows is repeated:"
    ),
    (
        "Compare los pagos desde entonces con los comprobantes, los terminales y el banco. Lo que uno muestre como "
        "pagado, anótelo: así se responde a la caja. Diga que lo revisó; solo se repite la llamada que ninguno muestra:"
    ),
)
AFTER_RESTORE_COMMANDS: Final = (
    "posd status",
    "posd resolve ID approved --amount 11.20 --terminal SERIAL",
    "posd restore --seen --operator NAME",
)
PRINTS: Final = ("No: a print job moves no money.", "No: una impresión no mueve dinero.")
NOTHING_LOST: Final = (
    "No payment is lost: terminals send an event again, and posd asks for what does not come.",
    "No se pierde ningún pago: los terminales repiten un evento, y posd pregunta por lo que no llega.",
)
WAIT: Final = ("Wait.", "Espere.")
NOTHING_MORE: Final = ("Nothing more to do.", "Nada más.")
TRY_AGAIN: Final = ("To try again, start a new payment.", "Para intentar otra vez, inicie un pago nuevo.")
OTHER_CARD: Final = (
    "Another card, or another way to pay: a new payment.",
    "Otra tarjeta, u otra forma de pagar: un pago nuevo.",
)
