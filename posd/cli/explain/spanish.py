"""The Spanish texts of `posd explain`: of all but limits and lines of the log.

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
        "posd pregunta al terminal por sí mismo. Pregunte ahora. Si tampoco conoce el pago, mire su diario y los datos "
        "del adquirente, y cierre el pago:",
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
        "Mire su pantalla y su red. Pregúntele; si el cliente desistió, detenga el pago. Si el terminal no ejecuta "
        "nada, cierre el pago cuando su diario o el adquirente diga cómo terminó:",
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
        "Hasta saber el resultado puede que se haya cobrado al cliente. posd pregunta por él al terminal.",
        "posd pregunta al terminal por sí mismo. Pregunte ahora; si ya no conoce el pago, ciérrelo cuando el diario "
        "del terminal o el adquirente diga cómo terminó:",
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
        "El pago está en duda por más de un momento, el terminal no da cuenta de uno que tomó hace más de 15 minutos, "
        "o lo que dijo el terminal se contradice.",
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
        "El pago está en duda por más de un momento, el terminal no da cuenta de uno que tomó hace más de 15 minutos, "
        "o lo que dijo el terminal se contradice.",
        "Puede que se haya cobrado al cliente: no cobre otra vez antes de aclararlo.",
        "Pregunte al encargado. No inicie este pago otra vez antes de aclararlo.",
    ),
}

_PRINTS = "No: una impresión no mueve dinero."
_PAPER = "Mire el papel; luego:"

_PRINT: Mapping[str, Text] = {
    "print_stuck": Text(
        "El terminal tomó la impresión hace mucho y no la terminó.",
        "Su impresora no tiene papel, está abierta o atascada, o el terminal está apagado.",
        _PRINTS,
        "Mire su impresora (papel, tapa, atasco) y su pantalla: cuando siga, esto termina por sí mismo. Si no, mire "
        "qué hay en el papel y ciérrela:",
    ),
    "in_doubt": Text(
        "No se sabe si el terminal tomó la impresión.",
        "Se envió, y no llegó una respuesta que valga.",
        _PRINTS,
        "posd sigue preguntando, y nunca la envía otra vez. Mire qué hay en el papel, y ciérrela:",
    ),
    "quarantined_event": Text(
        "Un mensaje del terminal sobre la impresión no se pudo usar, y se apartó.",
        "Su forma está rota.",
        _PRINTS,
        "Vea por qué, arregle lo que nombra su razón, haga que se aplique; borre este aviso si no se puede:",
    ),
    "unknown_status": Text(
        "El terminal informa un estado de la impresión que esta versión no conoce.",
        "El programa del terminal es más nuevo que posd.",
        _PRINTS,
        "Mire el papel; actualice posd, o ciérrela:",
    ),
    "id_mismatch": Text(
        "El terminal dio a la impresión dos ids propios.",
        "Un error del terminal: lo que dijo puede ser de otra impresión.",
        _PRINTS,
        _PAPER,
    ),
    "conflicting_final": Text(
        "El terminal informó dos finales distintos de la impresión; vale el primero.",
        "Un error del terminal.",
        _PRINTS,
        _PAPER,
    ),
    "outcome_corrected": Text(
        "El final que se dijo primero era falso, y se corrigió.",
        "Un rechazo o la palabra de una persona dijo cómo terminó, y después el terminal dijo otra cosa.",
        _PRINTS,
        "Vea si se imprimió otra vez mientras tanto; luego:",
    ),
    "orphan": Text(
        "Esta base de datos no conocía la impresión.",
        "La base de datos se restauró de una copia, o esta máquina es un clon de otra.",
        _PRINTS,
        _PAPER,
    ),
}

_SETTLE = "O ciérrelo por la palabra de una persona: posd resolve ID RESULT."
_PROOF_MONEY = "Puede que se haya cobrado al cliente: no pase la tarjeta otra vez hasta que esté aclarado."

#: What is to be done stands in means, as in English.
_PROOF: Mapping[str, Text] = {
    "was_acknowledged": Text(
        "El terminal SERIAL dijo algo de este pago: nunca se toma por uno que no empezó. Pregunte por su fin: posd "
        f"reconcile ID. {_SETTLE}"
    ),
    "search_not_confirmed": Text(
        "No está confirmado que la búsqueda (search) funcione en el terminal SERIAL como dice el perfil: su respuesta "
        "no prueba nada. Véala funcionar cuando no haya un pago abierto allí: posd terminals commission SERIAL (o "
        "escriba confirmed = true bajo [profile.search] y recargue posd). "
        f"{_SETTLE}"
    ),
    "abort_not_confirmed": Text(
        "No está confirmado que abortar (abort) funcione en el terminal SERIAL como dice el perfil: su respuesta "
        "no prueba nada. Véalo funcionar cuando no haya un pago abierto allí: posd terminals commission SERIAL (o "
        "escriba confirmed = true bajo [profile.abort] y recargue posd). "
        f"{_SETTLE}"
    ),
    "search_never_found_any": Text(
        "Una búsqueda nunca encontró otro pago del terminal SERIAL: que no encuentre ninguno no prueba nada. Si ya "
        "hizo uno, también cancelado, búsquelo: posd reconcile ITS_ID. Si no, mire el terminal, cierre este por la "
        "palabra de una persona (posd resolve ID RESULT), y haga un pago hasta su fin: la próxima duda puede "
        "aclararse sola."
    ),
    "identity_conflict": Text(
        "Dos equipos dicen ser el terminal SERIAL: ninguna respuesta de ellos prueba nada. Mírelos, y diga cuál es: "
        f"posd terminals identity SERIAL. {_SETTLE}"
    ),
    "terminal_unreachable": Text(
        "No se puede llegar al terminal SERIAL donde se envió el pago. Enciéndalo y revise su red; posd pregunta otra "
        f"vez por sí mismo. {_SETTLE}"
    ),
    "abort_not_asked": Text(
        "No se preguntó dos veces al terminal SERIAL, con 60 s entre ellas, si ejecuta algo. Pregúntele: posd abort "
        "ID, luego posd reconcile ID, y ambas otra vez después de ese tiempo; o ponga probe_with_abort = true bajo "
        f"[reconcile]. {_SETTLE}"
    ),
}

_AGAIN = "Para intentar otra vez, inicie un pago nuevo."
_OTHER_CARD = "Otra tarjeta, u otra forma de pagar: un pago nuevo."
_UNLESS = "No, salvo que antes se haya consultado al banco (reached_acquirer no es entonces false)."

_RESULTS: Mapping[str, Text] = {
    "approved": Text("Se cobró al cliente.", "El banco aprobó.", "Sí: se cobró al cliente.", "Nada más."),
    "declined": Text("El banco lo rechazó; no se cobró al cliente.", "El banco dijo que no.", "No.", _OTHER_CARD),
    "rejected": Text(
        "El terminal lo rechazó; no se cobró al cliente.",
        "El terminal lo terminó antes de consultar al banco: una tarjeta que no puede leer, un PIN errado, el tiempo.",
        _UNLESS,
        _AGAIN,
    ),
    "canceled": Text(
        "Fue cancelado; no se cobró al cliente.",
        "El cliente o el cajero lo terminó en el terminal, o lo hizo una orden de abortar.",
        _UNLESS,
        _AGAIN,
    ),
    "not_started": Text(
        "No empezó; no se cobró al cliente.",
        "El terminal rechazó la solicitud, está probado que no se envió, o que el terminal nunca lo ejecutó.",
        "No.",
        f"Arregle lo que nombra su razón. {_AGAIN}",
    ),
}

_PHASES: Mapping[str, Text] = {
    "starting": Text("La solicitud va al terminal.", "La caja acaba de iniciarlo.", _MAY, "Espere medio minuto."),
    "in_doubt": Text(
        "No se sabe si el terminal lo tomó.",
        "La solicitud se envió, y no llegó una respuesta que valga.",
        _MAY,
        "posd pregunta al terminal por sí mismo. Mire su pantalla; pregunte ahora:",
    ),
    "active": Text(
        "El terminal lo tiene y trabaja en él.",
        "El terminal lo confirmó, o llegó un evento suyo.",
        "Pronto puede cobrarse: no cobre otra vez.",
        "Siga la pantalla del terminal, y espere el resultado:",
    ),
    "final": Text(
        "Terminó; el resultado dice cómo.",
        "Lo dijo el terminal, está probado, o lo dijo una persona.",
        "Como dice el resultado.",
        "Mire el resultado:",
    ),
}

_STATUS: Mapping[str, Text] = {
    "TERMINAL_ACKNOWLEDGED": Text(
        "El terminal lo tiene: mire su pantalla, puede pedir la tarjeta.",
        "",
        "Todavía no: no se cobra nada antes de leer una tarjeta.",
        "Siga el terminal.",
    ),
    "CARD_PRESENTED": Text(
        "Se leyó la tarjeta; puede que el cliente deba poner el PIN.", "", "Todavía no; puede pasar ahora.", "Espere."
    ),
    "APPROVAL_REQUESTED": Text("Se consulta al banco; ya no se puede abortar.", "", _MAY, "Espere."),
    "APPROVAL": Text("El banco aprobó.", "", "Sí: se cobró al cliente.", "Nada más."),
    "DECLINED": Text("El banco lo rechazó.", "", "No.", _OTHER_CARD),
    "TERMINAL_REJECTED": Text("El terminal lo rechazó.", "", _UNLESS, _AGAIN),
    "TERMINAL_CANCELED": Text("Cancelado en el terminal.", "", _UNLESS, _AGAIN),
}

_COUNTS = "Es la palabra del terminal: cuenta."

_EVIDENCE: Mapping[str, Text] = {
    "event": Text("El terminal lo informó.", "Un evento del terminal dice el final.", _COUNTS),
    "search": Text(
        "Se preguntó al terminal.",
        "posd preguntó al terminal, y su respuesta dice el final; o no encontró nada, como parte de una prueba.",
        _COUNTS,
    ),
    "refusal": Text(
        "El terminal rechazó la solicitud.",
        "El terminal respondió con un error (HTTP 3xx o 4xx).",
        "No, según el terminal: un evento que llegue después lo corrige.",
    ),
    "unsent": Text("La solicitud nunca se envió.", "No hubo conexión con el terminal.", "No."),
    "abort": Text(
        "Se pidió al terminal abortar, y no ejecutaba nada.",
        "Se le pidió dos veces, como parte de una prueba.",
        "No.",
    ),
    "operator": Text(
        "La palabra de una persona.",
        "La orden posd resolve.",
        "Lo dijo una persona. Lo que el terminal diga después vale más, y lo corrige.",
    ),
}

_FAILURES: Mapping[str, Text] = {
    "refused": Text(
        "El terminal rechazó la solicitud.",
        "Respondió con un error: está ocupado, no conoce la llamada, o la solicitud no es como la quiere.",
        "No. El terminal dice que no lo ejecuta.",
        "Mire qué respondió; luego inicie un pago nuevo:",
    ),
    "unsent": Text(
        "La solicitud nunca se envió.",
        "No hubo conexión con el terminal: está apagado, su dirección está mal, o no se confía en su certificado.",
        "No.",
        "Vea por qué, e inicie un pago nuevo:",
    ),
    "proved_not_started": Text(
        "Está probado que el terminal nunca ejecutó el pago.",
        "Dos veces, con una pausa, el terminal no ejecutaba nada y una búsqueda no lo encontró, con operaciones que se "
        "sabe que funcionan.",
        "No.",
        _AGAIN,
    ),
    "resolved": Text(
        "Una persona dijo que el pago no empezó.",
        "La orden posd resolve ID not_started.",
        "No, por la palabra de esa persona.",
        _AGAIN,
    ),
}

_SIMULATED: Mapping[str, Text] = {
    "05": Text("El banco rechaza y no da una razón.", "Un código del banco, en ISO 8583.", "No.", _OTHER_CARD),
    "51": Text("La tarjeta no tiene fondos suficientes.", "Un código del banco, en ISO 8583.", "No.", _OTHER_CARD),
    "CARD_WAIT_EXHAUSTED": Text(
        "No se presentó una tarjeta a tiempo.", "El terminal espera una tarjeta solo un tiempo.", "No.", _AGAIN
    ),
    "PIN_WAIT_EXHAUSTED": Text(
        "No se puso el PIN a tiempo.", "El terminal espera el PIN solo un tiempo.", "No.", _AGAIN
    ),
}

_DO = "Haga lo que dice la comprobación:"

_HEALTH: Mapping[str, Text] = {
    "ok": Text("Todo está como debe.", "Todas las comprobaciones están bien.", "No.", "Nada."),
    "degraded": Text(
        "Los pagos siguen, y algo necesita pronto a una persona.",
        "Al menos una comprobación está en degraded.",
        "Se puede pagar; los resultados pueden llegar tarde.",
        _DO,
    ),
    "failing": Text(
        "No se puede pagar.",
        "Al menos una comprobación está en failing.",
        "Los pagos nuevos se rechazan, y no se envían. Los abiertos siguen en el terminal.",
        _DO,
    ),
}

_CHECKS: Mapping[str, Text] = {
    "storage": Text(
        "Si se puede leer y escribir en la base de datos.",
        "El disco está lleno o dañado, o el archivo de la base de datos fue movido.",
        "Los pagos nuevos se rechazan y no se envían. Los abiertos siguen, y posd pregunta por ellos.",
        "Libere el disco, o ponga el archivo en su lugar; la comprobación dice cuál:",
    ),
    "webhook_listener": Text(
        "Si los terminales pueden llamar a posd.",
        "posd no acepta conexiones, o estuvo ausente más tiempo del que los terminales repiten un evento.",
        "Los pagos abiertos pueden cobrarse sin un evento: posd pregunta a los terminales.",
        "Mire qué está abierto, y pregunte por cada uno:",
    ),
    "certificate": Text(
        "Si el certificado que ven los terminales está bien.",
        "Termina pronto o terminó, no corresponde a las direcciones de esta máquina, o un terminal lo rechaza.",
        "Un terminal que lo rechaza no envía eventos: los resultados llegan tarde, por una búsqueda.",
        "Vea qué está mal, y haga uno nuevo:",
    ),
    "discovery": Text(
        "Si se oyen los anuncios de los terminales (mDNS).",
        "La red de esta máquina no está, o su puerto está en uso.",
        "No. Los terminales con base_url en la configuración funcionan.",
        "Mire la red de esta máquina:",
    ),
    "clock": Text(
        "Si se confía en el reloj de esta máquina.",
        "Saltó, retrocedió, o está antes del día en que se hizo esta versión de posd.",
        "No. Los pagos siguen; no se borra nada ni se hace un certificado hasta que se confíe en él.",
        "Compárelo con otro reloj. Corríjalo, o diga que está bien:",
    ),
    "restore": Text(
        "Si la base de datos pudo olvidar pagos, y una persona lo revisó.",
        "La base de datos se restauró de una copia, o retrocedió (por ejemplo, una copia de la máquina).",
        "Los pagos que olvidó pueden estar cobrados: no cobre otra vez por ellos.",
        "Compare los pagos desde entonces con los terminales; luego diga que lo revisó:",
    ),
    "identity": Text(
        "Si es seguro qué equipo es cada terminal.",
        "Dos equipos responden con un mismo número de serie, o un terminal cambió de dirección y no puede probar quién "
        "es.",
        "No se envía nada a ese terminal. Lo que está abierto en él puede cobrarse.",
        "Mire el terminal y su dirección, y diga cuál equipo es:",
    ),
    "configuration": Text(
        "Si la configuración que está en uso es la de los archivos.",
        "Los archivos se cambiaron y tienen un error, así que posd los rechazó; o una parte vale después de reiniciar.",
        "No. Los pagos siguen con la configuración anterior. Después de reiniciar, posd no empezaría con un error.",
        "Corrija el archivo y la línea que la comprobación nombra; luego:",
    ),
}

_FINDING = "Haga lo que dice el resultado."

_DOCTOR: Mapping[str, Text] = {
    "configuration": Text(
        "Si se puede leer el archivo de configuración, y está bien.", "", "No.", "Corrija lo que nombra; luego:"
    ),
    "daemon": Text("Si posd funciona y responde.", "", "No.", "Inícielo, y vea por qué terminó:"),
    "files": Text("Si las claves y los archivos están, enteros, y cerrados para otros.", "", "No.", _FINDING),
    "access": Text("Si las cajas y los operadores pueden abrir los sockets.", "", "No.", _FINDING),
    "database": Text(
        "Si la base de datos está entera, y corresponde a esta versión.", "", "No.", "Revísela por completo:"
    ),
    "disk": Text("Si el disco de la base de datos tiene lugar.", "", "No.", "Libere el disco."),
    "port": Text(
        "Si el puerto de los terminales es de posd.",
        "",
        "No.",
        "Detenga lo otro que escucha allí, o ponga otro puerto en webhooks.listen.",
    ),
    "firewall": Text(
        "Si un cortafuegos de esta máquina deja fuera a los terminales.",
        "",
        "No.",
        "Abra el puerto para la red de los terminales.",
    ),
    "mdns": Text(
        "Si se pueden oír los anuncios de los terminales.", "", "No.", "Mire la red, o dé a cada terminal un base_url."
    ),
    "certificate": Text("Si el certificado está bien, y es el que posd muestra.", "", "No.", "Haga uno nuevo:"),
    "terminal": Text("Si se llega a cada terminal, y muestra el certificado esperado.", "", "No.", "Vea dónde está:"),
    "callback": Text(
        "Si cada terminal podría llegar a la dirección que posd le da para sus eventos.", "", "No.", _FINDING
    ),
    "clock": Text(
        "Si el reloj de esta máquina coincide con los de los terminales.",
        "",
        "No.",
        "Corrija el reloj, o vea por qué no se confía en él:",
    ),
}

_STRANGER = "Nada, si es raro. Si son muchos: busque el equipo en esa dirección."
_REPEATS = "Nada: los terminales lo envían otra vez."
_LOST = "No se pierde ningún pago: los terminales repiten un evento, y posd pregunta por lo que no llega."

_REFUSED: Mapping[str, Text] = {
    "accept_failed": Text(
        "No se pudo aceptar una conexión.",
        "El sistema no tiene más descriptores o memoria.",
        _LOST,
        "Vea qué más funciona en esta máquina.",
    ),
    "too_many_connections": Text(
        "Una dirección, o todas juntas, tienen demasiadas conexiones.",
        "Una avalancha, o un equipo que abre conexiones sin fin.",
        _LOST,
        _STRANGER,
    ),
    "unproven_cut": Text(
        "Una conexión sin un token válido se cortó para una nueva.", "Muchos extraños a la vez.", _LOST, _STRANGER
    ),
    "tls_handshake_failed": Text(
        "Un equipo empezó TLS y no lo terminó.",
        "No confía en el certificado, o no es un terminal.",
        _LOST,
        _STRANGER,
    ),
    "connection_broke": Text("Una conexión terminó a la mitad.", "La red, o un equipo que se apagó.", _LOST, _STRANGER),
    "untaken_answer": Text("Un equipo no leyó la respuesta.", "Es lento, o no es un terminal.", _LOST, _STRANGER),
    "unknown_path": Text(
        "Una llamada de una ruta que posd no tiene.",
        "Un programa que explora la red, o un navegador.",
        _LOST,
        _STRANGER,
    ),
    "wrong_token": Text(
        "Una llamada de vuelta sin el token correcto.",
        "Un extraño; o un terminal que ejecuta un pago de otro posd, o de otra clave.",
        _LOST,
        "Vea qué equipo está en esa dirección, y si se cambió la base de datos o su clave:",
    ),
    "no_room": Text(
        "No hubo lugar para el cuerpo de una llamada de vuelta.", "Muchos cuerpos grandes a la vez.", _LOST, _REPEATS
    ),
    "slow_body": Text("El cuerpo de una llamada de vuelta no llegó a tiempo.", "Una red lenta.", _LOST, _REPEATS),
}

_DOUBTS: Mapping[str, str] = {
    "before_build": "El reloj está antes del día en que se hizo esta versión de posd.",
    "behind": "El reloj está antes de una hora que posd ya vio.",
    "stepped_back": "El reloj retrocedió mientras posd funcionaba.",
    "stepped_ahead": "El reloj saltó adelante mientras posd funcionaba, y nada confirma la hora nueva.",
    "far_ahead": "El reloj está muy adelante de la última hora en que se confió, y nada lo confirma.",
}

#: kind -> code -> its texts.
TEXTS: Mapping[str, Mapping[str, Text]] = {
    "problem": _PROBLEMS,
    "attention": _ATTENTION,
    "print": _PRINT,
    "proof": {code: row._replace(money=_PROOF_MONEY) for code, row in _PROOF.items()},
    "display": _DISPLAY,
    "next": _NEXT,
    "result": _RESULTS,
    "phase": _PHASES,
    "status": _STATUS,
    "evidence": _EVIDENCE,
    "failure": _FAILURES,
    "simulated": _SIMULATED,
    "health": _HEALTH,
    "check": _CHECKS,
    "doctor": _DOCTOR,
    "refused": _REFUSED,
    "doubt": {code: _CHECKS["clock"]._replace(means=means, comes="") for code, means in _DOUBTS.items()},
}

#: The kinds, as in `table.KINDS`.
KINDS: Mapping[str, str] = {
    "problem": "problema",
    "attention": "aviso de un pago",
    "print": "aviso de una impresión",
    "proof": "prueba que falta",
    "display": "texto de la caja",
    "next": "paso siguiente",
    "result": "resultado",
    "phase": "fase",
    "status": "estado del terminal",
    "evidence": "prueba",
    "failure": "razón",
    "simulated": "razón del terminal simulado",
    "health": "salud",
    "check": "comprobación de la salud",
    "doctor": "comprobación de posd doctor",
    "refused": "rechazo en la red",
    "doubt": "duda del reloj",
}
