"""Health, the checks of `posd status` and of `posd doctor`, and why a clock is not believed."""

from collections.abc import Iterator, Mapping
from typing import Final

from posd.cli.explain.texts.rows import AFTER_RESTORE, AFTER_RESTORE_COMMANDS, NO, NONE, Row, Words

CHECK_SAYS: Final = ("Do what the check says:", "Haga lo que dice la comprobación:")
FINDING: Final = ("Do what the finding says.", "Haga lo que dice el resultado.")

HEALTH: Mapping[str, Row] = {
    "ok": Row(
        means=("All is as it should be.", "Todo está como debe."),
        comes=("Every check is ok.", "Todas las comprobaciones están bien."),
        money=NO,
        do=("Nothing.", "Nada."),
    ),
    "degraded": Row(
        means=(
            "Payments go on, and something needs a person soon.",
            "Los pagos siguen, y algo necesita pronto a una persona.",
        ),
        comes=("At least one check is degraded.", "Al menos una comprobación está en degraded."),
        money=(
            "Payments can be made; what is degraded may delay their outcomes.",
            "Se puede pagar; los resultados pueden llegar tarde.",
        ),
        do=CHECK_SAYS,
        commands=("posd status",),
    ),
    "failing": Row(
        means=("Payments cannot be made.", "No se puede pagar."),
        comes=("At least one check is failing.", "Al menos una comprobación está en failing."),
        money=(
            "New payments are refused, and not sent. Those that are open go on at the terminal.",
            "Los pagos nuevos se rechazan, y no se envían. Los abiertos siguen en el terminal.",
        ),
        do=CHECK_SAYS,
        commands=("posd status", "posd doctor"),
    ),
}


