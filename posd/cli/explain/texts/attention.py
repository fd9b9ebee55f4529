"""Attentions of payments and of print jobs, and missing proofs: what a person should look at."""

from collections.abc import Iterator, Mapping
from typing import Final

from posd.cli.app.advice import ATTENTION_ADVICE, Advice
from posd.cli.explain.texts.rows import IN_DOUBT, PRINTS, Row, es, sentence
from posd.cli.payments.words import OPERATIONS
from posd.cli.printing.progress import ATTENTION_ADVICE as PRINT_ADVICE
from posd.payments import missing_proof

TERMINALS_FAULT: Final = ("A fault of the terminal.", "Un error del terminal.")
RESTORED: Final = (
    "The database was restored from a backup, or this machine is a clone of another one.",
    "La base de datos se restauró de una copia, o esta máquina es un clon de otra.",
)

#: Of payments. The English of do, and its commands, are in `posd.cli.app.advice`.
PAYMENTS: Mapping[str, Row] = {
    "in_doubt": Row(
        means=("It is not known whether the terminal took the payment.", "No se sabe si el terminal tomó el pago."),
        comes=(
            (
                "The request was sent, and no answer that counts came: the network broke, the terminal took too long, "
                "or posd was stopped in that moment."
            ),
            (
                "La solicitud se envió, y no llegó una respuesta que valga: falló la red, el terminal tardó demasiado, "
                "o posd se detuvo en ese momento."
            ),
        ),
        money=IN_DOUBT,
        do=es(
            "Mire la pantalla y el registro del terminal; no lo inicie otra vez. Pregunte de nuevo al terminal; "
            "libérelo si debe atender a otros; cierre el pago cuando sepa cómo terminó:"
        ),
        see="The payment is in doubt",
    ),
    "gap": Row(
        means=(
            "An event of the terminal is missing between those that came.",
            "Falta un evento del terminal entre los que llegaron.",
        ),
        comes=(
            "The terminal sends its events one after the other, and one of them was lost on the way or is late.",
            "El terminal envía sus eventos uno tras otro, y uno se perdió o está atrasado.",
        ),
        money=(
            "The outcome counts once it is there; the missing event changes nothing of it.",
            "El resultado vale cuando llega; el evento que falta no lo cambia.",
        ),
        do=es(
            "Puede llegar más tarde. Si no llega, revise la red, pregunte al terminal, y borre este aviso cuando el "
            "pago esté aclarado:"
        ),
    ),
    "stalled": Row(
        means=(
            "The terminal has been silent for long about a payment that it took.",
            "El terminal calla desde hace mucho sobre un pago que tomó.",
        ),
        comes=(
            "It waits for the card or the PIN, it is switched off, or its network is away.",
            "Espera la tarjeta o el PIN, está apagado, o no tiene red.",
        ),
        money=(
            "At the bank (APPROVAL_REQUESTED) the customer may be charged; before the card is read, not yet.",
            (
                "En el banco (APPROVAL_REQUESTED) puede que se haya cobrado al cliente; antes de leer la tarjeta, "
                "todavía no."
            ),
        ),
        do=es(
            "Mire su pantalla y su red. Pregúntele; si el cliente desistió, detenga el pago. Si el terminal no ejecuta "
            "nada, cierre el pago cuando su diario o el adquirente diga cómo terminó:"
        ),
        see="It hangs at the bank",
    ),
    "no_callback": Row(
        means=(
            "The terminal took the payment, and no event of it has come.",
            "El terminal tomó el pago, y no ha llegado ningún evento.",
        ),
        comes=(
            "The terminal does not reach this machine (network, firewall), or does not trust posd's certificate.",
            "El terminal no llega a esta máquina (red, cortafuegos), o no confía en el certificado de posd.",
        ),
        money=(
            "The customer may be charged: only the terminal knows.",
            "Puede que se haya cobrado al cliente: solo el terminal lo sabe.",
        ),
        do=es(
            "Revise que el terminal llegue a esta máquina y confíe en el certificado de posd. El resultado se puede "
            "preguntar:"
        ),
        see="The terminal does not trust posd",
    ),
    "orphan": Row(
        means=(
            "A genuine payment that this database did not know.",
            "Un pago auténtico que esta base de datos no conocía.",
        ),
        comes=RESTORED,
        money=(
            "Its outcome is real: the customer was charged where it says approved.",
            "Su resultado es real: si dice aprobado, se cobró al cliente.",
        ),
        do=es("Compárelo con los datos de la caja, y corrija la caja si anotó otra cosa; luego:"),
        see="The machine was cloned",
    ),
    "serial_mismatch": Row(
        means=("Another terminal answered than the one that was asked.", "Respondió otro terminal que el llamado."),
        comes=(
            "The addresses of two terminals are swapped, or an address belongs to another device now.",
            "Las direcciones de dos terminales están cambiadas, o una dirección es ahora de otro equipo.",
        ),
        money=(
            "The payment ran on another terminal: perhaps another customer paid it.",
            "El pago se hizo en otro terminal: quizás lo pagó otro cliente.",
        ),
        do=es("Averigüe en cuál terminal se hizo, y corrija las direcciones de los terminales; luego:"),
        see="The wrong device answers",
    ),
    "event_id_reused": Row(
        means=(
            "The terminal used one event id for two different messages.",
            "El terminal usó un id de evento para dos mensajes distintos.",
        ),
        comes=(
            "A fault of the terminal. The first message was applied, the second is kept only.",
            "Un error del terminal. El primer mensaje se aplicó, el segundo solo se guardó.",
        ),
        money=(
            "What the second message says of the payment may be true, and does not count.",
            "Lo que dice el segundo mensaje puede ser cierto, y no cuenta.",
        ),
        do=es("Compare el pago con el registro del terminal, y avise a su proveedor; luego:"),
    ),
    "unknown_status": Row(
        means=(
            "The terminal sent a status that this version of posd does not know.",
            "El terminal envió un estado que esta versión de posd no conoce.",
        ),
        comes=("The software of the terminal is newer than posd.", "El programa del terminal es más nuevo que posd."),
        money=(
            "The outcome may be behind it: the customer may be charged.",
            "El resultado puede estar en él: puede que se haya cobrado al cliente.",
        ),
        do=es("Actualice posd, y haga que lea los eventos otra vez; luego:"),
    ),
    "illegal_transition": Row(
        means=(
            "The terminal broke the order of its own states.",
            "El terminal rompió el orden de sus propios estados.",
        ),
        comes=(
            "It gave up after the bank was asked, which it must not do.",
            "Desistió después de consultar al banco, lo que no debe hacer.",
        ),
        money=("The customer may be charged all the same.", "De todos modos puede que se haya cobrado al cliente."),
        do=es("Compruebe en los datos del adquirente si se cobró al cliente; luego:"),
        see="The terminal says approved, the till does not",
    ),
    "conflicting_final": Row(
        means=(
            "The terminal reported two different ends of one payment; the first one stands.",
            "El terminal informó dos finales distintos de un pago; vale el primero.",
        ),
        comes=(
            "A fault of the terminal, or the customer was charged twice.",
            "Un error del terminal, o se cobró dos veces al cliente.",
        ),
        money=(
            "Two approvals with two references: charged twice.",
            "Dos aprobaciones con dos referencias: se cobró dos veces.",
        ),
        do=es(
            "Compruebe con el adquirente si se cobró al cliente, y cuántas veces; anule la segunda aprobación si hay "
            "dos (posd void --reference UUID); luego:"
        ),
        see="Was the customer charged twice?",
    ),
    "outcome_corrected": Row(
        means=(
            "The outcome that the till was told first was wrong, and was corrected.",
            "El resultado que se dijo primero a la caja era falso, y se corrigió.",
        ),
        comes=(
            "A refusal, a proof or a person's word said how it ended, and later the terminal said otherwise.",
            (
                "Un rechazo, una prueba o la palabra de una persona dijo cómo terminó, y después el terminal dijo otra "
                "cosa."
            ),
        ),
        money=(
            "If it was not charged first and is approved now, and the customer paid again: charged twice.",
            "Si primero no se cobró y ahora está aprobado, y el cliente pagó otra vez: se cobró dos veces.",
        ),
        do=es("Revise qué anotó la caja y si este pago se inició otra vez mientras tanto, y corrija ambos; luego:"),
        see="Was the customer charged twice?",
    ),
    "missing_reference": Row(
        means=(
            "The payment is approved, and the acquirer's reference is missing.",
            "El pago está aprobado, y falta la referencia del adquirente.",
        ),
        comes=("The approval of the terminal came without it.", "La aprobación del terminal llegó sin ella."),
        money=(
            "The customer was charged; a void, a capture or a refund by reference is not possible.",
            "Se cobró al cliente; una anulación, captura o devolución por referencia no es posible.",
        ),
        do=es("Guarde el recibo, que puede tenerla; pregunte por ella al terminal; luego:"),
    ),
    "amount_differs": Row(
        means=("The approved amount is not the one that was asked for.", "El monto aprobado no es el que se pidió."),
        comes=(
            "The bank approved a part, a tip was added at the terminal, or the terminal counts in another unit.",
            "El banco aprobó una parte, se agregó propina en el terminal, o el terminal cuenta en otra unidad.",
        ),
        money=(
            "The customer was charged another amount than asked for.",
            "Se cobró al cliente otro monto que el pedido.",
        ),
        do=es("Compare el recibo con la caja, y arregle la diferencia; luego:"),
    ),
    "quarantined_event": Row(
        means=(
            "A genuine message of the terminal could not be used, and was set aside.",
            "Un mensaje auténtico del terminal no se pudo usar, y se apartó.",
        ),
        comes=(
            "Its form is broken, or it contradicts the configuration (another merchant, no right webhook_signature).",
            "Su forma está rota, o contradice la configuración (otro comercio, sin la firma de webhook_signature).",
        ),
        money=("The outcome may be in it.", "El resultado puede estar en él."),
        do=es("Vea por qué, arregle lo que nombra su razón, haga que se aplique; borre este aviso si no se puede:"),
    ),
    "address_changed": Row(
        means=(
            "This machine's address changed while the payment ran.",
            "La dirección de esta máquina cambió durante el pago.",
        ),
        comes=(
            "The network gave this machine another address: the terminal sends its events to the old one.",
            "La red dio otra dirección a esta máquina: el terminal envía sus eventos a la anterior.",
        ),
        money=(
            "Until the outcome is known the customer may be charged. posd asks the terminal for it.",
            "Hasta saber el resultado puede que se haya cobrado al cliente. posd pregunta por él al terminal.",
        ),
        do=es(
            "posd pregunta al terminal por sí mismo. Pregunte ahora; si ya no conoce el pago, ciérrelo cuando el "
            "diario del terminal o el adquirente diga cómo terminó:"
        ),
        see="The terminal got another address",
    ),
    "identity_conflict": Row(
        means=(
            "It is not sure which device is the terminal, so that nothing is sent to it for this payment.",
            "No es seguro qué equipo es el terminal: no se le envía nada para este pago.",
        ),
        comes=(
            "Two devices answer under one serial, or the terminal moved and cannot prove who it is.",
            (
                "Dos equipos responden con un mismo número de serie, o el terminal cambió de dirección y no puede "
                "probar quién es."
            ),
        ),
        money=(
            "The customer may be charged: what the terminal reports by itself still counts.",
            "Puede que se haya cobrado al cliente: lo que el terminal informe por sí mismo cuenta.",
        ),
        do=es("Mire el terminal y su dirección, y diga cuál equipo es:"),
        see="Two devices claim to be one terminal",
    ),
    "released": Row(
        means=(
            "A person freed the terminal of this payment, which is still open.",
            "Una persona liberó el terminal de este pago, que sigue abierto.",
        ),
        comes=("posd release, or the till's call for it.", "posd release, o la llamada de la caja para ello."),
        money=("Whether the customer was charged is open.", "No se sabe si se cobró al cliente."),
        do=es("Pregunte otra vez al terminal, o cierre el pago cuando sepa cómo terminó:"),
    ),
    "event_limit": Row(
        means=(
            "The terminal sends events of this payment without end, and posd keeps no more of them.",
            "El terminal envía eventos de este pago sin fin, y posd ya no guarda más.",
        ),
        comes=TERMINALS_FAULT,
        money=("How the payment ends still gets in.", "El final del pago todavía entra."),
        do=es("Si no termina, pregunte al terminal; reinicie el terminal y avise a su proveedor; luego:"),
    ),
    "damaged_event": Row(
        means=(
            "A message of the terminal was read although a part of it could not be.",
            "Un mensaje del terminal se leyó aunque una parte no se pudo leer.",
        ),
        comes=("Bytes of it were damaged; the detail names the part.", "Estaba dañado; el detalle nombra la parte."),
        money=("What the outcome needs was whole.", "Lo que necesita el resultado estaba entero."),
        do=es("Compare el pago con el recibo del terminal. Si vuelve a pasar, avise a su proveedor; luego:"),
    ),
    "outcome_unread": Row(
        means=(
            "It was approved, and for ten minutes no program has read that.",
            "Fue aprobado, y en diez minutos ningún programa lo leyó.",
        ),
        comes=(
            "The till was stopped while it waited, or does not ask again after a restart; the approval came late.",
            "La caja se detuvo mientras esperaba, o no vuelve a preguntar al reiniciar; la aprobación llegó tarde.",
        ),
        money=(
            "The customer was charged, and the till may not know it.",
            "Se cobró al cliente, y puede que la caja no lo sepa.",
        ),
        do=es(
            "Anótelo en la caja, o anúlelo, antes de pedir al cliente que pague otra vez. Al mostrarlo, el aviso "
            "desaparece:"
        ),
        see="The terminal says approved, the till does not",
    ),
    "approval_unlikely": Row(
        means=(
            (
                "The approval contradicts what was asked for: less than half or more than twice the sum, another "
                "currency, another operation, or a date more than a day away."
            ),
            (
                "La aprobación contradice lo pedido: menos de la mitad o más del doble del monto, otra moneda, otra "
                "operación, o una fecha a más de un día."
            ),
        ),
        comes=(
            "The terminal's clock, currency or amounts are set wrongly, or it approved something else.",
            "El reloj, la moneda o los montos del terminal están mal puestos, o aprobó otra cosa.",
        ),
        money=(
            "The approval counts: the customer was charged, and perhaps another sum.",
            "La aprobación cuenta: se cobró al cliente, y quizás otro monto.",
        ),
        do=es(
            "Compare el recibo del terminal con la caja antes de que el cliente se vaya, y devuelva o cobre la "
            "diferencia. Si todas las aprobaciones de este terminal lo dicen, corrija su reloj, o su moneda en la "
            "configuración; luego:"
        ),
    ),
}


