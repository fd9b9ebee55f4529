"""Tables of what click does not know about a command: the meaning of its exit codes, and pages to read next."""

from collections.abc import Iterator, Mapping, Sequence

from posd.base.operations import OPERATIONS, OperationType

#: Commands that start a payment.
STARTS = tuple(OPERATIONS[kind].command for kind in OperationType)

#: Exit codes that most commands share.
DONE = (0, "Done.")
REFUSED = (1, "Refused by posd, or not done; the message says why.")
USAGE = (2, "Wrong usage, an invalid request or a wrong configuration.")
UNREACHABLE = (3, "The daemon cannot be reached.")
OPEN = (4, "Still open: the wait ended early (Ctrl-C, a fault of posd). The payment or job goes on.")

GENERAL = (DONE, REFUSED, USAGE, UNREACHABLE, OPEN)
#: Exit codes of commands that call the daemon without waiting for an outcome.
ASKS = GENERAL[:4]
#: Exit codes of commands that need no daemon.
ALONE = GENERAL[:3]

_PAYS = (
    (0, "Approved; with --no-wait: started."),
    (1, "Not approved: declined, rejected or canceled; or posd refused, and nothing was started under this id."),
    USAGE,
    (3, "The daemon cannot be reached. If the message says that the payment may run, repeat it with the same --id."),
    (4, "Still open; or refused, but an earlier call with this --id may have started the payment. See posd-await(1)."),
)
_STANDS = (
    (0, "The payment is approved."),
    (1, "The payment ended without approval, or was never started; the message says which."),
    USAGE,
    UNREACHABLE,
    (4, "The payment is still open, or its state is not known."),
)

#: command -> its exit codes, if the general text would be too short. "tls" covers all of its commands.
EXITS: Mapping[str, Sequence[tuple[int, str]]] = {
    "": GENERAL,
    "run": (
        (0, "Stopped on request (SIGTERM, Ctrl-C)."),
        (1, "posd cannot run: another daemon runs, a port is in use, or the database cannot be opened."),
        (2, "The configuration or the certificate is wrong. systemd does not start it again."),
    ),
    "relay": (
        (0, "Stopped on request (SIGTERM, Ctrl-C); with --once, all was sent."),
        (1, "The feed does not continue the last message on the lane's subject: an operator must decide first."),
        (2, "The configuration is wrong, or the NATS servers are too old for a stream of several replicas."),
        (3, "With --once: posd or the servers cannot be reached."),
    ),
    "collect": (
        (0, "Done, or stopped on request; with --check: all lanes are complete and none is silent."),
        (
            1,
            "With --check: changes are missing or lost, or a lane is silent or unreachable. With retire: no such lane.",
        ),
        (2, "The configuration is wrong, or the tables are missing or of another version."),
        (3, "The NATS servers or PostgreSQL cannot be reached."),
    ),
    "demo": ((0, "The payment was approved, and the receipt was printed."), (1, "Something went wrong."), USAGE),
    "simulate": ((0, "Stopped."), (1, "The simulator failed."), USAGE),
    **dict.fromkeys(STARTS, _PAYS),
    "await": _STANDS,
    "reconcile": _STANDS,
    "release": ASKS,
    "resolve": ASKS,
    "acknowledge": ASKS,
    "abort": (
        (0, "The terminal got the abort, or may have got it. Await the outcome (posd await)."),
        (1, "Refused: the payment has ended, the bank was already asked, or the terminal runs nothing."),
        USAGE,
        UNREACHABLE,
    ),
    "show": ASKS,
    "list": ASKS,
    "print": (
        (0, "Printed; with --no-wait: sent; with --preview: shown."),
        (1, "Failed, or refused."),
        USAGE,
        UNREACHABLE,
        (4, "Still open: the wait ended early. Or in doubt: posd cannot tell whether the terminal has the job."),
    ),
    "quarantine": (
        (0, "Done; with --apply: the stored records agree with the events."),
        (1, "Refused; with --apply: records differed; the output lists them."),
        USAGE,
        UNREACHABLE,
        (4, "The wait ended early; posd continues the work."),
    ),
    "terminals": ASKS,
    "status": (
        (0, "All is well. Running payments do not count as a fault."),
        (1, "Something is wrong: its line names the next command."),
        USAGE,
        (3, "The daemon does not run, or this user may not use its socket."),
    ),
    "config": (
        (0, "The configuration is correct."),
        (2, "The configuration is wrong; the output names every mistake."),
    ),
    "tls": ((0, "Done; for status: all is well."), (1, "Not done; for status: something is wrong."), USAGE),
    "backup": (
        (0, "Written and checked."),
        (1, "Refused, or the backup could not be written."),
        USAGE,
        UNREACHABLE,
        (4, "The wait ended early; posd may continue the work."),
    ),
    "restore": (
        (0, "Done."),
        (1, "Nothing was changed: posd runs, a file cannot be used, or the answer to the question was not yes."),
        (2, "Wrong usage, the file is not a backup of posd, or a line of the list of --ids is wrong."),
        (3, "With --seen: the daemon cannot be reached."),
    ),
    "verify": (
        (0, "The database is undamaged, and its records agree with each other."),
        (1, "The database has faults; the output lists them."),
        (2, "Wrong usage, or the file is not a database of posd."),
    ),
    "prune": (
        (0, "Done."),
        (1, "Refused, the answer to the question was not yes, or not all could be removed."),
        USAGE,
        UNREACHABLE,
        (4, "The wait ended early; posd may continue the work."),
    ),
    "clock": ((0, "posd trusts the clock."), (1, "posd does not trust the clock, or refused."), USAGE, UNREACHABLE),
    "clock confirm": ASKS,
    "doctor": (
        (0, "No check has failed."),
        (1, "A check has failed; a configuration that posd cannot use is such a failure."),
        (3, "posd does not run. Other checks may have failed too."),
    ),
    "support": (
        (0, "Written."),
        (1, "Not written: the answer to the question was not yes, or the file cannot be written."),
        (2, "Wrong usage: the file already exists, or --yes is missing and no person can answer."),
    ),
    "explain": ((0, "Done."), (2, "Wrong usage, or an unknown code; the message names similar codes.")),
    "openapi": ((0, "Done."), USAGE),
    "completion": ((0, "Done."), USAGE),
    "logs": ALONE,
    "metrics": ASKS,
    "report": ((0, "Done."), (1, "The total differs from --expect, or posd refused."), USAGE, UNREACHABLE),
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
    "POSD_CONFIG": "The configuration file, if --config names none.",
    "POSD_SOCKET": "The daemon's socket, if --socket names none.",
    "POSD_DEBUG": "If set, a fault of posd is shown with its place in the code, for developers.",
    "NO_COLOR": "If set, no colours.",
}

#: path -> its content; for posd(1).
FILES: Mapping[str, str] = {
    "/etc/posd/config.toml": "The configuration; see posd.toml(5).",
    "/run/posd/till.sock": "The socket of the tills: group posd-till.",
    "/run/posd/admin.sock": "The socket of operators: group posd-admin. All calls are allowed.",
    "/run/posd/feed.sock": "The socket of a relay: group posd-feed. It serves only the feed, health and version.",
    "/var/lib/posd/posd.db": "The database with every payment.",
    "/var/lib/posd/callback.key": "The secret key that proves that a callback is authentic.",
    "/var/lib/posd/config.last": "The last configuration that worked. posd starts with it if the files have a mistake.",
    "/var/lib/posd/posd.db.witness": "The recent starts. By them posd notices that the database has gone back in time.",
    "/var/lib/posd/tls/": "The local CA, and the certificate that posd shows to terminals.",
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
