"""What the listener on the LAN refuses (the log event listener.refused)."""

from collections.abc import Mapping
from typing import Final

from posd.cli.explain.texts.rows import NOTHING_LOST, Row

STRANGER: Final = (
    "Nothing, where it is rare. Many of them: find the device at that address.",
    "Nada, si es raro. Si son muchos: busque el equipo en esa dirección.",
)
REPEATS: Final = ("Nothing: terminals send again.", "Nada: los terminales lo envían otra vez.")

REFUSED: Mapping[str, Row] = {
    "accept_failed": Row(
        means=("A connection could not be accepted.", "No se pudo aceptar una conexión."),
        comes=("The system has no descriptors or memory left.", "El sistema no tiene más descriptores o memoria."),
        money=NOTHING_LOST,
        do=("Look at what else runs on this machine.", "Vea qué más funciona en esta máquina."),
    ),
    "too_many_connections": Row(
        means=(
            "An address, or all of them, have too many connections.",
            "Una dirección, o todas juntas, tienen demasiadas conexiones.",
        ),
        comes=(
            "A flood, or a device that opens connections without end.",
            "Una avalancha, o un equipo que abre conexiones sin fin.",
        ),
        money=NOTHING_LOST,
        do=STRANGER,
    ),
    "unproven_cut": Row(
        means=(
            "A connection that has shown no valid token was cut for a new one.",
            "Una conexión sin un token válido se cortó para una nueva.",
        ),
        comes=("Many strangers at once.", "Muchos extraños a la vez."),
        money=NOTHING_LOST,
        do=STRANGER,
    ),
    "tls_handshake_failed": Row(
        means=("A device began TLS and did not end it.", "Un equipo empezó TLS y no lo terminó."),
        comes=(
            "It does not trust the certificate, or it is no terminal.",
            "No confía en el certificado, o no es un terminal.",
        ),
        money=NOTHING_LOST,
        do=STRANGER,
        see="The terminal does not trust posd",
    ),
    "connection_broke": Row(
        means=("A connection ended in the middle.", "Una conexión terminó a la mitad."),
        comes=("The network, or a device that was switched off.", "La red, o un equipo que se apagó."),
        money=NOTHING_LOST,
        do=STRANGER,
    ),
    "untaken_answer": Row(
        means=("A device did not read the answer.", "Un equipo no leyó la respuesta."),
        comes=("It is slow, or no terminal.", "Es lento, o no es un terminal."),
        money=NOTHING_LOST,
        do=STRANGER,
    ),
    "unknown_path": Row(
        means=("A call of a path that posd does not have.", "Una llamada de una ruta que posd no tiene."),
        comes=("A scanner, or a browser.", "Un programa que explora la red, o un navegador."),
        money=NOTHING_LOST,
        do=STRANGER,
    ),
    "wrong_token": Row(
        means=("A callback without the right token.", "Una llamada de vuelta sin el token correcto."),
        comes=(
            "A stranger; or a terminal that runs a payment of another posd, or of another callback key.",
            "Un extraño; o un terminal que ejecuta un pago de otro posd, o de otra clave.",
        ),
        money=NOTHING_LOST,
        do=(
            "See which device is at that address, and whether the database or its key was replaced:",
            "Vea qué equipo está en esa dirección, y si se cambió la base de datos o su clave:",
        ),
        commands=("posd terminals", "posd status"),
        see="The callback key is missing",
    ),
    "no_room": Row(
        means=(
            "There was no room for the body of a callback.",
            "No hubo lugar para el cuerpo de una llamada de vuelta.",
        ),
        comes=("Many large bodies at once.", "Muchos cuerpos grandes a la vez."),
        money=NOTHING_LOST,
        do=REPEATS,
    ),
    "slow_body": Row(
        means=("The body of a callback did not come in time.", "El cuerpo de una llamada de vuelta no llegó a tiempo."),
        comes=("A slow network.", "Una red lenta."),
        money=NOTHING_LOST,
        do=REPEATS,
    ),
}
