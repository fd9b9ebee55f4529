"""The Spanish texts of `posd explain`: of problems, attentions of payments, displays and next steps.

A row has the texts of the English one, in its order: means, comes, money, do. Commands and headings are those of the
English row, and what a display means is its own text.
"""

from collections.abc import Mapping

from posd.cli.explain.texts import Text

_NOT_SENT = "No. No se envió ni se guardó nada de esta llamada: no se cobró a ningún cliente por ella."
_VENDOR = "Es un error de la caja: avise a su proveedor."
_MAY = "Puede que se haya cobrado al cliente: no cobre otra vez."

_PROBLEMS: Mapping[str, Text] = {
    "malformed_json": Text("El cuerpo no es JSON.", "", _NOT_SENT, "La caja debe enviar JSON: avise a su proveedor."),
    "invalid_request": Text(
        "La solicitud no es como está descrita.",
        "Un campo o un parámetro no es como está descrito, o hay uno que no existe.",
        _NOT_SENT,
        "Corrija el campo que nombra el mensaje; si es de la caja, avise a su proveedor.",
    ),
    "unknown_terminal": Text(
        "El terminal no está en la configuración.",
        "El número de serie no está configurado, o no se nombró ninguno y hay varios.",
        _NOT_SENT,
        "Corrija el número de serie en la caja, o agregue el terminal a la configuración ([[terminals]]):",
    ),
    "terminal_offline": Text(
        "No se puede llegar al terminal.",
        "No se conoce ninguna dirección del terminal, o la orden de abortar no llegó.",
        _NOT_SENT,
        "Vea si el terminal está encendido y en esta red:",
    ),
    "identity_conflict": Text(
        "No es seguro qué equipo es el terminal.",
        "Varios equipos dicen tener ese número de serie, el terminal cambió de dirección y no puede probar quién es, o "
        "el equipo en su dirección dice que es otro.",
        _NOT_SENT,
        "Mire el terminal y su dirección, y diga cuál equipo es:",
    ),
    "terminal_busy": Text(
        "El terminal está ocupado.",
        "Un pago abierto ocupa el terminal.",
        "No por esta llamada: no se envió nada. El pago que ocupa el terminal es otro asunto.",
        "Mire el pago que nombra el mensaje. Espere su fin, o deténgalo:",
    ),
    "id_reused": Text(
        "El id es de otra solicitud.",
        "El id ya se usó para otra cosa; aquella queda como está.",
        "No por esta llamada. El pago de ese id queda como está, y puede que se haya cobrado.",
        "Es un error de la caja, que usó un id para dos pagos: mire el primero, y avise a su proveedor:",
    ),
    "sale_conflict": Text(
        "La venta tiene otro pago.",
        "Otro pago de esta venta está abierto o aprobado.",
        "No por esta llamada. El otro pago de la venta puede estar pagado ya: no cobre otra vez.",
        "Mire el pago que nombra el mensaje. Un pago en partes se pide así (--repeat):",
    ),
    "already_derived": Text(
        "El original ya tiene otra operación como esta.",
        "Para el mismo original hay otra operación de este tipo, abierta o aprobada.",
        "No por esta llamada. Puede que la otra operación ya lo haya hecho.",
        "Mire la que nombra el mensaje:",
    ),
    "chain_conflict": Text(
        "Otra operación de la cadena lo impide.",
        "Otra operación de la misma cadena está abierta, o la terminó.",
        "No por esta llamada. La otra operación puede mover dinero.",
        "Mire la que nombra el mensaje; espérela, o abórtela. Lo que una anulación terminó queda terminado:",
    ),
    "amount_exceeds": Text(
        "El original no permite ese monto.",
        "Una captura, anulación o devolución es por más de lo que permite el original, o una anulación por una parte.",
        _NOT_SENT,
        "Corrija el monto. El mensaje dice cuánto permite el original:",
    ),
    "expired": Text(
        "Debía enviarse antes.",
        "not_after ya pasó: la solicitud no se envió, ni se enviará.",
        _NOT_SENT,
        "Pregunte al cliente si todavía quiere pagar; entonces es un pago nuevo, con otro id.",
    ),
    "unknown_original": Text(
        "De ese original no se puede derivar nada.",
        "El original no se conoce, no está aprobado, o es de un tipo que no corresponde.",
        _NOT_SENT,
        "Mire el original; si posd no lo conoce, nombre la referencia del adquirente:",
    ),
    "restore_unseen": Text(
        "La base de datos fue restaurada, o retrocedió.",
        "La base de datos fue restaurada o retrocedió, y no conoce este id: puede que ya se haya enviado antes.",
        "Esta llamada no envió nada. Pero el id pudo enviarse antes de que la base lo perdiera: no cobre otra vez "
        "antes de que una persona lo haya revisado.",
        "Compare los pagos desde entonces con los terminales; luego diga que lo revisó:",
    ),
    "not_found": Text(
        "No se encontró.",
        "Aquí no hay nada con ese nombre.",
        "No dice nada del dinero: posd no conoce ese id.",
        "Revise el id, y vea si se restauró la base de datos:",
    ),
    "pruned": Text(
        "Su registro fue borrado.",
        "El id se usó, y su registro se borró cuando pasaron los días durante los que se guarda.",
        "Terminó como dice el mensaje. Si fue aprobado, se cobró al cliente: no cobre otra vez.",
        "Un pago nuevo lleva un id nuevo.",
    ),
    "past_point_of_no_return": Text(
        "Ya se consultó al banco.",
        "Abortar: ya se consultó al banco; solo el resultado lo dirá.",
        "Se consultó al banco: puede que se haya cobrado al cliente.",
        "Espere el resultado, y anúlelo si hace falta:",
    ),
    "already_final": Text(
        "Ya terminó.", "Abortar, liberar, resolver: ya terminó.", "Terminó, y su resultado dice cómo.", "Mírelo:"
    ),
    "nothing_running": Text(
        "El terminal no ejecuta nada.",
        "Abortar: el terminal dice que no ejecuta nada; posd le pregunta qué pasó.",
        "No es una prueba: de todos modos puede que se haya cobrado al cliente.",
        "posd pregunta al terminal por sí mismo. Pregunte ahora, y espere el resultado:",
    ),
    "clock_unsure": Text(
        "No se puede confiar en el reloj de esta máquina.",
        "Se pidió algo que necesita la hora mientras no se confía en el reloj; de los pagos, solo not_after.",
        "No. Los pagos siguen; solo se rechaza lo que necesita la hora, y no se envió.",
        "Compare el reloj de esta máquina con otro. Corríjalo, o diga que está bien:",
    ),
    "not_abortable": Text(
        "No se puede enviar una orden de abortar.",
        "Abortar: podría tocar otro pago, o el terminal no tiene esa orden para él.",
        "El pago sigue: puede que se cobre al cliente. Solo su resultado lo dirá.",
        "Termínelo en el terminal mismo, y espere el resultado:",
    ),
    "call_outstanding": Text(
        "Hay una llamada al terminal en curso.",
        "Resolver, liberar: una llamada al terminal todavía no ha vuelto.",
        "Todavía no se sabe si el terminal tomó el pago.",
        "Repita la orden en medio minuto.",
    ),
    "not_configured": Text(
        "No disponible.",
        "Según la configuración, el terminal no acepta esa llamada.",
        _NOT_SENT,
        "Vea qué acepta el terminal; una fila se puede cambiar en la configuración:",
    ),
    "queue_full": Text(
        "Hay demasiadas impresiones en espera.",
        "Demasiadas impresiones esperan a sus terminales.",
        "No: una impresión no mueve dinero.",
        "Vea qué espera, y por cuál terminal:",
    ),
    "limit_reached": Text(
        "Se alcanzó un límite de lo que puede tener un programa.",
        "Un proceso o usuario tiene demasiadas conexiones, o ha iniciado demasiado hoy; pida otra vez más tarde.",
        _NOT_SENT,
        "Busque el programa y lo que hace sin fin: el registro nombra su proceso y su usuario. La misma llamada se "
        "acepta más tarde:",
    ),
    "storage_unavailable": Text(
        "No se puede escribir en la base de datos.",
        "La base de datos no se puede leer o escribir (disco lleno, error del disco).",
        _NOT_SENT,
        "Mire el disco de la base de datos, y libérelo si está lleno:",
    ),
    "draining": Text(
        "posd se está deteniendo.",
        "posd se está deteniendo; pida otra vez en un momento.",
        _NOT_SENT,
        "La caja pide otra vez por sí misma. Si sigue así, posd no arranca:",
    ),
    "forbidden": Text(
        "No permitido en este socket.",
        "Una llamada del socket de administración en el socket de las cajas.",
        _NOT_SENT,
        "Llame como miembro del grupo posd-admin, por el socket de administración, o con sudo.",
    ),
    "method_not_allowed": Text("Método no permitido.", "La ruta no tiene ese método.", _NOT_SENT, _VENDOR),
    "request_timeout": Text(
        "La solicitud tardó demasiado.",
        "El cuerpo no llegó a tiempo.",
        _NOT_SENT,
        "Repita la llamada. Si vuelve a pasar, vea si esta máquina está sobrecargada.",
    ),
    "payload_too_large": Text("El cuerpo es demasiado grande.", "", _NOT_SENT, _VENDOR),
    "unsupported_media_type": Text(
        "El cuerpo debe ser JSON.", "El cuerpo dice que es otra cosa que JSON.", _NOT_SENT, _VENDOR
    ),
    "internal_error": Text(
        "Un error de posd.",
        "posd falló; después de una llamada que inicia algo, repita la misma llamada con el mismo id.",
        "Puede que se haya enviado: puede que se haya cobrado al cliente.",
        "La caja repite la misma llamada con el mismo id, nunca con uno nuevo. Informe del error con su línea del "
        "registro:",
    ),
}

