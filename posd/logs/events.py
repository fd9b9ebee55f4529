"""Every line that the daemon can log: its event's name, levels, fields, meaning and cure.

To add a line: log it with a literal name and keywords (`log.warning("payment.attention", transaction=…)`). Add its row
here, and a new field to `posd.logs.output.FIELDS`. Write the page anew (`python -m tests.logs`). A test compares the
three. The daemon does not import this; `posd logs` does.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class LogEvent(NamedTuple):
    """A row. `says`: the line as a sentence with {field}s; a part in [ ] is left out if a field in it is.

    `do`: the next step, or why there is none; every warning and error has it.
    """

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    says: str
    do: str = ""


def _row(levels: str, fields: str, says: str, do: str = "") -> LogEvent:
    return LogEvent(tuple(levels.split()), tuple(fields.split()), says, do)


_DISK = "Check the disk of the database: space, and errors in the kernel's log (journalctl -k). "

EVENTS: Final[Mapping[str, LogEvent]] = {
    # The daemon itself
    "posd.started": _row(
        "info",
        "version pid listen directory database fleet",
        "posd {version} is ready (process {pid}): terminals call {listen}, sockets are in {directory}, "
        "the database is {database}, the fleet is {fleet}",
    ),
    "posd.stopping": _row("info", "signal", "posd was told to stop ({signal})"),
    "posd.stopped": _row("info", "", "posd has stopped in order"),
    "posd.cannot_start": _row(
        "error", "error", "posd cannot start: {error}", "Do what the message says; posd doctor looks at the rest."
    ),
    "posd.crashed": _row(
        "error",
        "error_id",
        "posd ended by a fault of its own ({error_id})",
        "systemd starts it again, and open payments are reconciled. If it comes again, report it with this line.",
    ),
    "posd.internal_error": _row(
        "error",
        "error_id detail transaction print_job method peer",
        "posd failed in a way that it should not ({error_id})[ for payment {transaction}][ for print job {print_job}]"
        "[ in a call {method}][ of {peer}][: {detail}]",
        "Look at the payment (posd show); what was acknowledged is on disk. Report the fault with this line.",
    ),
    "posd.failing": _row(
        "error", "error detail", "payments cannot be made: {error}; {detail}", "Do what the line says; posd status."
    ),
    "posd.recovered": _row("info", "", "payments can be made again"),
    "posd.hung": _row(
        "error",
        "error detail",
        "posd gives no sign of life any more: {error}; {detail}",
        _DISK + "posd could not reach its database.",
    ),
    "manager.not_reading": _row(
        "warning",
        "detail",
        "the service manager does not read what posd notifies ({detail}); posd goes on, and tells it again",
        "Where it comes again and again, look at systemd itself: systemctl status, journalctl -b _PID=1.",
    ),
    "config.loaded": _row("info", "detail fleet", "the configuration was loaded: {detail}; the fleet is {fleet}"),
    "config.refused": _row(
        "error", "error detail", "the changed configuration is refused: {error}; {detail}", "Do what the line says."
    ),
    "config.not_kept": _row(
        "warning",
        "error",
        "the configuration in force could not be kept for the next start: {error}",
        "Check the disk. Until then a start needs a configuration without mistakes.",
    ),
    "config.needs_restart": _row("warning", "detail", "{detail}", "Do what the line says, when no payment is open."),
    "posd.library": _row(
        "warning error",
        "kind detail",
        "a library complains: {kind}[: {detail}]",
        "Nothing, where it comes once. If it goes on, report it with this line.",
    ),
    "log.collapsed": _row(
        "info warning",
        "kind count transaction print_job terminal code result status",
        "{count} more lines {kind} were left out[ for payment {transaction}][ for print job {print_job}]"
        "[ of terminal {terminal}][ ({code})][ ({result})][ ({status})]",
        "Look at the lines of that event before this one: the same happened again and again.",
    ),
    "log.dropped": _row(
        "warning",
        "count",
        "{count} lines of the log were dropped here: its reader stood still, or the disk was full",
        "Look at what reads the log: systemctl status systemd-journald, and the disk that it writes to.",
    ),
    # Payments
    "payment.started": _row(
        "info", "transaction terminal type", "the request for a {type} was sent to terminal {terminal}"
    ),
    "payment.answered": _row(
        "info",
        "transaction terminal judgement phase reason http_status",
        "terminal {terminal} answered the request[ (HTTP {http_status})]: {judgement}[, because {reason}]"
        "[; the payment is {phase}]",
    ),
    "payment.outcome": _row(
        "info",
        "transaction terminal result evidence",
        "the payment on terminal {terminal} ended: {result}, known by {evidence}",
    ),
    "payment.attention": _row(
        "warning error",
        "transaction terminal code detail",
        "the payment on terminal {terminal} needs a look ({code}): {detail}",
        "posd show ID says what to do; posd list --attention has all of them. An error says that money may have moved "
        "otherwise than somebody believes.",
    ),
    "payment.search": _row(
        "info",
        "transaction terminal result reason",
        "terminal {terminal} was asked for the payment: {result}[, because {reason}]",
    ),
    "payment.abort": _row(
        "info",
        "transaction terminal kind judgement http_status reason",
        "terminal {terminal} was asked to stop the payment ({kind})[ (HTTP {http_status})]: {judgement}"
        "[, because {reason}]",
    ),
    "payment.operator": _row(
        "info",
        "transaction terminal kind uid code result",
        "a person (user id {uid}) decided on the payment: {kind}[ {code}][ as {result}]",
    ),
    "payment.taken_over": _row(
        "info",
        "transaction terminal phase status",
        "the payment on terminal {terminal} was open when posd ended; it is {phase}[ ({status})] and goes on",
    ),
    "payment.commit_uncertain": _row(
        "warning",
        "transaction error",
        "it is not certain that the payment was recorded, so it was not sent: {error}",
        _DISK + "The till repeats its call with the same id.",
    ),
    "payment.not_recorded": _row(
        "warning",
        "transaction error retry_s",
        "what is known of a payment could not be recorded: {error}[; posd tries again in {retry_s} s]",
        _DISK + "posd tries again by itself; after a restart the payment is in doubt and reconciled.",
    ),
    "payment.not_readable": _row(
        "warning",
        "transaction error error_id",
        "it cannot be looked up whether the payment was started ({error_id}): {error}",
        _DISK + "The till repeats the same call with the same id.",
    ),
    # Callbacks of terminals
    "webhook.event": _row(
        "info",
        "transaction verdict status phase",
        "the terminal reports {status} ({verdict}); the payment is {phase}",
    ),
    "webhook.print": _row(
        "info",
        "print_job verdict status phase",
        "the terminal reports the print job as {status} ({verdict}); it is {phase}",
    ),
    "webhook.headers": _row(
        "info",
        "terminal kind detail",
        "the first callback of terminal {terminal} since the start of posd ({kind}) has these headers: {detail}",
    ),
    "webhook.quarantined": _row(
        "warning",
        "transaction print_job http_status reason",
        "a callback was refused (HTTP {http_status}) and kept in quarantine: {reason}",
        "posd quarantine shows it. Mend the configuration if the reason names it, then posd reprocess.",
    ),
    "webhook.too_large": _row(
        "warning",
        "transaction print_job limit_bytes peer",
        "a callback from {peer} is larger than {limit_bytes} bytes and was refused",
        "The terminal is asked by itself. For events raise webhooks.max_body_bytes if they are rightly so large.",
    ),
    "webhook.unreadable": _row(
        "warning",
        "transaction print_job reason detail peer",
        "a callback from {peer} was refused: {reason}[ ({detail})]",
        "The terminal is asked by itself. Tell its vendor what it sends.",
    ),
    "webhook.not_stored": _row(
        "warning",
        "transaction print_job error detail",
        "a callback could not be stored, and the terminal was not told that it was: {error}[; {detail}]",
        _DISK + "The terminal sends an event again for some minutes; after that posd asks for it.",
    ),
    # Print jobs
    "print.started": _row("info", "print_job terminal", "the print job was sent to terminal {terminal}"),
    "print.answered": _row(
        "info",
        "print_job terminal judgement phase reason http_status",
        "[terminal {terminal} ]answered the print job[ (HTTP {http_status})]: {judgement}[, because {reason}]"
        "[; it is {phase}]",
    ),
    "print.outcome": _row(
        "info warning",
        "print_job terminal status evidence code",
        "the print job on terminal {terminal} ended: [{status}, ][{code}, ]known by {evidence}",
        "A warning: it was not printed, or not for certain. posd print-jobs ID says why; print it again as a reprint.",
    ),
    "print.attention": _row(
        "warning error",
        "print_job terminal code detail",
        "the print job on terminal {terminal} needs a look ({code}): {detail}",
        "posd print-jobs ID says what to do; posd print-jobs --attention has all of them.",
    ),
    "print.poll": _row(
        "info",
        "print_job terminal status result reason",
        "terminal {terminal} was asked for the print job: {result}[ {status}][, because {reason}]",
    ),
    "print.operator": _row(
        "info",
        "print_job terminal kind uid code result",
        "a person (user id {uid}) decided on the print job: {kind}[ {code}][ as {result}]",
    ),
    "print.taken_over": _row(
        "info",
        "print_job terminal phase status",
        "the print job on terminal {terminal} was open when posd ended; it is {phase}[ ({status})] and goes on",
    ),
    "print.commit_uncertain": _row(
        "warning",
        "print_job error",
        "it is not certain that the print job was recorded, so it was not sent: {error}",
        _DISK + "The till repeats its call with the same id.",
    ),
    "print.not_recorded": _row(
        "warning",
        "print_job error",
        "what is known of a print job could not be recorded: {error}",
        _DISK + "posd tries again by itself.",
    ),
    "print.not_readable": _row(
        "warning",
        "print_job error error_id",
        "it cannot be looked up whether the print job was started ({error_id}): {error}",
        _DISK + "The till repeats the same call with the same id.",
    ),
    # The listener on the LAN
    "listener.refused": _row(
        "warning",
        "kind peer count detail",
        "refused {count} times: {kind}, the newest from {peer}[ ({detail})]",
        "Nothing, where it is rare. Many of them: find the device at that address; a terminal whose callbacks have a "
        "wrong_token was started by another posd or with another callback key.",
    ),
    "limit.reached": _row(
        "warning",
        "code detail pid uid",
        "a limit was reached ({code}: {detail})[ by process {pid}][ of user {uid}]; what came past it was refused, and "
        "nothing of it was sent",
        "Find the program and what it does without end; the others go on. Where the disk is short (free_for_…), free "
        "it: first print jobs and quarantine are refused, then payments. Limits: docs/reference/resource-limits.md.",
    ),
    "stream.cut_off": _row(
        "warning",
        "kind seconds uid transaction",
        "a client took nothing of its stream ({kind})[ of payment {transaction}] for {seconds} s and was cut off"
        "[; it runs as user {uid}]",
        "Nothing for posd: the client can go on where it was (docs/guides/streams.md). If it comes again, find the "
        "program that opens a stream and does not read it.",
    ),
    "listener.no_answer": _row(
        "error",
        "error detail listen retry_s",
        "terminals would get no answer at {listen}: {error}; {detail}[; posd tries again in {retry_s} s]",
        "Check the firewall of this machine, and that nothing else listens there; posd doctor says more.",
    ),
    "listener.was_away": _row(
        "warning",
        "reason count seconds detail",
        "nobody took the terminals' events[ for {seconds} s] while payments were open ({count}): {detail}",
        "Look at posd status and posd list --open; ask for each with posd reconcile ID.",
    ),
    "listener.caught_up": _row(
        "info", "count", "the payments that were open while the listener was away have ended, or were found ({count})"
    ),
    "metrics.not_written": _row(
        "warning",
        "error detail",
        "the metrics are not written for node_exporter: {error}; {detail}",
        "Make the directory that metrics.textfile names, writable for posd (ReadWritePaths= of the unit).",
    ),
    "metrics.written": _row("info", "detail", "the metrics are written again: {detail}"),
    "metrics.failed": _row(
        "error", "", "the metrics could not be made", "Payments go on. Report the fault with this line."
    ),
    "metrics.not_served": _row(
        "warning",
        "listen error",
        "the metrics are not served on {listen}: {error}",
        "All else goes on. If another program has that port, choose another one (metrics_listen).",
    ),
    "listener.distrusted": _row(
        "warning",
        "peer kind count detail",
        "{detail} ({count} times)",
        "Do what the line says: as a rule put ca.crt on the terminal (posd tls ca).",
    ),
    "feed.no_socket": _row(
        "info warning",
        "error",
        "the feed is not served to a relay: {error}",
        "Nothing, unless a relay to head office runs here: then make the group, add posd to it, and restart posd.",
    ),
    # The certificate of that listener
    "certificate.loaded": _row(
        "info",
        "detail fingerprint_sha256 expires",
        "the certificate was loaded: {detail}; it ends {expires} (SHA-256 {fingerprint_sha256})",
    ),
    "certificate.renewed": _row("info", "detail", "the certificate was renewed, because {detail}"),
    "certificate.not_renewed": _row(
        "warning",
        "error detail",
        "the certificate should be renewed ({detail}), and was not: {error}",
        "posd tls renew, as the user that the files belong to; posd tls status says what is wrong.",
    ),
    "certificate.refused": _row(
        "warning",
        "error detail retry_s",
        "the changed certificate cannot be used: {error}[; {detail}][; posd looks again in {retry_s} s]",
        "Put a certificate and the private key that belongs to it in place; posd takes it up by itself.",
    ),
    "certificate.ca_lost": _row("error", "detail", "{detail}", "Do what the line says."),
    "certificate.ends": _row("warning", "detail expires", "{detail} (it ends {expires})", "Do what the line says."),
    # Terminals on the network
    "discovery.started": _row(
        "info", "service_types interfaces", "posd listens for announcements of {service_types} on {interfaces}"
    ),
    "discovery.found": _row(
        "debug info",
        "terminal host port in_fleet",
        "terminal {terminal} announces itself at {host}[, port {port}] (in the fleet: {in_fleet})",
    ),
    "discovery.gone": _row(
        "debug info", "terminal host reason", "terminal {terminal} is not at {host} any more[: {reason}]"
    ),
    "discovery.ignored": _row("debug", "reason", "an announcement was ignored: {reason}"),
    "discovery.claim": _row(
        "warning",
        "terminal host count detail",
        "{detail}",
        "Find out which device is the right one; give it a base_url or pin it in the configuration.",
    ),
    "terminal.identity_conflict": _row(
        "warning",
        "terminal kind detail",
        "{detail}",
        "Nothing is sent to the terminal. Do what the line says; posd terminals identity takes the decision.",
    ),
    "terminal.identity_settled": _row(
        "info", "terminal host", "it is sure again which device is terminal {terminal}[: {host}]"
    ),
    "terminal.identity_decided": _row(
        "info", "terminal host uid", "a person said that terminal {terminal} is the device at {host} (user id {uid})"
    ),
    "terminal.commissioned": _row(
        "info",
        "terminal evidence uid",
        "a person recorded what was seen working with terminal {terminal}: {evidence} (user id {uid})",
    ),
    "terminal.commission_lapsed": _row(
        "warning",
        "terminal detail",
        "the commissioning of terminal {terminal} counts no more: {detail}",
        "Commission it again: posd terminals commission SERIAL. Until then a payment in doubt waits for a person.",
    ),
    "terminal.moved": _row(
        "info", "terminal host kind", "terminal {terminal} is called at {host} from now on (proof: {kind})"
    ),
    "discovery.unavailable": _row(
        "warning",
        "error detail retry_s",
        "announcements are not heard, or not everywhere: {error}; {detail}[; posd tries again in {retry_s} s]",
        "Check discovery.interfaces and the network of this machine, or give each terminal a base_url.",
    ),
    "interfaces.polled": _row(
        "info",
        "error retry_s",
        "the kernel does not report changed addresses ({error}); posd looks every {retry_s} s",
    ),
    "interfaces.unreadable": _row(
        "warning",
        "error detail",
        "the addresses of this machine cannot be read ({error}): {detail}",
        "Check that the unit's sandbox allows AF_NETLINK; posd works on with what it knows.",
    ),
    # The clock
    "clock.unsure": _row(
        "warning",
        "reason detail",
        "the clock of this machine is not believed ({reason}): {detail}",
        "Look with posd clock; set the clock, or say that it is right: posd clock confirm. Payments go on.",
    ),
    "clock.sure": _row("info", "reason", "the clock of this machine is believed again, by {reason}"),
    "clock.confirmed": _row("info", "uid", "a person (user id {uid}) says that the clock of this machine is right"),
    # The database
    "store.backup": _row("info", "database count", "a backup was written to {database}; payments in it: {count}"),
    "store.backups_unusable": _row(
        "warning", "directory detail", "in {directory}: {detail}", "Look at them with posd verify; remove what is none."
    ),
    "store.pruned": _row(
        "info",
        "count print_jobs quarantined kept bytes_returned before",
        "what ended before {before} was removed: payments {count}, print jobs {print_jobs}",
    ),
    "store.not_pruned": _row("warning", "error", "nothing was removed: {error}", "Check the disk; posd prune."),
    "store.log_not_emptied": _row(
        "warning", "detail", "the log was not emptied: {detail}", "posd prune again, when no backup is being made."
    ),
    "store.backup_failed": _row(
        "error", "error", "no backup was made: {error}", "Do what the message says; then posd backup again."
    ),
    "store.restored": _row(
        "warning",
        "detail",
        "the database was restored: {detail}",
        "Compare the payments since the backup with the terminals. Record what was paid (posd resolve); then posd "
        "restore --seen.",
    ),
    "store.gone_back": _row(
        "error",
        "count detail",
        "the database has gone back in time; payments taken over in doubt: {count}. {detail}",
        "Compare with the terminals. Record what was paid (posd resolve); then posd restore --seen --operator NAME.",
    ),
    "witness.unusable": _row(
        "warning",
        "detail",
        "the witness of the last run could not be used: {detail}",
        "Nothing, where the state directory was moved on purpose; else check the disk. A new one was made.",
    ),
    "witness.not_written": _row(
        "warning",
        "detail error",
        "the witness {detail} cannot be written ({error}); payments go on",
        "Free the disk, and check that posd may write beside its database.",
    ),
    "store.restore_seen": _row(
        "info", "uid count", "a person (user id {uid}) has seen to what {count} restores asked for"
    ),
    "store.reprocessed": _row("info", "count kind", "payments derived anew from their events: {count} ({kind})"),
    "store.print_jobs_reprocessed": _row(
        "info", "count kind", "print jobs derived anew from their webhooks: {count} ({kind})"
    ),
    "store.difference": _row(
        "error",
        "transaction print_job detail",
        "what was stored differs from what its events say, in: {detail}; it was set right",
        "Look at the payment (posd show). If the disk is sound, report it: it should not happen.",
    ),
    "store.file_moved": _row(
        "error",
        "database detail",
        "nothing can be recorded: {detail}",
        "Put the same file back under its name before posd is restarted; else restore a backup (posd restore BACKUP).",
    ),
    "store.upgrading": _row(
        "info",
        "database seconds",
        "the database {database} is brought up to date with this version, for {seconds} s up to now",
    ),
    "store.log_saved": _row(
        "info", "database", "what was in the log that was moved is in the database file {database}; a restart keeps it"
    ),
    "store.file_back": _row("info", "database", "the files of the database {database} are where they were opened"),
    "store.damaged": _row(
        "error",
        "database error detail",
        "the database {database} is damaged ({error}). {detail}",
        "Do what the line says; nothing was changed or deleted.",
    ),
    # The relay to head office
    "relay.connected": _row("info", "host detail", "the relay sends on {host} to the NATS server {detail}"),
    "relay.old_server": _row(
        "warning",
        "version",
        "the NATS server is of version {version}: it can lose messages that it has acknowledged, where power fails",
        "Upgrade it to 2.9.21 or later (docs/guides/fleet.md). What it loses is sent again; until then it is missing.",
    ),
    "relay.begun": _row("info", "before detail", "the relay began to send the database {detail}[, after {before}]"),
    "relay.overtaken": _row("info", "detail", "another message came first: {detail}; the relay goes on behind it"),
    "relay.lost": _row(
        "warning",
        "count detail",
        "{count} changes ({detail}) are no longer in the feed and were never sent; head office is told so",
        "Let the relay run all the time. How these payments ended: posd report on this lane, or its backups.",
    ),
    "relay.waiting": _row(
        "warning",
        "error detail retry_s",
        "the relay waits: {error}[. {detail}]; the next try is in {retry_s} s",
        "Where the network is away, nothing: posd keeps every change, and no payment waits. Else what the line says.",
    ),
    "relay.refused": _row(
        "error", "error detail", "the relay sends nothing: {error}. {detail}", "Do what the line says."
    ),
    "relay.away": _row(
        "error",
        "error detail",
        "the relay could not send: {error}[. {detail}]",
        "See that posd runs and that the NATS servers can be reached, then run it again.",
    ),
    "relay.stopped": _row("info", "", "the relay has stopped"),
    # Head office's collector
    "collect.connected": _row("info", "host database", "the collector takes from {host} and writes into {database}"),
    "collect.old_server": _row(
        "warning",
        "version",
        "the NATS server is of version {version}: where power fails it can lose messages, and skip some for collectors",
        "Upgrade it to 2.9.21 or later. If changes are missing (posd collect --check): posd collect --from-start.",
    ),
    "collect.waiting": _row(
        "warning",
        "error retry_s",
        "the collector waits: {error}; the next try is in {retry_s} s",
        "See that the NATS server and PostgreSQL run. The stream keeps what is not taken.",
    ),
    "collect.unreadable": _row(
        "warning",
        "count",
        "{count} messages could not be used",
        "Look into the table posd.unreadable: each stands there with its reason.",
    ),
    "collect.refused": _row("error", "error", "the collector takes nothing: {error}", "Do what the line says."),
    "collect.stopped": _row("info", "", "the collector has stopped"),
}