#: The checks of GET /v1/health, which `posd status` shows.
CHECKS: Mapping[str, Row] = {
    "storage": Row(
        means=("Whether the database can be read and written.", "Si se puede leer y escribir en la base de datos."),
        comes=(
            "The disk is full or broken, or the database file was moved under posd.",
            "El disco está lleno o dañado, o el archivo de la base de datos fue movido.",
        ),
        money=(
            "New payments are refused and not sent. Those that are open go on, and are asked for.",
            "Los pagos nuevos se rechazan y no se envían. Los abiertos siguen, y posd pregunta por ellos.",
        ),
        do=(
            "Free the disk, or put the file back; the check says which:",
            "Libere el disco, o ponga el archivo en su lugar; la comprobación dice cuál:",
        ),
        commands=("posd status", "posd doctor"),
        see="The disk is full",
    ),
    "webhook_listener": Row(
        means=("Whether terminals can call back.", "Si los terminales pueden llamar a posd."),
        comes=(
            "The listener does not accept connections, or was away for longer than terminals send an event again.",
            "posd no acepta conexiones, o estuvo ausente más tiempo del que los terminales repiten un evento.",
        ),
        money=(
            "Open payments may be charged without an event: posd asks the terminals.",
            "Los pagos abiertos pueden cobrarse sin un evento: posd pregunta a los terminales.",
        ),
        do=("Look at what is open, and ask for each:", "Mire qué está abierto, y pregunte por cada uno:"),
        commands=("posd list --open", "posd reconcile ID"),
        see="The network was away",
    ),
    "certificate": Row(
        means=(
            "Whether the certificate that terminals see is good.",
            "Si el certificado que ven los terminales está bien.",
        ),
        comes=(
            "It ends soon or has ended, does not fit this machine's addresses, or a terminal refuses it.",
            "Termina pronto o terminó, no corresponde a las direcciones de esta máquina, o un terminal lo rechaza.",
        ),
        money=(
            "A terminal that refuses it sends no events: outcomes come late, by a search.",
            "Un terminal que lo rechaza no envía eventos: los resultados llegan tarde, por una búsqueda.",
        ),
        do=("See what is wrong, and make a new one:", "Vea qué está mal, y haga uno nuevo:"),
        commands=("posd tls status", "posd tls renew"),
        see="A certificate ends soon",
    ),
    "discovery": Row(
        means=(
            "Whether announcements of terminals are heard (mDNS).",
            "Si se oyen los anuncios de los terminales (mDNS).",
        ),
        comes=(
            "The network of this machine is away, or its port is in use.",
            "La red de esta máquina no está, o su puerto está en uso.",
        ),
        money=(
            "No. Terminals with a base_url in the configuration work.",
            "No. Los terminales con base_url en la configuración funcionan.",
        ),
        do=("Look at the network of this machine:", "Mire la red de esta máquina:"),
        commands=("posd doctor",),
        see="The terminal cannot be found",
    ),
    "clock": Row(
        means=("Whether the clock of this machine is believed.", "Si se confía en el reloj de esta máquina."),
        comes=(
            "It jumped, went back, or stands before this version of posd was made.",
            "Saltó, retrocedió, o está antes del día en que se hizo esta versión de posd.",
        ),
        money=(
            "No. Payments go on; nothing is removed and no certificate is made until it is believed.",
            "No. Los pagos siguen; no se borra nada ni se hace un certificado hasta que se confíe en él.",
        ),
        do=(
            "Compare it with another clock. Set it, or say that it is right:",
            "Compárelo con otro reloj. Corríjalo, o diga que está bien:",
        ),
        commands=("posd clock", "posd clock confirm --operator NAME"),
        see="The clock is wrong",
    ),
    "restore": Row(
        means=(
            "Whether the database can have forgotten payments, and a person has looked at it.",
            "Si la base de datos pudo olvidar pagos, y una persona lo revisó.",
        ),
        comes=(
            "The database was restored from a backup, or has gone back in time (a snapshot of the machine, say).",
            "La base de datos se restauró de una copia, o retrocedió (por ejemplo, una copia de la máquina).",
        ),
        money=(
            "Payments that it has forgotten may be charged: do not charge again for them.",
            "Los pagos que olvidó pueden estar cobrados: no cobre otra vez por ellos.",
        ),
        do=AFTER_RESTORE,
        commands=AFTER_RESTORE_COMMANDS,
        see="The database was restored",
    ),
    "identity": Row(
        means=("Whether it is sure which device is each terminal.", "Si es seguro qué equipo es cada terminal."),
        comes=(
            "Two devices answer under one serial, or a terminal moved and cannot prove who it is.",
            (
                "Dos equipos responden con un mismo número de serie, o un terminal cambió de dirección y no puede "
                "probar quién es."
            ),
        ),
        money=(
            "Nothing is sent to that terminal. What is open on it may be charged.",
            "No se envía nada a ese terminal. Lo que está abierto en él puede cobrarse.",
        ),
        do=(
            "Look at the terminal and its address, and say which device it is:",
            "Mire el terminal y su dirección, y diga cuál equipo es:",
        ),
        commands=("posd terminals identity SERIAL",),
        see="Two devices claim to be one terminal",
    ),
    "configuration": Row(
        means=(
            "Whether the configuration that is in force is the one in the files.",
            "Si la configuración que está en uso es la de los archivos.",
        ),
        comes=(
            (
                "The files were changed and have a mistake, so posd refused them; or a part of them counts after a "
                "restart."
            ),
            (
                "Los archivos se cambiaron y tienen un error, así que posd los rechazó; o una parte vale después de "
                "reiniciar."
            ),
        ),
        money=(
            ("No. Payments go on with the configuration before. After a restart posd would not start with a mistake."),
            (
                "No. Los pagos siguen con la configuración anterior. Después de reiniciar, posd no empezaría con un "
                "error."
            ),
        ),
        do=(
            "Mend the file and the line that the check names; then:",
            "Corrija el archivo y la línea que la comprobación nombra; luego:",
        ),
        commands=("posd config check", "systemctl reload posd"),
        see="posd does not start",
    ),
}


