"""Where a payment stands: its phase, what the terminal said last, its result, and what that rests on."""

from collections.abc import Iterator, Mapping
from typing import Final

from posd.cli.explain.texts.rows import (
    MAY_BE_CHARGED,
    NO,
    NOTHING_MORE,
    OTHER_CARD,
    SOON_CHARGED,
    TRY_AGAIN,
    WAIT,
    Row,
    es,
    sentence,
)
from posd.cli.payments import words

COUNTS: Final = ("It is the terminal's word: it counts.", "Es la palabra del terminal: cuenta.")

#: How a payment ended. The English of means is in `posd.cli.payments.words`, as that of states and evidence.
RESULTS: Mapping[str, Row] = {
    "approved": Row(
        means=es("Se cobró al cliente."),
        comes=("The bank approved it.", "El banco aprobó."),
        money=("The customer was charged.", "Sí: se cobró al cliente."),
        do=NOTHING_MORE,
    ),
    "declined": Row(
        means=es("El banco lo rechazó; no se cobró al cliente."),
        comes=("The bank said no.", "El banco dijo que no."),
        money=NO,
        do=OTHER_CARD,
    ),
    "rejected": Row(
        means=es("El terminal lo rechazó; no se cobró al cliente."),
        comes=(
            "The terminal ended it before the bank was asked: a card that it cannot read, a wrong PIN, a time-out.",
            (
                "El terminal lo terminó antes de consultar al banco: una tarjeta que no puede leer, un PIN errado, el "
                "tiempo."
            ),
        ),
        money=(
            "No, unless the bank was asked before (reached_acquirer is then not false).",
            "No, salvo que antes se haya consultado al banco (reached_acquirer no es entonces false).",
        ),
        do=TRY_AGAIN,
    ),
    "canceled": Row(
        means=es("Fue cancelado; no se cobró al cliente."),
        comes=(
            "The customer or the cashier ended it at the terminal, or an abort did.",
            "El cliente o el cajero lo terminó en el terminal, o lo hizo una orden de abortar.",
        ),
        money=(
            "No, unless the bank was asked before (reached_acquirer is then not false).",
            "No, salvo que antes se haya consultado al banco (reached_acquirer no es entonces false).",
        ),
        do=TRY_AGAIN,
    ),
    "not_started": Row(
        means=es("No empezó; no se cobró al cliente."),
        comes=(
            (
                "The terminal refused the request, it was provably never sent, or it is proved that the terminal never "
                "ran it."
            ),
            "El terminal rechazó la solicitud, está probado que no se envió, o que el terminal nunca lo ejecutó.",
        ),
        money=NO,
        do=(
            "Mend what its reason names; to try again, start a new payment.",
            "Arregle lo que nombra su razón. Para intentar otra vez, inicie un pago nuevo.",
        ),
    ),
}


PHASES: Mapping[str, Row] = {
    "starting": Row(
        means=("The request is on its way to the terminal.", "La solicitud va al terminal."),
        comes=("The till has just started it.", "La caja acaba de iniciarlo."),
        money=MAY_BE_CHARGED,
        do=("Wait half a minute.", "Espere medio minuto."),
        see="The payment hangs at starting",
    ),
    "in_doubt": Row(
        means=("It is not known whether the terminal took it.", "No se sabe si el terminal lo tomó."),
        comes=(
            "The request was sent, and no answer that counts came.",
            "La solicitud se envió, y no llegó una respuesta que valga.",
        ),
        money=MAY_BE_CHARGED,
        do=(
            "posd asks the terminal by itself. Look at its screen; ask it at once:",
            "posd pregunta al terminal por sí mismo. Mire su pantalla; pregunte ahora:",
        ),
        commands=("posd reconcile ID",),
        see="The payment is in doubt",
    ),
    "active": Row(
        means=("The terminal has it and works on it.", "El terminal lo tiene y trabaja en él."),
        comes=(
            "The terminal acknowledged it, or an event of it came.",
            "El terminal lo confirmó, o llegó un evento suyo.",
        ),
        money=SOON_CHARGED,
        do=(
            "Follow the terminal's screen, and wait for the outcome:",
            "Siga la pantalla del terminal, y espere el resultado:",
        ),
        commands=("posd await ID",),
    ),
    "final": Row(
        means=("It has ended; the outcome says how.", "Terminó; el resultado dice cómo."),
        comes=(
            "The terminal said so, it is proved, or a person said so.",
            "Lo dijo el terminal, está probado, o lo dijo una persona.",
        ),
        money=("As the outcome says.", "Como dice el resultado."),
        do=("Look at the outcome:", "Mire el resultado:"),
        commands=("posd show ID",),
    ),
}


