"""Log events. The English of means and do is in `posd.logs.events`."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from posd.cli.explain.texts.rows import NO, NOTHING_LOST, PRINTS, Row, Words
from posd.logs import events


class Spanish(NamedTuple):
    """An event in Spanish: `says` and `do` as in `events.Event`, without the parts that can be left out."""

    says: str
    do: str = ""


_OPTIONAL = re.compile(r"\[[^][]*\]")
_FIELD = re.compile(r"{(\w+)}")

MOVES_NONE: Final = ("No payment is sent or lost by it.", "No se envía ni se pierde ningún pago por ello.")
OPEN_ONES: Final = (
    "Payments that are open go on at the terminal, and are taken up at the next start: the customer may be charged.",
    "Los pagos abiertos siguen en el terminal, y posd los retoma al arrancar: puede que se cobre al cliente.",
)
FORGOTTEN: Final = (
    "Payments that the database has forgotten may be charged: do not charge again for them.",
    "Los pagos que la base de datos olvidó pueden estar cobrados: no cobre otra vez por ellos.",
)

#: Whether money is at stake with a warning or an error: the event, or its first part -> the words. Else: no.
MONEY: Mapping[str, Words] = {
    "posd": OPEN_ONES,
    "posd.library": MOVES_NONE,
    "posd.internal_error": (
        "What was acknowledged is on disk. A call that starts something may have been sent.",
        "Lo confirmado está en el disco. Una llamada que inicia algo pudo haberse enviado.",
    ),
    "relay": (
        "No. Payments do not wait for the relay; head office does not see them until they are sent.",
        "No. Los pagos no esperan al relé; la central no los ve hasta que se envían.",
    ),
    "collect": (
        "No. It is head office's copy; the lanes keep every payment, and no payment waits for it.",
        "No. Es la copia de la central; las cajas conservan cada pago, y ningún pago la espera.",
    ),
    "config": (
        "No. posd goes on with the configuration that it has.",
        "No. posd sigue con la configuración que tiene.",
    ),
    "log": ("As with the lines before it.", "Como en las líneas anteriores."),
    "payment": (
        "It may be: what posd show ID says of the payment counts.",
        "Puede ser: cuenta lo que posd show ID dice del pago.",
    ),
    "webhook": (
        "How a payment ended may be in what was refused: posd asks the terminal for it.",
        "El final de un pago puede estar en lo que se rechazó: posd pregunta por él al terminal.",
    ),
    "print": PRINTS,
    "listener": NOTHING_LOST,
    "feed": (
        "No. Only a relay to head office reads there; it goes on from where it was.",
        "No. Allí solo lee un relay a la central; sigue desde donde estaba.",
    ),
    "limit": ("No. What was refused was not sent.", "No. Lo que se rechazó no se envió."),
    "stream": (
        "No. The payment goes on; the program can read its outcome again.",
        "No. El pago sigue; el programa puede leer su resultado otra vez.",
    ),
    "metrics": NO,
    "certificate": (
        "A terminal that does not trust it sends no events: outcomes come late, by a search.",
        "Un terminal que no confía en él no envía eventos: los resultados llegan tarde, por una búsqueda.",
    ),
    "discovery": MOVES_NONE,
    "interfaces": MOVES_NONE,
    "terminal.commission_lapsed": (
        "No. A payment in doubt waits for a person until it is commissioned again.",
        "No. Un pago en duda espera a una persona hasta que se pruebe otra vez el terminal.",
    ),
    "terminal": (
        "Nothing is sent to that terminal. What is open on it may be charged.",
        "No se envía nada a ese terminal. Lo que está abierto en él puede cobrarse.",
    ),
    "clock": ("No. Payments go on.", "No. Los pagos siguen."),
    "store": (
        "What posd has answered is on disk. What cannot be recorded is not sent.",
        "Lo que posd respondió está en el disco. Lo que no se puede guardar no se envía.",
    ),
    "store.restored": FORGOTTEN,
    "store.gone_back": FORGOTTEN,
    "store.difference": (
        "What a till was told of this payment may have been wrong.",
        "Lo que se dijo a una caja de este pago pudo ser falso.",
    ),
    "store.damaged": (
        "Payments in the damaged part may be charged: do not charge again for them.",
        "Los pagos de la parte dañada pueden estar cobrados: no cobre otra vez por ellos.",
    ),
    "store.file_moved": (
        "New payments are refused and not sent. Those that are open go on at the terminal.",
        "Los pagos nuevos se rechazan y no se envían. Los abiertos siguen en el terminal.",
    ),
    "witness": NO,
}

_DISK = "Revise el disco de la base de datos: espacio, y errores en el registro del kernel (journalctl -k). "
_LINE = "Haga lo que dice la línea."
_SAME_ID = "La caja repite la misma llamada con el mismo id."

EVENTS: Mapping[str, Spanish] = {
    "posd.started": Spanish(
        "posd {version} está listo (proceso {pid}): los terminales llaman a {listen}, los sockets están en "
        "{directory}, la base de datos es {database}, los terminales son {fleet}"
    ),
    "posd.stopping": Spanish("se pidió a posd que se detenga ({signal})"),
    "posd.stopped": Spanish("posd se detuvo en orden"),
    "posd.cannot_start": Spanish(
        "posd no puede arrancar: {error}", "Haga lo que dice el mensaje; posd doctor revisa lo demás."
    ),
    "posd.crashed": Spanish(
        "posd terminó por un error propio ({error_id})",
        "systemd lo arranca otra vez, y posd pregunta por los pagos abiertos. Si vuelve a pasar, informe del error con "
        "esta línea.",
    ),
    "posd.internal_error": Spanish(
        "posd falló de una manera que no debe ({error_id})",
        "Mire el pago (posd show); lo confirmado está en el disco. Informe del error con esta línea.",
    ),
    "posd.hung": Spanish(
        "posd ya no da señales de vida: {error}; {detail}", _DISK + "posd no pudo llegar a su base de datos."
    ),
    "config.loaded": Spanish("se cargó la configuración: {detail}; los terminales son {fleet}"),
    "config.refused": Spanish("se rechaza la configuración cambiada: {error}; {detail}", _LINE),
    "config.needs_restart": Spanish("{detail}", "Haga lo que dice la línea, cuando no haya un pago abierto."),
    "posd.library": Spanish(
        "una biblioteca avisa: {kind}", "Nada, si pasa una vez. Si sigue, informe del error con esta línea."
    ),
    "log.collapsed": Spanish(
        "se omitieron {count} líneas más de {kind}",
        "Mire las líneas de ese evento antes de esta: pasó lo mismo muchas veces.",
    ),
    "payment.started": Spanish("la solicitud de {type} se envió al terminal {terminal}"),
    "payment.answered": Spanish("el terminal {terminal} respondió la solicitud: {judgement}"),
    "payment.outcome": Spanish("el pago en el terminal {terminal} terminó: {result}; se sabe por {evidence}"),
    "payment.attention": Spanish(
        "una persona debe mirar el pago en el terminal {terminal} ({code}): {detail}",
        "posd show ID dice qué hacer; posd list --attention los muestra todos. Un error dice que puede haberse movido "
        "dinero de otra manera que la que alguien cree.",
    ),
    "payment.search": Spanish("se preguntó al terminal {terminal} por el pago: {result}"),
    "payment.abort": Spanish("se pidió al terminal {terminal} que detenga el pago ({kind}): {judgement}"),
    "payment.operator": Spanish("una persona (id de usuario {uid}) decidió sobre el pago: {kind}"),
    "payment.taken_over": Spanish(
        "el pago en el terminal {terminal} estaba abierto cuando posd terminó; está en {phase} y sigue"
    ),
    "payment.commit_uncertain": Spanish(
        "no es seguro que el pago se haya guardado, así que no se envió: {error}", _DISK + _SAME_ID
    ),
    "payment.not_recorded": Spanish(
        "lo que se sabe de un pago no se pudo guardar: {error}",
        _DISK + "posd lo intenta otra vez por sí mismo; después de reiniciar, el pago está en duda y posd pregunta por "
        "él.",
    ),
    "payment.not_readable": Spanish("no se puede ver si el pago se inició ({error_id}): {error}", _DISK + _SAME_ID),
    "webhook.event": Spanish("el terminal informa {status} ({verdict}); el pago está en {phase}"),
    "webhook.print": Spanish("el terminal informa {status} de la impresión ({verdict}); está en {phase}"),
    "webhook.headers": Spanish(
        "la primera llamada de vuelta del terminal {terminal} desde el arranque de posd ({kind}) tiene estas "
        "cabeceras: {detail}"
    ),
    "webhook.quarantined": Spanish(
        "una llamada de vuelta se rechazó (HTTP {http_status}) y se guardó en cuarentena: {reason}",
        "posd quarantine la muestra. Corrija la configuración si la razón la nombra; luego posd reprocess.",
    ),
    "webhook.too_large": Spanish(
        "una llamada de vuelta de {peer} tiene más de {limit_bytes} bytes y se rechazó",
        "posd pregunta al terminal por sí mismo. Si los eventos son de verdad así, aumente webhooks.max_body_bytes.",
    ),
    "webhook.not_stored": Spanish(
        "una llamada de vuelta no se pudo guardar, y no se confirmó al terminal: {error}",
        _DISK + "El terminal envía un evento otra vez durante unos minutos; después posd pregunta por él.",
    ),
    "print.started": Spanish("la impresión se envió al terminal {terminal}"),
    "print.unknown_command": Spanish(
        "la impresión tiene comandos que posd no conoce; van al terminal {terminal} como están: {detail}",
        "Corrija la palabra mal escrita donde la caja hace el recibo; posd print --preview muestra el papel. Si el "
        "terminal conoce el comando, no hay nada que hacer.",
    ),
    "print.answered": Spanish("respuesta a la impresión: {judgement}"),
    "print.outcome": Spanish(
        "la impresión en el terminal {terminal} terminó: se sabe por {evidence}",
        "Un aviso (warning): no se imprimió, o no es seguro. posd print-jobs ID dice por qué; imprímala otra vez como "
        "reimpresión.",
    ),
    "print.attention": Spanish(
        "una persona debe mirar la impresión en el terminal {terminal} ({code}): {detail}",
        "posd print-jobs ID dice qué hacer; posd print-jobs --attention las muestra todas.",
    ),
    "print.poll": Spanish("se preguntó al terminal {terminal} por la impresión: {result}"),
    "print.operator": Spanish("una persona (id de usuario {uid}) decidió sobre la impresión: {kind}"),
    "print.taken_over": Spanish(
        "la impresión en el terminal {terminal} estaba abierta cuando posd terminó; está en {phase} y sigue"
    ),
    "print.commit_uncertain": Spanish(
        "no es seguro que la impresión se haya guardado, así que no se envió: {error}", _DISK + _SAME_ID
    ),
    "print.not_recorded": Spanish(
        "lo que se sabe de una impresión no se pudo guardar: {error}",
        _DISK + "posd lo intenta otra vez por sí mismo.",
    ),
    "print.not_readable": Spanish("no se puede ver si la impresión se inició ({error_id}): {error}", _DISK + _SAME_ID),
    "listener.refused": Spanish(
        "rechazado {count} veces: {kind}, lo último de {peer}",
        "Nada, si es raro. Si son muchos: busque el equipo en esa dirección. Un terminal cuyas llamadas de vuelta dan "
        "wrong_token ejecuta un pago de otro posd, o de otra clave.",
    ),
    "limit.reached": Spanish(
        "se alcanzó un límite ({code}: {detail}); lo que llegó después se rechazó, y no se envió nada de ello",
        "Busque el programa y lo que hace sin fin; los otros siguen. Si falta lugar en el disco (free_for_…), "
        "libérelo: primero se rechazan impresiones y cuarentena, después pagos. docs/hostile.md tiene los límites.",
    ),
    "stream.cut_off": Spanish(
        "un programa no leyó su flujo de eventos ({kind}) durante {seconds} s y se cortó",
        "Nada para posd: el programa puede seguir donde estaba (docs/streams.md). Si vuelve a pasar, busque el "
        "programa que abre un flujo y no lo lee.",
    ),
    "listener.no_answer": Spanish(
        "los terminales no tendrían respuesta en {listen}: {error}; {detail}",
        "Revise el cortafuegos de esta máquina, y que nada más escuche allí; posd doctor dice más.",
    ),
    "listener.was_away": Spanish(
        "nadie recibió los eventos de los terminales mientras {count} pagos estaban abiertos: {detail}",
        "Mire posd status y posd list --open; pregunte por cada uno con posd reconcile ID.",
    ),
    "listener.caught_up": Spanish(
        "cada uno de los {count} pagos terminó, o se encontró, desde la ausencia de posd en la red"
    ),
    "feed.no_socket": Spanish(
        "el feed no se sirve a un relay: {error}",
        "Nada, salvo que aquí funcione un relay a la central: cree el grupo, agregue posd a él y reinicie posd.",
    ),
    "metrics.not_written": Spanish(
        "las métricas no se escriben para node_exporter: {error}; {detail}",
        "Cree el directorio que nombra metrics.textfile, y permita a posd escribir en él (ReadWritePaths= de la unidad "
        "de systemd).",
    ),
    "metrics.written": Spanish("las métricas se escriben otra vez: {detail}"),
    "metrics.failed": Spanish(
        "las métricas no se pudieron hacer", "Los pagos siguen. Informe del error con esta línea."
    ),
    "metrics.not_served": Spanish(
        "las métricas no se ofrecen en {listen}: {error}",
        "Todo lo demás sigue. Si otro programa tiene ese puerto, elija otro (metrics_listen).",
    ),
    "listener.distrusted": Spanish(
        "{detail} ({count} veces)",
        "Haga lo que dice la línea: por lo general, ponga ca.crt en el terminal (posd tls ca).",
    ),
    "certificate.loaded": Spanish(
        "se cargó el certificado: {detail}; termina el {expires} (SHA-256 {fingerprint_sha256})"
    ),
    "certificate.renewed": Spanish("el certificado se renovó: {detail}"),
    "certificate.not_renewed": Spanish(
        "el certificado debía renovarse ({detail}), y no se renovó: {error}",
        "posd tls renew, como el usuario dueño de los archivos; posd tls status dice qué está mal.",
    ),
    "certificate.refused": Spanish(
        "el certificado cambiado no se puede usar: {error}",
        "Ponga en su lugar un certificado y la clave privada que le corresponde; posd los toma por sí mismo.",
    ),
    "certificate.ends": Spanish("{detail} (termina el {expires})", _LINE),
    "discovery.started": Spanish("posd escucha los anuncios de {service_types} en {interfaces}"),
    "discovery.found": Spanish("el terminal {terminal} se anuncia en {host} (está en la configuración: {in_fleet})"),
    "discovery.gone": Spanish("el terminal {terminal} ya no está en {host}"),
    "discovery.ignored": Spanish("se ignoró un anuncio: {reason}"),
    "discovery.claim": Spanish(
        "{detail}",
        "Averigüe cuál equipo es el correcto; dele un base_url o un fingerprint_sha256 en la configuración.",
    ),
    "terminal.identity_conflict": Spanish(
        "{detail}",
        "No se envía nada al terminal. Haga lo que dice la línea; con posd terminals identity se decide.",
    ),
    "terminal.identity_settled": Spanish("otra vez es seguro qué equipo es el terminal {terminal}"),
    "terminal.identity_decided": Spanish(
        "una persona dijo que el terminal {terminal} es el equipo en {host} (id de usuario {uid})"
    ),
    "terminal.commissioned": Spanish(
        "una persona dejó dicho qué se vio funcionar con el terminal {terminal}: {evidence} (id de usuario {uid})"
    ),
    "terminal.commission_lapsed": Spanish(
        "la prueba del terminal {terminal} (posd terminals commission) ya no vale: {detail}",
        "Hágala otra vez: posd terminals commission SERIAL. Hasta entonces un pago en duda espera a una persona.",
    ),
    "terminal.moved": Spanish("desde ahora se llama al terminal {terminal} en {host} (prueba: {kind})"),
    "discovery.unavailable": Spanish(
        "los anuncios no se oyen, o no en todas partes: {error}; {detail}",
        "Revise discovery.interfaces y la red de esta máquina, o dé a cada terminal un base_url.",
    ),
    "interfaces.polled": Spanish("el kernel no informa de cambios de dirección ({error}); posd mira cada {retry_s} s"),
    "interfaces.unreadable": Spanish(
        "las direcciones de esta máquina no se pueden leer ({error}): {detail}",
        "Revise que la unidad de systemd permita AF_NETLINK; posd sigue con lo que sabe.",
    ),
    "clock.unsure": Spanish(
        "no se confía en el reloj de esta máquina ({reason}): {detail}",
        "Mire posd clock; corrija el reloj, o diga que está bien: posd clock confirm. Los pagos siguen.",
    ),
    "clock.sure": Spanish("otra vez se confía en el reloj de esta máquina, por {reason}"),
    "clock.confirmed": Spanish("una persona (id de usuario {uid}) dice que el reloj de esta máquina está bien"),
    "store.backup": Spanish("se escribió una copia de seguridad en {database}: {count} pagos"),
    "store.backups_unusable": Spanish(
        "en {directory}: {detail}", "Revíselas con posd verify; borre lo que no es una copia de seguridad."
    ),
    "store.pruned": Spanish("se borraron {count} pagos y {print_jobs} impresiones anteriores al {before}"),
    "store.not_pruned": Spanish("no se borró nada: {error}", "Revise el disco; posd prune."),
    "store.log_not_emptied": Spanish(
        "el diario de la base de datos no se vació: {detail}",
        "Otra vez posd prune, cuando no se esté haciendo una copia de seguridad.",
    ),
    "store.backup_failed": Spanish(
        "no se hizo una copia de seguridad: {error}", "Haga lo que dice el mensaje; luego otra vez posd backup."
    ),
    "store.restored": Spanish(
        "se restauró la base de datos: {detail}",
        "Compare los pagos desde la copia de seguridad con los terminales. Anote lo que se pagó (posd resolve); luego "
        "posd restore --seen.",
    ),
    "store.gone_back": Spanish(
        "la base de datos retrocedió; {count} pagos se tomaron como en duda. {detail}",
        "Compare con los terminales. Anote lo que se pagó (posd resolve); luego posd restore --seen --operator NAME.",
    ),
    "witness.unusable": Spanish(
        "el testigo de la última ejecución no se pudo usar: {detail}",
        "Nada, si el directorio de estado se movió a propósito; si no, revise el disco. Se hizo uno nuevo.",
    ),
    "witness.not_written": Spanish(
        "el testigo {detail} no se puede escribir ({error}); los pagos siguen",
        "Libere el disco, y revise que posd pueda escribir junto a su base de datos.",
    ),
    "store.restore_seen": Spanish("una persona (id de usuario {uid}) revisó lo que pedían {count} restauraciones"),
    "store.reprocessed": Spanish("{count} pagos se derivaron otra vez de sus eventos: {kind}"),
    "store.print_jobs_reprocessed": Spanish(
        "{count} impresiones se derivaron otra vez de sus llamadas de vuelta: {kind}"
    ),
    "store.difference": Spanish(
        "lo guardado no es lo que dicen sus eventos, en: {detail}; se corrigió",
        "Mire el pago (posd show). Si el disco está bien, informe del error: no debe pasar.",
    ),
    "store.file_moved": Spanish(
        "no se puede guardar nada: {detail}",
        "Ponga el mismo archivo con su nombre antes de reiniciar posd; si no, restaure una copia de seguridad (posd "
        "restore BACKUP).",
    ),
    "store.upgrading": Spanish("la base de datos {database} se adapta a esta versión, hasta ahora durante {seconds} s"),
    "store.log_saved": Spanish(
        "lo que había en el diario que se movió está en el archivo de la base de datos {database}; un reinicio lo "
        "conserva"
    ),
    "store.file_back": Spanish("los archivos de la base de datos {database} están otra vez donde se abrieron"),
    "store.damaged": Spanish(
        "la base de datos {database} está dañada ({error}). {detail}",
        "Haga lo que dice la línea; no se cambió ni se borró nada.",
    ),
    "relay.connected": Spanish("el relé envía en {host} al servidor NATS {detail}"),
    "relay.old_server": Spanish(
        "el servidor NATS es de la versión {version}: puede perder mensajes que ya confirmó, si se va la luz",
        "Actualícelo a la 2.9.21 o posterior. Lo que pierde se envía otra vez; hasta entonces falta en la central "
        "(docs/fleet.md).",
    ),
    "relay.begun": Spanish("el relé empezó a enviar la base de datos {detail}"),
    "relay.overtaken": Spanish("otro mensaje llegó primero: {detail}; el relé sigue detrás de él"),
    "relay.lost": Spanish(
        "{count} cambios ({detail}) ya no están en el registro y nunca se enviaron; se le dice a la central",
        "Deje el relé siempre en marcha. Cómo terminaron estos pagos: posd report en esta caja, o sus copias de "
        "seguridad.",
    ),
    "relay.waiting": Spanish(
        "el relé espera: {error}; el próximo intento es en {retry_s} s",
        "Si la red no está, nada: posd conserva cada cambio, y ningún pago espera. Si no, lo que dice la línea.",
    ),
    "relay.refused": Spanish("el relé no envía nada: {error}. {detail}", "Haga lo que dice la línea."),
    "relay.away": Spanish(
        "el relé no pudo enviar: {error}",
        "Revise que posd esté en marcha y que se llegue a los servidores NATS; luego otra vez.",
    ),
    "relay.stopped": Spanish("el relé se detuvo"),
    "collect.connected": Spanish("el colector toma de {host} y escribe en {database}"),
    "collect.old_server": Spanish(
        "el servidor NATS es de la versión {version}: si se va la luz puede perder mensajes, y saltarse algunos para "
        "los colectores",
        "Actualícelo a la 2.9.21 o posterior. Si faltan cambios (posd collect --check): posd collect --from-start.",
    ),
    "collect.waiting": Spanish(
        "el colector espera: {error}; el próximo intento es en {retry_s} s",
        "Revise que el servidor NATS y PostgreSQL estén en marcha. La cola conserva lo que no se tomó.",
    ),
    "collect.unreadable": Spanish(
        "{count} mensajes no se pudieron usar", "Mire la tabla posd.unreadable: cada uno está ahí con su motivo."
    ),
    "collect.refused": Spanish("el colector no toma nada: {error}", "Haga lo que dice la línea."),
    "collect.stopped": Spanish("el colector se detuvo"),
}


def rows() -> Iterator[tuple[str, Row]]:
    """Yield each event and what is said of it."""
    for code, event in events.EVENTS.items():
        spanish = EVENTS[code]
        means = (
            f"Level {' or '.join(event.levels)}: {_named(event.says)}.",
            f"Nivel {' o '.join(event.levels)}: {_named(spanish.says)}.",
        )
        severe = {"warning", "error"} & set(event.levels)
        money = MONEY.get(code) or MONEY[code.partition(".")[0]] if severe else NO
        yield code, Row(means, money=money, do=(event.do, spanish.do))


def _named(says: str) -> str:
    """Write a line with the names of its fields in capitals, without the parts that can be left out."""
    return _FIELD.sub(lambda field: field[1].upper(), _OPTIONAL.sub("", says))
