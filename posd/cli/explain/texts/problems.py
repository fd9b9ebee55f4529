"""Problem codes: with them posd refuses a call. The English of means and comes is in `posd.base.problems`."""

from collections.abc import Iterator, Mapping
from typing import Final

from posd.base import problems
from posd.cli.explain.texts.rows import AFTER_RESTORE, AFTER_RESTORE_COMMANDS, NOT_SENT, PRINTS, Row, es, sentence

TILL_VENDOR: Final = (
    "It is a fault of the till: tell its vendor.",
    "Es un error de la caja: avise a su proveedor.",
)

PROBLEMS: Mapping[str, Row] = {
    "malformed_json": Row(
        means=es("El cuerpo no es JSON."),
        money=NOT_SENT,
        do=("The till has to send JSON: tell its vendor.", "La caja debe enviar JSON: avise a su proveedor."),
    ),
    "invalid_request": Row(
        means=es("La solicitud no es como está descrita."),
        comes=es("Un campo o un parámetro no es como está descrito, o hay uno que no existe."),
        money=NOT_SENT,
        do=(
            "Correct the field that the message names; of a till, tell its vendor.",
            "Corrija el campo que nombra el mensaje; si es de la caja, avise a su proveedor.",
        ),
    ),
    "unknown_terminal": Row(
        means=es("El terminal no está en la configuración."),
        comes=es("El número de serie no está configurado, o no se nombró ninguno y hay varios."),
        money=NOT_SENT,
        do=(
            "Correct the serial in the till's settings, or add the terminal to the configuration ([[terminals]]):",
            "Corrija el número de serie en la caja, o agregue el terminal a la configuración ([[terminals]]):",
        ),
        commands=("posd terminals",),
    ),
    "terminal_offline": Row(
        means=es("No se puede llegar al terminal."),
        comes=es("No se conoce ninguna dirección del terminal, o la orden de abortar no llegó."),
        money=NOT_SENT,
        do=("Look whether the terminal is on and in this network:", "Vea si el terminal está encendido y en esta red:"),
        commands=("posd terminals", "posd doctor"),
        see="The terminal cannot be found",
    ),
    "identity_conflict": Row(
        means=es("No es seguro qué equipo es el terminal."),
        comes=es(
            "Varios equipos dicen tener ese número de serie, el terminal cambió de dirección y no puede probar quién "
            "es, o el equipo en su dirección dice que es otro."
        ),
        money=NOT_SENT,
        do=(
            "Look at the terminal and its address, and say which device it is:",
            "Mire el terminal y su dirección, y diga cuál equipo es:",
        ),
        commands=("posd terminals identity SERIAL",),
        see="Two devices claim to be one terminal",
    ),
    "terminal_busy": Row(
        means=es("El terminal está ocupado."),
        comes=es("Un pago abierto ocupa el terminal."),
        money=(
            "No, for this call: nothing of it was sent. The payment that holds the terminal is another matter.",
            "No por esta llamada: no se envió nada. El pago que ocupa el terminal es otro asunto.",
        ),
        do=(
            "Look at the payment that the message names. Wait for its end, or stop it:",
            "Mire el pago que nombra el mensaje. Espere su fin, o deténgalo:",
        ),
        commands=("posd show ID", "posd abort ID"),
        see="The terminal is busy, and no customer pays",
    ),
    "id_reused": Row(
        means=es("El id es de otra solicitud."),
        comes=es("El id ya se usó para otra cosa; aquella queda como está."),
        money=(
            "No, for this call. The payment that the id belongs to stands as it is, and may be charged.",
            "No por esta llamada. El pago de ese id queda como está, y puede que se haya cobrado.",
        ),
        do=(
            ("It is a fault of the till, which used one id for two payments: look at the first, and tell its vendor:"),
            "Es un error de la caja, que usó un id para dos pagos: mire el primero, y avise a su proveedor:",
        ),
        commands=("posd show ID",),
    ),
    "sale_conflict": Row(
        means=es("La venta tiene otro pago."),
        comes=es("Otro pago de esta venta está abierto o aprobado."),
        money=(
            "No, for this call. The other payment of the sale may be paid already: do not charge again.",
            "No por esta llamada. El otro pago de la venta puede estar pagado ya: no cobre otra vez.",
        ),
        do=(
            "Look at the payment that the message names. A payment in parts says so (--additional):",
            "Mire el pago que nombra el mensaje. Un pago en partes se pide así (--additional):",
        ),
        commands=("posd show ID",),
    ),
    "already_derived": Row(
        means=es("El original ya tiene otra operación como esta."),
        comes=es("Para el mismo original hay otra operación de este tipo, abierta o aprobada."),
        money=(
            "No, for this call. The other operation may have done it already.",
            "No por esta llamada. Puede que la otra operación ya lo haya hecho.",
        ),
        do=("Look at the one that the message names:", "Mire la que nombra el mensaje:"),
        commands=("posd show ID",),
    ),
    "chain_conflict": Row(
        means=es("Otra operación de la cadena lo impide."),
        comes=es("Otra operación de la misma cadena está abierta, o la terminó."),
        money=(
            "No, for this call. The other operation may move money.",
            "No por esta llamada. La otra operación puede mover dinero.",
        ),
        do=(
            "Look at the one that the message names; wait for it, or abort it. What a void has ended stays ended:",
            "Mire la que nombra el mensaje; espérela, o abórtela. Lo que una anulación terminó queda terminado:",
        ),
        commands=("posd show ID",),
    ),
    "amount_exceeds": Row(
        means=es("El monto es mayor de lo permitido."),
        comes=es(
            "Una captura, anulación o devolución es por más de lo que permite el original, una anulación es por una "
            "parte, o la suma supera [amounts] max_amount."
        ),
        money=NOT_SENT,
        do=(
            "Correct the amount. What is allowed is in the message:",
            "Corrija el monto. El mensaje dice cuánto se permite:",
        ),
        commands=("posd show ID",),
    ),
    "expired": Row(
        means=es("Debía enviarse antes."),
        comes=es("not_after ya pasó: la solicitud no se envió, ni se enviará."),
        money=NOT_SENT,
        do=(
            "Ask the customer whether the payment is still wanted; then it is a new payment, a new id.",
            "Pregunte al cliente si todavía quiere pagar; entonces es un pago nuevo, con otro id.",
        ),
    ),
    "unknown_original": Row(
        means=es("De ese original no se puede derivar nada."),
        comes=es("El original no se conoce, no está aprobado, o es de un tipo que no corresponde."),
        money=NOT_SENT,
        do=(
            "Look at the original; where posd does not know it, name the acquirer's reference instead of it:",
            "Mire el original; si posd no lo conoce, nombre la referencia del adquirente:",
        ),
        commands=("posd show ID", "posd void --reference UUID"),
    ),
    "restore_unseen": Row(
        means=es("La base de datos fue restaurada, o retrocedió."),
        comes=es(
            "La base de datos fue restaurada o retrocedió, y no conoce este id: puede que ya se haya enviado antes."
        ),
        money=(
            (
                "This call sent nothing. But the id may have been sent before the database lost it: do not charge "
                "again before a person has looked."
            ),
            (
                "Esta llamada no envió nada. Pero el id pudo enviarse antes de que la base lo perdiera: no cobre otra "
                "vez antes de que una persona lo haya revisado."
            ),
        ),
        do=AFTER_RESTORE,
        commands=AFTER_RESTORE_COMMANDS,
        see="The database was restored",
    ),
    "not_found": Row(
        means=es("No se encontró."),
        comes=es("Aquí no hay nada con ese nombre."),
        money=("It says nothing of money: posd knows no such id.", "No dice nada del dinero: posd no conoce ese id."),
        do=(
            "Check the id, and see whether the database was restored:",
            "Revise el id, y vea si se restauró la base de datos:",
        ),
        commands=("posd list", "posd status"),
        see="The database was restored",
    ),
    "pruned": Row(
        means=es("Su registro fue borrado."),
        comes=es("El id se usó, y su registro se borró cuando pasaron los días durante los que se guarda."),
        money=(
            "It ended as the message says. Where that is approved the customer was charged: do not charge again.",
            "Terminó como dice el mensaje. Si fue aprobado, se cobró al cliente: no cobre otra vez.",
        ),
        do=("A new payment takes a new id.", "Un pago nuevo lleva un id nuevo."),
    ),
    "past_point_of_no_return": Row(
        means=es("Ya se consultó al banco."),
        comes=es("Abortar: ya se consultó al banco; solo el resultado lo dirá."),
        money=(
            "The bank was asked: the customer may be charged.",
            "Se consultó al banco: puede que se haya cobrado al cliente.",
        ),
        do=("Wait for the outcome, and void it if need be:", "Espere el resultado, y anúlelo si hace falta:"),
        commands=("posd await ID", "posd void ID"),
        see="It hangs at the bank",
    ),
    "already_final": Row(
        means=es("Ya terminó."),
        comes=es("Abortar, liberar, resolver: ya terminó."),
        money=("It has ended, and its outcome says how.", "Terminó, y su resultado dice cómo."),
        do=("Look at it:", "Mírelo:"),
        commands=("posd show ID",),
    ),
    "nothing_running": Row(
        means=es("El terminal no ejecuta nada."),
        comes=es("Abortar: el terminal dice que no ejecuta nada; posd le pregunta qué pasó."),
        money=(
            "It is no proof: the customer may be charged all the same.",
            "No es una prueba: de todos modos puede que se haya cobrado al cliente.",
        ),
        do=(
            (
                "posd asks the terminal by itself. Ask it at once. Where it does not know the payment either, look at "
                "its journal and at the acquirer's records, and settle the payment:"
            ),
            (
                "posd pregunta al terminal por sí mismo. Pregunte ahora. Si tampoco conoce el pago, mire su diario y "
                "los datos del adquirente, y cierre el pago:"
            ),
        ),
        commands=("posd reconcile ID", "posd resolve ID RESULT"),
        see="Abort does nothing",
    ),
    "clock_unsure": Row(
        means=es("No se puede confiar en el reloj de esta máquina."),
        comes=es("Se pidió algo que necesita la hora mientras no se confía en el reloj; de los pagos, solo not_after."),
        money=(
            "No. Payments go on; only what needs the time is refused, and was not sent.",
            "No. Los pagos siguen; solo se rechaza lo que necesita la hora, y no se envió.",
        ),
        do=(
            "Compare the clock of this machine with another one. Set it, or say that it is right:",
            "Compare el reloj de esta máquina con otro. Corríjalo, o diga que está bien:",
        ),
        commands=("posd clock", "posd clock confirm --operator NAME"),
        see="The clock is wrong",
    ),
    "not_abortable": Row(
        means=es("No se puede enviar una orden de abortar."),
        comes=es("Abortar: podría tocar otro pago, o el terminal no tiene esa orden para él."),
        money=(
            "The payment goes on: the customer may be charged. Only its outcome tells.",
            "El pago sigue: puede que se cobre al cliente. Solo su resultado lo dirá.",
        ),
        do=(
            "End it on the terminal itself, and wait for the outcome:",
            "Termínelo en el terminal mismo, y espere el resultado:",
        ),
        commands=("posd await ID",),
    ),
    "call_outstanding": Row(
        means=es("Hay una llamada al terminal en curso."),
        comes=es("Resolver, liberar: una llamada al terminal todavía no ha vuelto."),
        money=(
            "It is not known yet whether the terminal took the payment.",
            "Todavía no se sabe si el terminal tomó el pago.",
        ),
        do=("Repeat the command in half a minute.", "Repita la orden en medio minuto."),
    ),
    "not_configured": Row(
        means=es("No disponible."),
        comes=es("Según la configuración, el terminal no acepta esa llamada."),
        money=NOT_SENT,
        do=(
            "See what the terminal is said to take; a row can be set in the configuration:",
            "Vea qué acepta el terminal; una fila se puede cambiar en la configuración:",
        ),
        commands=("posd config show --profile",),
    ),
    "queue_full": Row(
        means=es("Hay demasiadas impresiones en espera."),
        comes=es("Demasiadas impresiones esperan a sus terminales."),
        money=PRINTS,
        do=("See what waits, and for which terminal:", "Vea qué espera, y por cuál terminal:"),
        commands=("posd print-jobs --open",),
        see="A print job is stuck",
    ),
    "limit_reached": Row(
        means=es("Se alcanzó un límite de lo que puede tener un programa."),
        comes=es(
            "Un proceso o usuario tiene demasiadas conexiones, o ha iniciado demasiado hoy; pida otra vez más tarde."
        ),
        money=NOT_SENT,
        do=(
            (
                "Find the program and what it does without end: the log names its process and user. The same call is "
                "taken again later:"
            ),
            (
                "Busque el programa y lo que hace sin fin: el registro nombra su proceso y su usuario. La misma "
                "llamada se acepta más tarde:"
            ),
        ),
        commands=("posd logs --event limit.reached",),
    ),
    "storage_unavailable": Row(
        means=es("No se puede escribir en la base de datos."),
        comes=es("La base de datos no se puede leer o escribir (disco lleno, error del disco)."),
        money=NOT_SENT,
        do=(
            "Look at the disk of the database, and free it where it is full:",
            "Mire el disco de la base de datos, y libérelo si está lleno:",
        ),
        commands=("posd status", "posd doctor"),
        see="The disk is full",
    ),
    "draining": Row(
        means=es("posd se está deteniendo."),
        comes=es("posd se está deteniendo; pida otra vez en un momento."),
        money=NOT_SENT,
        do=(
            "The till asks again by itself. Where it stays so, posd does not start:",
            "La caja pide otra vez por sí misma. Si sigue así, posd no arranca:",
        ),
        commands=("systemctl status posd",),
        see="posd does not start",
    ),
    "forbidden": Row(
        means=es("No permitido en este socket."),
        comes=es("Una llamada del socket de administración en el socket de las cajas."),
        money=NOT_SENT,
        do=(
            "Call it as a member of the group posd-admin, over the admin socket, or with sudo.",
            "Llame como miembro del grupo posd-admin, por el socket de administración, o con sudo.",
        ),
    ),
    "method_not_allowed": Row(
        means=es("Método no permitido."),
        comes=es("La ruta no tiene ese método."),
        money=NOT_SENT,
        do=TILL_VENDOR,
    ),
    "request_timeout": Row(
        means=es("La solicitud tardó demasiado."),
        comes=es("El cuerpo no llegó a tiempo."),
        money=NOT_SENT,
        do=(
            "Repeat the call. If it comes again, look whether this machine is overloaded.",
            "Repita la llamada. Si vuelve a pasar, vea si esta máquina está sobrecargada.",
        ),
    ),
    "payload_too_large": Row(
        means=es("El cuerpo es demasiado grande."),
        money=NOT_SENT,
        do=TILL_VENDOR,
    ),
    "unsupported_media_type": Row(
        means=es("El cuerpo debe ser JSON."),
        comes=es("El cuerpo dice que es otra cosa que JSON."),
        money=NOT_SENT,
        do=TILL_VENDOR,
    ),
    "internal_error": Row(
        means=es("Un error de posd."),
        comes=es("posd falló; después de una llamada que inicia algo, repita la misma llamada con el mismo id."),
        money=(
            "It may have been sent: the customer may be charged.",
            "Puede que se haya enviado: puede que se haya cobrado al cliente.",
        ),
        do=(
            (
                "The till repeats the same call with the same id, never under a new one. Report the fault with its "
                "line in the log:"
            ),
            (
                "La caja repite la misma llamada con el mismo id, nunca con uno nuevo. Informe del error con su línea "
                "del registro:"
            ),
        ),
        commands=("posd logs --event posd.internal_error",),
    ),
}


def rows() -> Iterator[tuple[str, Row]]:
    """Yield each code and what is said of it."""
    for code, problem in problems.PROBLEMS.items():
        row, means, comes = PROBLEMS[code], sentence(problem.title), sentence(problem.when)
        yield code, row._replace(means=(means, row.means[1]), comes=("" if comes == means else comes, row.comes[1]))
