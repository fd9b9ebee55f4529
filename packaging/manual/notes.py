"""Tables of what click does not know about a command: the meaning of its exit codes, and pages to read next."""

from collections.abc import Iterator, Mapping, Sequence

from posd.base.operations import OPERATIONS, OperationType

#: Commands that start a payment.
STARTS = tuple(OPERATIONS[kind].command for kind in OperationType)

#: Exit codes that most commands share ("Command line" in the local API's contract).
DONE = (0, "Done.")
REFUSED = (1, "Refused by posd, or not done; the message says why.")
USAGE = (2, "Wrong usage, an invalid request or a wrong configuration.")
UNREACHABLE = (3, "The daemon cannot be reached.")
OPEN = (4, "Still open: the wait was cut short (Ctrl-C, a fault of posd); what was started goes on.")

GENERAL = (DONE, REFUSED, USAGE, UNREACHABLE, OPEN)
#: Exit codes of commands that call the daemon without waiting for an outcome.
ASKS = GENERAL[:4]
#: Exit codes of commands that need no daemon.
ALONE = GENERAL[:3]

_PAYS = (
    (0, "Approved; with --no-wait: started."),
    (1, "Declined, rejected, canceled, or refused by posd: nothing was started under this id."),
    USAGE,
    (3, "The daemon cannot be reached. Where the message says that it may have started, repeat it with the same --id."),
    (4, "Still open, or refused where an earlier call with this --id may have started it. See posd-await(1)."),
)
_STANDS = (
    (0, "The payment is approved."),
    (1, "It ended otherwise, or was never started; the message says which."),
    USAGE,
    UNREACHABLE,
    (4, "It is still open, or how it stands is not known."),
)

#: command -> its exit codes, if the general text would be too short. "tls" covers all of its commands.
EXITS: Mapping[str, Sequence[tuple[int, str]]] = {
    "": GENERAL,
    "run": (
        (0, "Stopped as it was told (SIGTERM, Ctrl-C)."),
        (1, "Something is in the way: another daemon, a port in use, a database that cannot be opened."),
        (2, "The configuration or the certificate is wrong. systemd does not start it again."),
    ),
    "relay": (
        (0, "Stopped as it was told (SIGTERM, Ctrl-C); with --once, all was sent."),
        (1, "The last message on the lane's subject is not its own: a person looks first."),
        (2, "The configuration is wrong, or the NATS servers are too old for a stream of several replicas."),
        (3, "With --once: posd or the servers cannot be reached."),
    ),
    "collect": (
        (0, "Done; with --check, all lanes are complete and heard of; stopped as it was told."),
        (1, "With --check: changes are missing or lost, a lane is silent or unreachable. With retire: no such lane."),
        (2, "The configuration is wrong, or the tables are missing or of another version."),
        (3, "The NATS servers or PostgreSQL cannot be reached."),
    ),
    "demo": ((0, "The payment was approved and the receipt printed."), (1, "Something went wrong."), USAGE),
    "simulate": ((0, "Stopped."), (1, "It could not go on."), USAGE),
    **dict.fromkeys(STARTS, _PAYS),
    "await": _STANDS,
    "reconcile": _STANDS,
    "release": ASKS,
    "resolve": ASKS,
    "acknowledge": ASKS,
    "abort": (
        (0, "The terminal was asked, or may have been. The outcome still has to be awaited."),
        (1, "Refused: it has ended, the bank was already asked, or the terminal runs nothing."),
        USAGE,
        UNREACHABLE,
    ),
    "show": ASKS,
    "list": ASKS,
    "print": (
        (0, "Printed; with --no-wait: sent; with --preview: drawn."),
        (1, "Failed, or refused."),
        USAGE,
        UNREACHABLE,
        (4, "Still open, or in doubt: the wait was cut short, or whether it was sent is not known. It goes on."),
    ),
    "quarantine": (
        (0, "Done; with --apply: all that is stored agrees with the recorded events."),
        (1, "Refused; with --apply: something differed; it is listed."),
        USAGE,
        UNREACHABLE,
        (4, "The wait was cut short; posd goes on with it."),
    ),
    "terminals": ASKS,
    "status": (
        (0, "All is well. Payments that are under way do not count."),
        (1, "Something is not: each such line names the next command."),
        USAGE,
        (3, "The daemon does not run, or this user may not ask it."),
    ),
    "config": ((0, "The configuration is right."), (2, "It is wrong; every mistake is named.")),
    "tls": ((0, "Done; of status: all is well."), (1, "Not done; of status: something is wrong."), USAGE),
    "backup": (
        (0, "Written and checked."),
        (1, "Refused, or it could not be written."),
        USAGE,
        UNREACHABLE,
        (4, "The wait was cut short; posd may go on with it."),
    ),
    "restore": (
        (0, "Done."),
        (1, "Nothing was changed: posd runs, a file cannot be used, or the question was not answered with yes."),
        (2, "Wrong usage, the file is no backup of posd, or a line of the list of --ids is wrong."),
        (3, "With --seen: the daemon cannot be reached."),
    ),
    "verify": (
        (0, "The database is whole and agrees with itself."),
        (1, "Something is wrong with it; it is listed."),
        (2, "Wrong usage, or the file is no database of posd."),
    ),
    "prune": (
        (0, "Done."),
        (1, "Refused, the question was not answered with yes, or not all could be removed."),
        USAGE,
        UNREACHABLE,
        (4, "The wait was cut short; posd may go on with it."),
    ),
    "clock": ((0, "The clock is believed."), (1, "It is not, or posd refused."), USAGE, UNREACHABLE),
    "clock confirm": ASKS,
    "doctor": (
        (0, "Nothing has failed."),
        (1, "Something has, a configuration that cannot be used too."),
        (3, "posd does not run; other checks may have failed too."),
    ),
    "support": (
        (0, "Written."),
        (1, "Not written: the question was not answered with yes, or the file cannot be written."),
        (2, "Wrong usage: the file is there already, or no person can be asked and --yes is not given."),
    ),
    "explain": ((0, "Done."), (2, "Wrong usage, or a code that posd does not have; the message names the nearest.")),
    "openapi": ((0, "Done."), USAGE),
    "completion": ((0, "Done."), USAGE),
    "logs": ALONE,
    "metrics": ASKS,
    "report": ((0, "Done."), (1, "The total is not the one of --expect, or posd refused."), USAGE, UNREACHABLE),
    "watch": ASKS,
}