#: The checks of `posd doctor`.
DOCTOR: Mapping[str, Row] = {
    "configuration": Row(
        means=(
            "Whether the configuration file can be read, and is right.",
            "Si se puede leer el archivo de configuración, y está bien.",
        ),
        money=NO,
        do=("Correct what it names; then:", "Corrija lo que nombra; luego:"),
        commands=("posd config check",),
        see="posd does not start",
    ),
    "daemon": Row(
        means=("Whether posd runs and answers.", "Si posd funciona y responde."),
        money=NO,
        do=("Start it, and see why it ended:", "Inícielo, y vea por qué terminó:"),
        commands=("systemctl start posd", "posd logs -p error"),
        see="posd does not start",
    ),
    "files": Row(
        means=(
            "Whether keys and files are there, whole, and closed to others.",
            "Si las claves y los archivos están, enteros, y cerrados para otros.",
        ),
        money=NO,
        do=FINDING,
    ),
    "access": Row(
        means=(
            "Whether tills and operators may open the sockets.",
            "Si las cajas y los operadores pueden abrir los sockets.",
        ),
        money=NO,
        do=FINDING,
    ),
    "database": Row(
        means=(
            "Whether the database is whole, and fits this version.",
            "Si la base de datos está entera, y corresponde a esta versión.",
        ),
        money=NO,
        do=("Check it in full:", "Revísela por completo:"),
        commands=("posd verify",),
        see="The database is damaged",
    ),
    "disk": Row(
        means=("Whether the disk of the database has room.", "Si el disco de la base de datos tiene lugar."),
        money=NO,
        do=("Free the disk.", "Libere el disco."),
        see="The disk is full",
    ),
    "port": Row(
        means=("Whether the port of the webhook listener is posd's.", "Si el puerto de los terminales es de posd."),
        money=NO,
        do=(
            "Stop what else listens there, or set webhooks.listen to another port.",
            "Detenga lo otro que escucha allí, o ponga otro puerto en webhooks.listen.",
        ),
        see="posd does not start",
    ),
    "firewall": Row(
        means=(
            "Whether a firewall of this machine keeps terminals out.",
            "Si un cortafuegos de esta máquina deja fuera a los terminales.",
        ),
        money=NO,
        do=("Open the port for the terminals' network.", "Abra el puerto para la red de los terminales."),
        see="The terminal does not trust posd",
    ),
    "mdns": Row(
        means=("Whether announcements of terminals can be heard.", "Si se pueden oír los anuncios de los terminales."),
        money=NO,
        do=("Look at the network, or give each terminal a base_url.", "Mire la red, o dé a cada terminal un base_url."),
        see="The terminal cannot be found",
    ),
    "certificate": Row(
        means=(
            "Whether the certificate is good, and is what the listener shows.",
            "Si el certificado está bien, y es el que posd muestra.",
        ),
        money=NO,
        do=("Make a new one:", "Haga uno nuevo:"),
        commands=("posd tls renew",),
        see="A certificate ends soon",
    ),
    "terminal": Row(
        means=(
            "Whether each terminal can be reached, and shows the certificate that is expected.",
            "Si se llega a cada terminal, y muestra el certificado esperado.",
        ),
        money=NO,
        do=("See where it is:", "Vea dónde está:"),
        commands=("posd terminals",),
        see="The terminal cannot be found",
    ),
    "callback": Row(
        means=(
            "Whether each terminal could reach the address that posd gives it for its events.",
            "Si cada terminal podría llegar a la dirección que posd le da para sus eventos.",
        ),
        money=NO,
        do=FINDING,
        see="The terminal does not trust posd",
    ),
    "clock": Row(
        means=(
            "Whether the clock of this machine agrees with those of the terminals.",
            "Si el reloj de esta máquina coincide con los de los terminales.",
        ),
        money=NO,
        do=("Set the clock, or look why it is not believed:", "Corrija el reloj, o vea por qué no se confía en él:"),
        commands=("posd clock",),
        see="The clock is wrong",
    ),
}


#: Why the clock is not believed (`posd clock`, the log event clock.unsure): means; the rest is that of the check.
DOUBTS: Mapping[str, Words] = {
    "before_build": (
        "The clock stands before the day on which this version of posd was made.",
        "El reloj está antes del día en que se hizo esta versión de posd.",
    ),
    "behind": (
        "The clock stands before a time that posd has seen already.",
        "El reloj está antes de una hora que posd ya vio.",
    ),
    "stepped_back": ("The clock went back while posd ran.", "El reloj retrocedió mientras posd funcionaba."),
    "stepped_ahead": (
        "The clock jumped ahead while posd ran, and nothing confirms the new time.",
        "El reloj saltó adelante mientras posd funcionaba, y nada confirma la hora nueva.",
    ),
    "far_ahead": (
        "The clock is far ahead of the last time that was believed, and nothing confirms it.",
        "El reloj está muy adelante de la última hora en que se confió, y nada lo confirma.",
    ),
}


def doubts() -> Iterator[tuple[str, Row]]:
    """Yield each doubt of the clock and what is said of it."""
    for code, means in DOUBTS.items():
        yield code, CHECKS["clock"]._replace(means=means, comes=NONE)
