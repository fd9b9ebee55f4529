"""Failure reasons: why a payment did not start or was not paid."""

from collections.abc import Mapping

from posd.cli.explain.texts.rows import NO, TRY_AGAIN, Row

#: Codes of posd's own in `failure_reason` (its `type` is `posd`).
FAILURES: Mapping[str, Row] = {
    "refused": Row(
        means=("The terminal refused the request.", "El terminal rechazó la solicitud."),
        comes=(
            "It answered by an error: it is busy, it does not know the call, or the request is not as it wants it.",
            "Respondió con un error: está ocupado, no conoce la llamada, o la solicitud no es como la quiere.",
        ),
        money=("No. The terminal says that it does not run it.", "No. El terminal dice que no lo ejecuta."),
        do=("Look at what it answered; then start a new payment:", "Mire qué respondió; luego inicie un pago nuevo:"),
        commands=("posd show ID",),
    ),
    "canceled": Row(
        means=(
            "The terminal answered the request itself: the customer canceled on it.",
            "El terminal respondió a la solicitud misma: el cliente canceló en él.",
        ),
        comes=(
            "An error under HTTP 200, which is TERMINAL-SUNMI -1.",
            "Un error con HTTP 200, que es TERMINAL-SUNMI -1.",
        ),
        money=(
            "No, as far as the terminal tells. An event that says otherwise corrects it.",
            "No, según el terminal. Un evento que diga otra cosa lo corrige.",
        ),
        do=TRY_AGAIN,
    ),
    "unsent": Row(
        means=("The request was never sent.", "La solicitud nunca se envió."),
        comes=(
            (
                "No connection to the terminal came about: it is off, its address is wrong, or its certificate is not "
                "trusted."
            ),
            (
                "No hubo conexión con el terminal: está apagado, su dirección está mal, o no se confía en su "
                "certificado."
            ),
        ),
        money=NO,
        do=("See why, and start a new payment:", "Vea por qué, e inicie un pago nuevo:"),
        commands=("posd terminals", "posd doctor"),
        see="The terminal cannot be found",
    ),
    "proved_not_started": Row(
        means=(
            "It is proved that the terminal never ran the payment.",
            "Está probado que el terminal nunca ejecutó el pago.",
        ),
        comes=(
            (
                "Twice, with a pause, the terminal ran nothing and a search did not find it, by operations that are "
                "known to work."
            ),
            (
                "Dos veces, con una pausa, el terminal no ejecutaba nada y una búsqueda no lo encontró, con "
                "operaciones que se sabe que funcionan."
            ),
        ),
        money=NO,
        do=TRY_AGAIN,
    ),
    "resolved": Row(
        means=("A person said that the payment did not start.", "Una persona dijo que el pago no empezó."),
        comes=("posd resolve ID not_started.", "La orden posd resolve ID not_started."),
        money=("No, by that person's word.", "No, por la palabra de esa persona."),
        do=TRY_AGAIN,
    ),
}


#: Codes in `failure_reason` that the simulated terminal sends. Those of a real one are its own and the acquirer's.
SIMULATED: Mapping[str, Row] = {
    "05": Row(
        means=("The bank declines and gives no reason (do not honor).", "El banco rechaza y no da una razón."),
        comes=("A code of the bank, in ISO 8583.", "Un código del banco, en ISO 8583."),
        money=NO,
        do=("Another card, or another way to pay.", "Otra tarjeta, u otra forma de pagar: un pago nuevo."),
    ),
    "51": Row(
        means=("The card has not enough money (insufficient funds).", "La tarjeta no tiene fondos suficientes."),
        comes=("A code of the bank, in ISO 8583.", "Un código del banco, en ISO 8583."),
        money=NO,
        do=("Another card, or another way to pay.", "Otra tarjeta, u otra forma de pagar: un pago nuevo."),
    ),
    "CARD_WAIT_EXHAUSTED": Row(
        means=("No card was presented in time.", "No se presentó una tarjeta a tiempo."),
        comes=("The terminal waits for a card for so long only.", "El terminal espera una tarjeta solo un tiempo."),
        money=NO,
        do=("Start a new payment.", "Para intentar otra vez, inicie un pago nuevo."),
    ),
    "PIN_WAIT_EXHAUSTED": Row(
        means=("The PIN was not entered in time.", "No se puso el PIN a tiempo."),
        comes=("The terminal waits for it for so long only.", "El terminal espera el PIN solo un tiempo."),
        money=NO,
        do=("Start a new payment.", "Para intentar otra vez, inicie un pago nuevo."),
    ),
}
