"""The commands in groups, as `posd --help` and the manual show them: what each does, in the first words of its help."""

from collections.abc import Mapping

#: group -> its commands, each with the first sentence of its docstring.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Pay": {
        "charge": "Charge a card",
        "preauth": "Reserve an amount on a card, to capture it later",
        "reauth": "Change what a pre-authorization reserves",
        "capture": "Charge what a pre-authorization reserves",
        "tip": "Add a tip to an approved charge or capture",
        "void": "Reverse a charge, a capture or a pre-authorization",
        "refund": "Give back a charge or a capture, or a part of it",
        "await": "Wait for a payment's outcome",
        "abort": "Ask the terminal to abort a payment",
        "print": "Print FILE on a terminal",
    },
    "Look": {
        "status": "Show in one screen whether all is well, and what to do if not",
        "watch": "Show terminals, open payments and what needs a person, live",
        "list": "List payments, the newest first",
        "show": "Show everything about a payment",
        "print-jobs": "List print jobs, the newest first",
        "terminals": "List the terminals, their addresses and payments",
        "report": "Total the payments of a day, of several, or of a shift",
        "logs": "Show the daemon's log in words: of the journal, of FILE, or of standard input (-)",
        "clock": "Show what speaks for the clock of this machine, and what waits for it",
        "metrics": "Print the daemon's metrics in Prometheus' text format",
    },
    "Repair": {
        "explain": "Explain what a code means, how it happens, whether money is at stake, and what to do",
        "doctor": "Check all that payments depend on: files, certificate, clock, network, terminals",
        "reconcile": "Ask the terminal now how a payment ended",
        "release": "Free the terminal of a payment that will not end",
        "resolve": "Record how a payment or print job ended that is open, or lost by a restore",
        "acknowledge": "Clear one attention of a payment or print job that was looked into",
        "quarantine": "Show messages that were set aside",
        "reprocess": "Apply what was set aside, and check all payments and print jobs",
        "support": "Write an archive (.tar.gz) for a person who helps from afar",
    },
    "Data": {
        "backup": "Copy the database to FILE while payments run; `-` is standard output",
        "restore": "Put the backup FILE in place of the database; posd is stopped",
        "verify": "Check the database, or the backup FILE; nothing is changed",
        "prune": "Remove payments and print jobs that ended long ago",
        "relay": "Send every outcome of this lane to head office, until SIGTERM or Ctrl-C",
        "collect": "Read the stream of all lanes into PostgreSQL, until SIGTERM or Ctrl-C",
    },
    "Set up": {
        "config": "Check the configuration file, and show what is in force",
        "tls": "Make, look at and renew the certificates of the webhook listener",
        "run": "Run the daemon in the foreground, until SIGTERM or Ctrl-C",
        "completion": "Print the script with which a shell completes commands, options and ids",
    },
    "Develop": {
        "demo": "Watch a till that charges and prints: one machine, nothing to configure",
        "simulate": "Run a simulated card terminal that speaks the real wire, or several",
        "openapi": "Print the OpenAPI 3.1 description of the local API, for generating a client",
    },
}