_ATTENTION: Mapping[str, Text] = {
    "in_doubt": Text(
        "No se sabe si el terminal tomó el pago.",
        "La solicitud se envió, y no llegó una respuesta que valga: falló la red, el terminal tardó demasiado, o posd "
        "se detuvo en ese momento.",
        "Puede que se haya cobrado al cliente: no pase la tarjeta otra vez hasta que esté aclarado.",
        "Mire la pantalla y el registro del terminal; no lo inicie otra vez. Pregunte de nuevo al terminal; libérelo "
        "si debe atender a otros; cierre el pago cuando sepa cómo terminó:",
    ),
    "gap": Text(
        "Falta un evento del terminal entre los que llegaron.",
        "El terminal envía sus eventos uno tras otro, y uno se perdió o está atrasado.",
        "El resultado vale cuando llega; el evento que falta no lo cambia.",
        "Puede llegar más tarde. Si no llega, revise la red, pregunte al terminal, y borre este aviso cuando el pago "
        "esté aclarado:",
    ),
    "stalled": Text(
        "El terminal calla desde hace mucho sobre un pago que tomó.",
        "Espera la tarjeta o el PIN, está apagado, o no tiene red.",
        "En el banco (APPROVAL_REQUESTED) puede que se haya cobrado al cliente; antes de leer la tarjeta, todavía no.",
        "Mire su pantalla y su red. Pregúntele; si el cliente desistió, detenga el pago:",
    ),
    "no_callback": Text(
        "El terminal tomó el pago, y no ha llegado ningún evento.",
        "El terminal no llega a esta máquina (red, cortafuegos), o no confía en el certificado de posd.",
        "Puede que se haya cobrado al cliente: solo el terminal lo sabe.",
        "Revise que el terminal llegue a esta máquina y confíe en el certificado de posd. El resultado se puede "
        "preguntar:",
    ),
    "orphan": Text(
        "Un pago auténtico que esta base de datos no conocía.",
        "La base de datos se restauró de una copia, o esta máquina es un clon de otra.",
        "Su resultado es real: si dice aprobado, se cobró al cliente.",
        "Compárelo con los datos de la caja, y corrija la caja si anotó otra cosa; luego:",
    ),
    "serial_mismatch": Text(
        "Respondió otro terminal que el llamado.",
        "Las direcciones de dos terminales están cambiadas, o una dirección es ahora de otro equipo.",
        "El pago se hizo en otro terminal: quizás lo pagó otro cliente.",
        "Averigüe en cuál terminal se hizo, y corrija las direcciones de los terminales; luego:",
    ),
    "event_id_reused": Text(
        "El terminal usó un id de evento para dos mensajes distintos.",
        "Un error del terminal. El primer mensaje se aplicó, el segundo solo se guardó.",
        "Lo que dice el segundo mensaje puede ser cierto, y no cuenta.",
        "Compare el pago con el registro del terminal, y avise a su proveedor; luego:",
    ),
    "unknown_status": Text(
        "El terminal envió un estado que esta versión de posd no conoce.",
        "El programa del terminal es más nuevo que posd.",
        "El resultado puede estar en él: puede que se haya cobrado al cliente.",
        "Actualice posd, y haga que lea los eventos otra vez; luego:",
    ),
    "illegal_transition": Text(
        "El terminal rompió el orden de sus propios estados.",
        "Desistió después de consultar al banco, lo que no debe hacer.",
        "De todos modos puede que se haya cobrado al cliente.",
        "Compruebe en los datos del adquirente si se cobró al cliente; luego:",
    ),
    "conflicting_final": Text(
        "El terminal informó dos finales distintos de un pago; vale el primero.",
        "Un error del terminal, o se cobró dos veces al cliente.",
        "Dos aprobaciones con dos referencias: se cobró dos veces.",
        "Compruebe con el adquirente si se cobró al cliente, y cuántas veces; anule la segunda aprobación si hay dos "
        "(posd void --reference UUID); luego:",
    ),
    "outcome_corrected": Text(
        "El resultado que se dijo primero a la caja era falso, y se corrigió.",
        "Un rechazo, una prueba o la palabra de una persona dijo cómo terminó, y después el terminal dijo otra cosa.",
        "Si primero no se cobró y ahora está aprobado, y el cliente pagó otra vez: se cobró dos veces.",
        "Revise qué anotó la caja y si este pago se inició otra vez mientras tanto, y corrija ambos; luego:",
    ),
    "missing_reference": Text(
        "El pago está aprobado, y falta la referencia del adquirente.",
        "La aprobación del terminal llegó sin ella.",
        "Se cobró al cliente; una anulación, captura o devolución por referencia no es posible.",
        "Guarde el recibo, que puede tenerla; pregunte por ella al terminal; luego:",
    ),
    "amount_differs": Text(
        "El monto aprobado no es el que se pidió.",
        "El banco aprobó una parte, se agregó propina en el terminal, o el terminal cuenta en otra unidad.",
        "Se cobró al cliente otro monto que el pedido.",
        "Compare el recibo con la caja, y arregle la diferencia; luego:",
    ),
    "quarantined_event": Text(
        "Un mensaje auténtico del terminal no se pudo usar, y se apartó.",
        "Su forma está rota, o contradice la configuración (por ejemplo, otro comercio).",
        "El resultado puede estar en él.",
        "Vea por qué, arregle lo que nombra su razón, haga que se aplique; borre este aviso si no se puede:",
    ),
    "address_changed": Text(
        "La dirección de esta máquina cambió durante el pago.",
        "La red dio otra dirección a esta máquina: el terminal envía sus eventos a la anterior.",
        "No se pierde nada: posd pregunta al terminal hasta saber el resultado. Hasta entonces puede que se haya "
        "cobrado al cliente.",
        "No hay nada que hacer: posd pregunta por sí mismo. Para preguntar ahora mismo:",
    ),
    "identity_conflict": Text(
        "No es seguro qué equipo es el terminal: no se le envía nada para este pago.",
        "Dos equipos responden con un mismo número de serie, o el terminal cambió de dirección y no puede probar quién "
        "es.",
        "Puede que se haya cobrado al cliente: lo que el terminal informe por sí mismo cuenta.",
        "Mire el terminal y su dirección, y diga cuál equipo es:",
    ),
    "released": Text(
        "Una persona liberó el terminal de este pago, que sigue abierto.",
        "posd release, o la llamada de la caja para ello.",
        "No se sabe si se cobró al cliente.",
        "Pregunte otra vez al terminal, o cierre el pago cuando sepa cómo terminó:",
    ),
    "event_limit": Text(
        "El terminal envía eventos de este pago sin fin, y posd ya no guarda más.",
        "Un error del terminal.",
        "El final del pago todavía entra.",
        "Si no termina, pregunte al terminal; reinicie el terminal y avise a su proveedor; luego:",
    ),
    "damaged_event": Text(
        "Un mensaje del terminal se leyó aunque una parte no se pudo leer.",
        "Estaba dañado; el detalle nombra la parte.",
        "Lo que necesita el resultado estaba entero.",
        "Compare el pago con el recibo del terminal. Si vuelve a pasar, avise a su proveedor; luego:",
    ),
    "approval_unlikely": Text(
        "La aprobación contradice lo pedido: menos de la mitad o más del doble del monto, otra moneda, otra operación, "
        "o una fecha a más de un día.",
        "El reloj, la moneda o los montos del terminal están mal puestos, o aprobó otra cosa.",
        "La aprobación cuenta: se cobró al cliente, y quizás otro monto.",
        "Compare el recibo del terminal con la caja antes de que el cliente se vaya, y devuelva o cobre la diferencia. "
        "Si todas las aprobaciones de este terminal lo dicen, corrija su reloj, o su moneda en la configuración; "
        "luego:",
    ),
}