#: Of print jobs. The English of do, and its commands, are in `posd.cli.printing.progress`.
PRINT_JOBS: Mapping[str, Row] = {
    "in_doubt": Row(
        means=(
            "It is not known whether the terminal took the print job.",
            "No se sabe si el terminal tomó la impresión.",
        ),
        comes=("It was sent, and no answer that counts came.", "Se envió, y no llegó una respuesta que valga."),
        money=PRINTS,
        do=es("posd sigue preguntando, y nunca la envía otra vez. Mire qué hay en el papel, y ciérrela:"),
        see="Printed twice, or not at all?",
    ),
    "print_stuck": Row(
        means=(
            "The terminal took the print job long ago and has not ended it.",
            "El terminal tomó la impresión hace mucho y no la terminó.",
        ),
        comes=(
            "Its printer has no paper, is open or jammed, or the terminal is off.",
            "Su impresora no tiene papel, está abierta o atascada, o el terminal está apagado.",
        ),
        money=PRINTS,
        do=es(
            "Mire su impresora (papel, tapa, atasco) y su pantalla: cuando siga, esto termina por sí mismo. Si no, "
            "mire qué hay en el papel y ciérrela:"
        ),
        see="A print job is stuck",
    ),
    "quarantined_event": Row(
        means=(
            "A message of the terminal about the print job could not be used, and was set aside.",
            "Un mensaje del terminal sobre la impresión no se pudo usar, y se apartó.",
        ),
        comes=(
            "Its form is broken, or it has no right signature and webhook_signature expects one.",
            "Su forma está rota, o no tiene la firma que webhook_signature espera.",
        ),
        money=PRINTS,
        do=es("Vea por qué, arregle lo que nombra su razón, haga que se aplique; borre este aviso si no se puede:"),
    ),
    "unknown_status": Row(
        means=(
            "The terminal reports a state of the print job that this version does not know.",
            "El terminal informa un estado de la impresión que esta versión no conoce.",
        ),
        comes=("The software of the terminal is newer than posd.", "El programa del terminal es más nuevo que posd."),
        money=PRINTS,
        do=es("Mire el papel; actualice posd, o ciérrela:"),
    ),
    "id_mismatch": Row(
        means=(
            "The terminal called the print job by two ids of its own.",
            "El terminal dio a la impresión dos ids propios.",
        ),
        comes=(
            "A fault of the terminal: what it said may be of another job.",
            "Un error del terminal: lo que dijo puede ser de otra impresión.",
        ),
        money=PRINTS,
        do=es("Mire el papel; luego:"),
    ),
    "conflicting_final": Row(
        means=(
            "The terminal reported two different ends of the print job; the first one stands.",
            "El terminal informó dos finales distintos de la impresión; vale el primero.",
        ),
        comes=TERMINALS_FAULT,
        money=PRINTS,
        do=es("Mire el papel; luego:"),
    ),
    "outcome_corrected": Row(
        means=(
            "The end that was stated first was wrong, and was corrected.",
            "El final que se dijo primero era falso, y se corrigió.",
        ),
        comes=(
            "A refusal or a person's word said how it ended, and later the terminal said otherwise.",
            "Un rechazo o la palabra de una persona dijo cómo terminó, y después el terminal dijo otra cosa.",
        ),
        money=PRINTS,
        do=es("Vea si se imprimió otra vez mientras tanto; luego:"),
    ),
    "orphan": Row(
        means=("This database did not know the print job.", "Esta base de datos no conocía la impresión."),
        comes=RESTORED,
        money=PRINTS,
        do=es("Mire el papel; luego:"),
    ),
}


