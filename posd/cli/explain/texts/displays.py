"""What a till may show to its cashier, and what it does next."""

from collections.abc import Iterator, Mapping

from posd.base.negotiation import Language
from posd.cli.app.advice import NEXT_STEPS as ADVICE
from posd.cli.app.advice import REFUSED_STEPS
from posd.cli.explain.texts.rows import MAY_BE_CHARGED, NOTHING_MORE, SOON_CHARGED, TRY_AGAIN, WAIT, Row, es, sentence
from posd.cli.payments.words import OPERATIONS
from posd.payments import display
from posd.payments.model import OperationType

#: What a display means is its text in both languages (`posd.payments.display`).
DISPLAYS: Mapping[str, Row] = {
    "sending": Row(
        comes=(
            "The payment is recorded, and the request is on its way to the terminal.",
            "El pago está guardado, y la solicitud va al terminal.",
        ),
        money=SOON_CHARGED,
        do=WAIT,
    ),
    "present_card": Row(
        comes=(
            "The terminal took the payment and shows what it wants.",
            "El terminal tomó el pago y muestra qué quiere.",
        ),
        money=("Nothing is charged before a card is read.", "No se cobra nada antes de leer una tarjeta."),
        do=("Follow the terminal's screen. To stop it:", "Siga la pantalla del terminal. Para detenerlo:"),
        commands=("posd abort ID",),
    ),
    "card_read": Row(
        comes=(
            "The card was presented; the customer may have to enter the PIN.",
            "Se presentó la tarjeta; puede que el cliente deba poner el PIN.",
        ),
        money=SOON_CHARGED,
        do=WAIT,
    ),
    "asking_bank": Row(
        comes=(
            "The terminal asked the bank; it can no longer be aborted.",
            "El terminal consultó al banco; ya no se puede abortar.",
        ),
        money=MAY_BE_CHARGED,
        do=WAIT,
        see="It hangs at the bank",
    ),
    "aborting": Row(
        comes=(
            "A till asked to abort, and the terminal may have taken that; posd asks for the result within seconds.",
            "Una caja pidió abortar, y puede que el terminal lo tomara; posd pregunta el resultado en segundos.",
        ),
        money=(
            "An approval can be faster than the abort: then the customer is charged.",
            "Una aprobación puede llegar antes que el aborto: entonces se cobra al cliente.",
        ),
        do=WAIT,
    ),
    "looking": Row(
        comes=(
            "posd cannot say how it stands just now, and asks the terminal for it.",
            "posd no puede decir ahora cómo está, y lo pregunta al terminal.",
        ),
        money=MAY_BE_CHARGED,
        do=("Wait, and look at the terminal's screen.", "Espere, y mire la pantalla del terminal."),
    ),
    "paid": Row(
        comes=("A charge, a capture or a tip was approved.", "Un cobro, una captura o una propina fue aprobada."),
        money=("The customer was charged the amount that is shown.", "Se cobró al cliente el monto que se muestra."),
        do=NOTHING_MORE,
    ),
    "reserved": Row(
        comes=(
            "A pre-authorization or a re-authorization was approved.",
            "Una preautorización o una reautorización fue aprobada.",
        ),
        money=(
            "The amount is reserved on the card; nothing is charged before it is captured.",
            "El monto está reservado en la tarjeta; no se cobra nada antes de capturarlo.",
        ),
        do=(
            "Capture it to charge the customer, or void it to give it up:",
            "Captúrelo para cobrar al cliente, o anúlelo para dejarlo:",
        ),
        commands=("posd capture ID AMOUNT", "posd void ID"),
    ),
    "reversed": Row(
        comes=("A void or a refund was approved.", "Una anulación o una devolución fue aprobada."),
        money=("The customer gets the money back.", "El cliente recibe el dinero."),
        do=NOTHING_MORE,
    ),
    "not_paid": Row(
        comes=(
            "It was declined, rejected, canceled, or provably never started.",
            "Fue rechazado o cancelado, o está probado que nunca empezó.",
        ),
        money=("No. The customer was not charged by it.", "No. No se cobró al cliente por él."),
        do=TRY_AGAIN,
    ),
    "call_supervisor": Row(
        comes=(
            (
                "The payment is in doubt for longer than a moment, the terminal gives no account of one that it took "
                "more than 15 minutes ago, or what the terminal said contradicts itself."
            ),
            (
                "El pago está en duda por más de un momento, el terminal no da cuenta de uno que tomó hace más de 15 "
                "minutos, o lo que dijo el terminal se contradice."
            ),
        ),
        money=(
            "It is not certain: the customer may be charged. Do not charge again.",
            "No es seguro: puede que se haya cobrado al cliente. No cobre otra vez.",
        ),
        do=(
            "A person looks at the payment, and does what stands there:",
            "Una persona mira el pago, y hace lo que dice allí:",
        ),
        commands=("posd list --attention", "posd show ID"),
        see="The payment is in doubt",
    ),
}