_DISPLAY: Mapping[str, Text] = {
    "sending": Text(
        "",
        "El pago está guardado, y la solicitud va al terminal.",
        "Pronto puede cobrarse: no cobre otra vez.",
        "Espere.",
    ),
    "present_card": Text(
        "",
        "El terminal tomó el pago y muestra qué quiere.",
        "No se cobra nada antes de leer una tarjeta.",
        "Siga la pantalla del terminal. Para detenerlo:",
    ),
    "card_read": Text(
        "",
        "Se presentó la tarjeta; puede que el cliente deba poner el PIN.",
        "Pronto puede cobrarse: no cobre otra vez.",
        "Espere.",
    ),
    "asking_bank": Text("", "El terminal consultó al banco; ya no se puede abortar.", _MAY, "Espere."),
    "looking": Text(
        "",
        "posd no puede decir ahora cómo está, y lo pregunta al terminal.",
        _MAY,
        "Espere, y mire la pantalla del terminal.",
    ),
    "paid": Text(
        "",
        "Un cobro, una captura o una propina fue aprobada.",
        "Se cobró al cliente el monto que se muestra.",
        "Nada más.",
    ),
    "reserved": Text(
        "",
        "Una preautorización o una reautorización fue aprobada.",
        "El monto está reservado en la tarjeta; no se cobra nada antes de capturarlo.",
        "Captúrelo para cobrar al cliente, o anúlelo para dejarlo:",
    ),
    "reversed": Text("", "Una anulación o una devolución fue aprobada.", "El cliente recibe el dinero.", "Nada más."),
    "not_paid": Text(
        "",
        "Fue rechazado o cancelado, o está probado que nunca empezó.",
        "No. No se cobró al cliente por él.",
        "Para intentar otra vez, inicie un pago nuevo.",
    ),
    "call_supervisor": Text(
        "",
        "El pago está en duda por más de un momento, o lo que dijo el terminal se contradice.",
        "No es seguro: puede que se haya cobrado al cliente. No cobre otra vez.",
        "Una persona mira el pago, y hace lo que dice allí:",
    ),
}