#: Groups of related commands, for SEE ALSO.
FAMILIES: Sequence[Sequence[str]] = (
    (*STARTS, "await", "abort", "show", "list"),
    ("list", "show", "reconcile", "release", "resolve", "acknowledge", "quarantine"),
    ("print", "list", "resolve", "acknowledge"),
    ("status", "watch", "logs", "metrics", "report", "doctor", "terminals", "clock", "explain", "support"),
    ("backup", "restore", "verify", "prune"),
    ("relay", "collect", "config", "run"),
    ("run", "config", "tls", "terminals", "doctor", "status"),
    ("demo", "simulate"),
    ("completion", "config", "openapi"),
)

#: variable -> its meaning; for posd(1).
ENVIRONMENT: Mapping[str, str] = {
    "POSD_CONFIG": "The configuration file, where --config does not name one.",
    "POSD_SOCKET": "The daemon's socket, where --socket does not name one.",
    "POSD_DEBUG": "Set: a fault of posd itself is shown with where it happened. For who repairs posd.",
    "NO_COLOR": "Set: no colours.",
}

#: path -> its content; for posd(1).
FILES: Mapping[str, str] = {
    "/etc/posd/config.toml": "The configuration; see posd.toml(5).",
    "/run/posd/till.sock": "The socket of the tills: group posd-till.",
    "/run/posd/admin.sock": "The socket of the people who look after it: group posd-admin. It can do everything.",
    "/run/posd/feed.sock": "The socket of a relay to head office: group posd-feed. It can read the feed, no more.",
    "/var/lib/posd/posd.db": "The database. Every payment is in it.",
    "/var/lib/posd/callback.key": "The secret by which posd knows that a callback is genuine.",
    "/var/lib/posd/config.last": "The last configuration that worked, for a start with one that has a mistake.",
    "/var/lib/posd/posd.db.witness": "The payments started lately: they tell where the database has gone back.",
    "/var/lib/posd/tls/": "The local CA and the certificate that terminals see.",
}


def exits_of(path: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return the exit codes of a command with their meaning. A command without a row has the codes of its group."""
    for length in range(len(path), 0, -1):
        if row := EXITS.get(" ".join(path[:length])):
            return tuple(row)
    return GENERAL


def related(path: Sequence[str], children: Sequence[str]) -> Iterator[str]:
    """Yield the names of related pages that exist."""
    from posd.cli.main import COMMANDS

    if not path:
        yield from (f"posd-{child}(1)" for child in children)
        yield from ("posd.toml(5)", "posd-codes(7)")
        return
    yield "posd(1)"
    here = "-".join(("posd", *path))
    own = [f"{here}-{child}(1)" for child in children]
    if len(path) > 1:
        own.append("-".join(("posd", *path[:-1])) + "(1)")
    names = [name for family in FAMILIES if path[0] in family for name in family]
    own += [f"posd-{name}(1)" for name in dict.fromkeys(names) if name in COMMANDS and name != path[0]]
    yield from own
    yield "posd.toml(5)"