#: What the terminal said last.
STATUSES: Mapping[str, Row] = {
    "TERMINAL_ACKNOWLEDGED": Row(
        means=es("El terminal lo tiene: mire su pantalla, puede pedir la tarjeta."),
        money=(
            "Not yet: nothing is charged before a card is read.",
            "Todavía no: no se cobra nada antes de leer una tarjeta.",
        ),
        do=("Follow the terminal.", "Siga el terminal."),
    ),
    "CARD_PRESENTED": Row(
        means=es("Se leyó la tarjeta; puede que el cliente deba poner el PIN."),
        money=("Not yet; it can be at any moment.", "Todavía no; puede pasar ahora."),
        do=WAIT,
    ),
    "APPROVAL_REQUESTED": Row(
        means=es("Se consulta al banco; ya no se puede abortar."),
        money=MAY_BE_CHARGED,
        do=WAIT,
        see="It hangs at the bank",
    ),
    "TERMINAL_CANCELED": Row(
        means=es("Cancelado en el terminal."),
        money=(
            "No, unless the bank was asked before.",
            "No, salvo que antes se haya consultado al banco (reached_acquirer no es entonces false).",
        ),
        do=TRY_AGAIN,
    ),
    "TERMINAL_REJECTED": Row(
        means=es("El terminal lo rechazó."),
        money=(
            "No, unless the bank was asked before.",
            "No, salvo que antes se haya consultado al banco (reached_acquirer no es entonces false).",
        ),
        do=TRY_AGAIN,
    ),
    "DECLINED": Row(
        means=es("El banco lo rechazó."),
        money=NO,
        do=OTHER_CARD,
    ),
    "APPROVAL": Row(
        means=es("El banco aprobó."),
        money=("The customer was charged.", "Sí: se cobró al cliente."),
        do=NOTHING_MORE,
    ),
}


EVIDENCE: Mapping[str, Row] = {
    "event": Row(
        means=es("El terminal lo informó."),
        comes=("An event of the terminal states the end.", "Un evento del terminal dice el final."),
        money=COUNTS,
    ),
    "search": Row(
        means=es("Se preguntó al terminal."),
        comes=(
            "posd asked the terminal, and its answer states the end; or it found nothing, as a part of a proof.",
            ("posd preguntó al terminal, y su respuesta dice el final; o no encontró nada, como parte de una prueba."),
        ),
        money=COUNTS,
    ),
    "refusal": Row(
        means=es("La respuesta del terminal a la solicitud."),
        comes=(
            "It was an error: a refusal (HTTP 3xx or 4xx), or a cancellation.",
            "Fue un error: un rechazo (HTTP 3xx o 4xx), o una cancelación.",
        ),
        money=(
            "No, as far as the terminal tells: an event that comes later corrects it.",
            "No, según el terminal: un evento que llegue después lo corrige.",
        ),
    ),
    "unsent": Row(
        means=es("La solicitud nunca se envió."),
        comes=("No connection to the terminal came about.", "No hubo conexión con el terminal."),
        money=NO,
    ),
    "abort": Row(
        means=es("Se pidió al terminal abortar, y no ejecutaba nada."),
        comes=(
            "The terminal was asked twice for an abort, as a part of a proof.",
            "Se le pidió dos veces, como parte de una prueba.",
        ),
        money=NO,
    ),
    "operator": Row(
        means=es("La palabra de una persona."),
        comes=("posd resolve.", "La orden posd resolve."),
        money=(
            "A person said so. What the terminal says later counts more, and corrects it.",
            "Lo dijo una persona. Lo que el terminal diga después vale más, y lo corrige.",
        ),
    ),
}


def results() -> Iterator[tuple[str, Row]]:
    """Yield each result and what is said of it, as of a charge."""
    for code, (_, template) in words.RESULTS.items():
        yield code, _meaning(RESULTS[code], words.OPERATIONS["charge"].fill(template))


def statuses() -> Iterator[tuple[str, Row]]:
    """Yield each state of the terminal and what is said of it."""
    for code, hint in words.STATUS_HINTS.items():
        if code is not None:
            yield code, _meaning(STATUSES[code], sentence(hint))


def evidence() -> Iterator[tuple[str, Row]]:
    """Yield each evidence and what is said of it."""
    for code, known in words.EVIDENCE.items():
        yield code, _meaning(EVIDENCE[code], sentence(known))


def _meaning(row: Row, english: str) -> Row:
    return row._replace(means=(english, row.means[1]))