_NEXT: Mapping[str, Text] = {
    "wait": Text(
        "El pago está abierto y sigue.",
        "El terminal trabaja en él, o posd pregunta por él al terminal.",
        _MAY,
        "Espere el resultado. Mientras tanto no inicie este pago otra vez.",
    ),
    "done": Text(
        "El pago está aprobado, y nada lo contradice.",
        "Lo dijo el terminal, o una persona.",
        "Se cobró al cliente (una reserva: está reservada; una anulación o devolución: el dinero vuelve).",
        "Nada más.",
    ),
    "new_id_ok": Text(
        "El pago terminó, y no se cobró a nadie por él.",
        "Fue rechazado o cancelado, o está probado que nunca empezó.",
        "No. La caja puede iniciar otra vez, con otro id.",
        "Para intentar otra vez, inicie un pago nuevo.",
    ),
    "ask_person": Text(
        "La caja no puede seguir sola: una persona debe mirar.",
        "El pago está en duda por más de un momento, o lo que dijo el terminal se contradice.",
        "Puede que se haya cobrado al cliente: no cobre otra vez antes de aclararlo.",
        "Pregunte al encargado. No inicie este pago otra vez antes de aclararlo.",
    ),
}

#: kind -> code -> its texts.
TEXTS: Mapping[str, Mapping[str, Text]] = {
    "problem": _PROBLEMS,
    "attention": _ATTENTION,
    "display": _DISPLAY,
    "next": _NEXT,
}