#: Why a doubt is not settled yet. The English of means, in which what to do stands too, is in
#: `posd.payments.missing_proof`.
PROOFS: Mapping[str, Row] = {
    "was_acknowledged": Row(
        means=es(
            "El terminal SERIAL dijo algo de este pago: nunca se toma por uno que no empezó. Pregunte por su fin: "
            "posd reconcile ID. O ciérrelo por la palabra de una persona: posd resolve ID RESULT."
        ),
    ),
    "search_not_confirmed": Row(
        means=es(
            "No está confirmado que la búsqueda (search) funcione en el terminal SERIAL como dice el perfil: su "
            "respuesta no prueba nada. Véala funcionar cuando no haya un pago abierto allí: posd terminals commission "
            "SERIAL (o escriba confirmed = true bajo [profile.search] y recargue posd). O ciérrelo por la palabra de "
            "una persona: posd resolve ID RESULT."
        ),
    ),
    "abort_not_confirmed": Row(
        means=es(
            "No está confirmado que abortar (abort) funcione en el terminal SERIAL como dice el perfil: su respuesta "
            "no prueba nada. Véalo funcionar cuando no haya un pago abierto allí: posd terminals commission SERIAL (o "
            "escriba confirmed = true bajo [profile.abort] y recargue posd). O ciérrelo por la palabra de una "
            "persona: posd resolve ID RESULT."
        ),
    ),
    "search_never_found_any": Row(
        means=es(
            "Una búsqueda nunca encontró otro pago del terminal SERIAL: que no encuentre ninguno no prueba nada. Si "
            "ya hizo uno, también cancelado, búsquelo: posd reconcile ITS_ID. Si no, mire el terminal, cierre este "
            "por la palabra de una persona (posd resolve ID RESULT), y haga un pago hasta su fin: la próxima duda "
            "puede aclararse sola."
        ),
    ),
    "identity_conflict": Row(
        means=es(
            "Dos equipos dicen ser el terminal SERIAL: ninguna respuesta de ellos prueba nada. Mírelos, y diga cuál "
            "es: posd terminals identity SERIAL. O ciérrelo por la palabra de una persona: posd resolve ID RESULT."
        ),
    ),
    "terminal_unreachable": Row(
        means=es(
            "No se puede llegar al terminal SERIAL donde se envió el pago. Enciéndalo y revise su red; posd pregunta "
            "otra vez por sí mismo. O ciérrelo por la palabra de una persona: posd resolve ID RESULT."
        ),
    ),
    "abort_not_asked": Row(
        means=es(
            "No se preguntó dos veces al terminal SERIAL, con 60 s entre ellas, si ejecuta algo. Pregúntele: posd "
            "abort ID, luego posd reconcile ID, y ambas otra vez después de ese tiempo; o ponga probe_with_abort = "
            "true bajo [reconcile]. O ciérrelo por la palabra de una persona: posd resolve ID RESULT."
        ),
    ),
}


def payments() -> Iterator[tuple[str, Row]]:
    """Yield each attention of a payment and what is said of it."""
    for code, advice in ATTENTION_ADVICE.items():
        yield code, _advised(PAYMENTS[code], Advice(OPERATIONS["charge"].fill(advice.words), advice.commands))


def print_jobs() -> Iterator[tuple[str, Row]]:
    """Yield each attention of a print job and what is said of it."""
    for code, advice in PRINT_ADVICE.items():
        yield code, _advised(PRINT_JOBS[code], advice)


def proofs() -> Iterator[tuple[str, Row]]:
    """Yield each missing proof and what is said of it."""
    told = missing_proof.Told("ID", "SERIAL", settle=60, probes=False, abortable=True)
    for code in missing_proof.ProofCode:
        row = PROOFS[code]
        means = (sentence(missing_proof.detail(code, told)), row.means[1])
        yield code, row._replace(means=means, money=IN_DOUBT, see="The payment is in doubt")


def _advised(row: Row, advice: Advice) -> Row:
    commands = tuple(line.replace("{id}", "ID") for line in advice.commands)
    return row._replace(do=(advice.words, row.do[1]), commands=commands)