#: The English of do is in `posd.cli.app.advice`.
OF_THE_ID = (
    "This call sent nothing. Only never_started says that no earlier call with the id did.",
    "Esta llamada no envió nada. Solo never_started dice que tampoco lo hizo una anterior con el id.",
)
NEXT_STEPS: Mapping[str, Row] = {
    "wait": Row(
        means=("The payment is open and goes on.", "El pago está abierto y sigue."),
        comes=(
            "The terminal works on it, or posd asks the terminal for it.",
            "El terminal trabaja en él, o posd pregunta por él al terminal.",
        ),
        money=MAY_BE_CHARGED,
        do=es("Espere el resultado. Mientras tanto no inicie este pago otra vez."),
    ),
    "done": Row(
        means=(
            "The payment is approved, and nothing contradicts that.",
            "El pago está aprobado, y nada lo contradice.",
        ),
        comes=("The terminal said so, or a person did.", "Lo dijo el terminal, o una persona."),
        money=(
            "The customer was charged (a reservation: it is reserved; a void or a refund: the money goes back).",
            "Se cobró al cliente (una reserva: está reservada; una anulación o devolución: el dinero vuelve).",
        ),
        do=es("Nada más."),
    ),
    "new_id_ok": Row(
        means=(
            "The payment has ended, and it charged no customer.",
            "El pago terminó, y no se cobró a nadie por él.",
        ),
        comes=(
            "It was declined, rejected, canceled, or provably never started.",
            "Fue rechazado o cancelado, o está probado que nunca empezó.",
        ),
        money=("No. The till may start again, under a new id.", "No. La caja puede iniciar otra vez, con otro id."),
        do=es("Para intentar otra vez, inicie un pago nuevo."),
    ),
    "ask_person": Row(
        means=(
            "The till cannot go on by itself: a person has to look.",
            "La caja no puede seguir sola: una persona debe mirar.",
        ),
        comes=(
            (
                "The payment is in doubt for longer than a moment, the terminal gives no account of one that it took "
                "more than 15 minutes ago, or what the terminal said contradicts itself."
            ),
            (
                "El pago está en duda por más de un momento, el terminal no da cuenta de uno que tomó hace más de 15 "
                "minutos, o lo que dijo el terminal se contradice."
            ),
        ),
        money=(
            "The customer may be charged: do not charge again before that is settled.",
            "Puede que se haya cobrado al cliente: no cobre otra vez antes de aclararlo.",
        ),
        do=es("Pregunte al encargado. No inicie este pago otra vez antes de aclararlo."),
        see="The payment is in doubt",
    ),
    "fix_call": Row(
        means=("posd refused the call, and the call is wrong.", "posd rechazó la llamada, y la llamada está mal."),
        money=OF_THE_ID,
        do=es("Corrija la llamada, y conserve el id."),
    ),
    "same_call": Row(
        means=("posd cannot take the call now.", "posd no puede tomar la llamada ahora."),
        money=OF_THE_ID,
        do=es("Repita la misma llamada con el mismo id."),
    ),
}


def displays() -> Iterator[tuple[str, Row]]:
    """Yield each display and what is said of it, as of a charge."""
    for code in display.DisplayCode:
        words = display.text(code, OperationType.CHARGE)
        english, spanish = (sentence(words.of(language, " 11.20")) for language in (Language.EN, Language.ES))
        yield code, DISPLAYS[code]._replace(means=(english, spanish))


def next_steps() -> Iterator[tuple[str, Row]]:
    """Yield each next step and what is said of it, as of a charge."""
    for code, words in {**ADVICE, **REFUSED_STEPS, **ADVICE}.items():
        row = NEXT_STEPS[code]
        yield code, row._replace(do=(OPERATIONS["charge"].fill(words), row.do[1]))
