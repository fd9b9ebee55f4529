"""Limits of what one sender can make posd hold. The English is made of `posd.base.limits`."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from posd.base import limits
from posd.cli.explain.texts.problems import PROBLEMS
from posd.cli.explain.texts.rows import Row, Words


class Spanish(NamedTuple):
    """The words of a limit in Spanish, as in `limits.Limit`; `bytes` at the beginning of a unit is written as MiB."""

    unit: str
    of: str
    answer: str
    reason: str


MONEY: Final = (
    "What is refused is not sent. How a payment ends gets in past it.",
    "Lo que se rechaza no se envía. El final de un pago entra de todos modos.",
)

#: What to do where a terminal has reached a limit; of a program and of the disk it is that of the problem.
TERMINALS: Final = Row(
    do=(
        "It is a fault of the terminal, which sends without end. Look at what it sends; restart it; tell its vendor:",
        "Es un error del terminal, que envía sin fin. Mire qué envía, reinícielo, y avise a su proveedor:",
    ),
    commands=("posd list --attention", "posd quarantine"),
)

_CLOSED = "429 limit_reached, y luego se cierra la conexión"
_UNSENT = "429 limit_reached, y no se envía nada"

LIMITS: Mapping[str, Spanish] = {
    "events_of_transaction": Spanish(
        "eventos",
        "un pago",
        "429, el aviso event_limit, y una búsqueda",
        "Un pago tiene cuatro eventos, algunos tienen decenas. Una repetición de 1000 entra.",
    ),
    "finals_of_transaction": Spanish(
        "eventos",
        "un pago",
        "429",
        "Los eventos finales tienen este lugar propio además de los otros. El primer evento de cada uno de los siete "
        "estados entra aun pasado el límite: una aprobación nunca se rechaza por lo que llegó antes.",
    ),
    "events_of_terminal": Spanish(
        "bytes al día",
        "un terminal",
        "429",
        "Cada evento cuenta su cuerpo y 1 KiB por sus filas. Mil pagos al día con los metadatos más grandes usan un "
        "tercio. El primer evento de cada estado de un pago entra aun pasado el límite.",
    ),
    "quarantine_of_terminal": Spanish(
        "bytes al día",
        "un terminal",
        "429",
        "De un error que viene con cada evento, una persona necesita unos pocos cuerpos. El cuerpo más grande cabe "
        "sesenta veces.",
    ),
    "quarantine_of_subject": Spanish(
        "cuerpos",
        "un pago o una impresión",
        "400 o 403 como antes, y el cuerpo no se guarda",
        "Un terminal que repite un error sin fin no debe ocultar los otros.",
    ),
    "callbacks_of_print_job": Spanish(
        "llamadas de vuelta",
        "una impresión",
        "200, y no se guarda salvo que termine la impresión",
        "Una impresión tiene dos o tres. Se envían una sola vez: ninguna respuesta las trae de nuevo.",
    ),
    "connections_of_process": Spanish(
        "conexiones",
        "un proceso, en cada socket",
        _CLOSED,
        "Una caja tiene una por cada pago que espera, y una o dos para sus flujos de eventos: algunas decenas.",
    ),
    "connections_of_user": Spanish(
        "conexiones",
        "todos los procesos de un usuario, en cada socket",
        _CLOSED,
        "Todas las cajas de una tienda grande pueden funcionar con un mismo usuario.",
    ),
    "connections_of_tills": Spanish(
        "conexiones",
        "el socket de las cajas",
        _CLOSED,
        "Son más de las que puede tomar un usuario, para que un usuario no deje fuera a los otros.",
    ),
    "connections_of_operators": Spanish(
        "conexiones",
        "el socket de administración",
        _CLOSED,
        "Son propias: posd status y posd doctor tienen respuesta aunque las cajas hayan usado todas las suyas.",
    ),
    "connections_of_feed": Spanish(
        "conexiones",
        "el socket del feed",
        _CLOSED,
        "Un relay tiene una o dos, y otro puede tomar su lugar.",
    ),
    "streams_of_process": Spanish(
        "flujos de eventos",
        "un proceso",
        "429 limit_reached",
        "Cada flujo lee la base de datos en cada cambio: muchos de ellos hacen lentos los pagos de todos.",
    ),
    "payments_of_process": Spanish(
        "bytes al día",
        "un proceso",
        _UNSENT,
        "Cada inicio cuenta su cuerpo y 4 KiB por sus filas: 60 000 pagos. Una caja que los inicia sin fin no debe "
        "llenar el disco. Los inicios rechazados no dejan una fila y no cuentan.",
    ),
    "payments_of_user": Spanish(
        "bytes al día",
        "todos los procesos de un usuario",
        _UNSENT,
        "Un programa que se inicia otra vez para cada pago tiene cada vez un proceso nuevo.",
    ),
    "print_jobs_of_process": Spanish(
        "bytes al día",
        "un proceso",
        _UNSENT,
        "Lo mismo para impresiones, por separado: imprimir sin fin no detiene ningún pago. Son 1000 documentos del "
        "tamaño más grande.",
    ),
    "print_jobs_of_user": Spanish("bytes al día", "todos los procesos de un usuario", _UNSENT, "Como para los pagos."),
    "free_for_extras": Spanish(
        "bytes libres en el disco, o la centésima parte de uno pequeño",
        "posd",
        "503 storage_unavailable a las impresiones, y 503 a las llamadas de vuelta para la cuarentena",
        "Lo que queda es para los pagos y sus eventos.",
    ),
    "free_for_payments": Spanish(
        "bytes libres en el disco, o 1/200 de uno pequeño",
        "posd",
        "503 storage_unavailable, y no se envía nada",
        "Lo que queda es para los eventos de los pagos abiertos: sus aprobaciones entran.",
    ),
}

OF_TERMINALS = (
    limits.EVENTS_OF_TRANSACTION,
    limits.FINALS_OF_TRANSACTION,
    limits.EVENTS_OF_TERMINAL,
    limits.QUARANTINE_OF_TERMINAL,
    limits.QUARANTINE_OF_SUBJECT,
    limits.CALLBACKS_OF_PRINT_JOB,
)
#: Of these, that much has to be free; of the others, there may be that much.
OF_DISK = (limits.FREE_FOR_EXTRAS, limits.FREE_FOR_PAYMENTS)


def rows() -> Iterator[tuple[str, Row]]:
    """Yield each limit and what is said of it."""
    for limit in limits.ALL:
        spanish = LIMITS[limit.name]
        much: Words = (_much(limit, limit.unit, f"{limit.value:,}"), _much(limit, spanish.unit, str(limit.value)))
        if limit in OF_DISK:
            found = PROBLEMS["storage_unavailable"]
            means, past = (f"At least {much[0]}.", f"Al menos {much[1]}."), ("With less", "Con menos")
        else:
            found = TERMINALS if limit in OF_TERMINALS else PROBLEMS["limit_reached"]
            means = (f"At most {much[0]} of {limit.of}.", f"Como máximo {much[1]} de {spanish.of}.")
            past = ("Past it", "Pasado el límite,")
        comes = (
            f"{limit.reason} {past[0]} the answer is {limit.answer.replace('`', '')}.",
            f"{spanish.reason} {past[1]} la respuesta es {spanish.answer}.",
        )
        yield limit.name, found._replace(means=means, comes=comes, money=MONEY)


def _much(limit: limits.Limit, unit: str, count: str) -> str:
    if unit.startswith("bytes"):
        return f"{limit.value // limits.MIB} MiB{unit.removeprefix('bytes')}"
    return f"{count} {unit}"
