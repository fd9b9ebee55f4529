"""One to three real examples for every command, for its help and its manual page. A test parses each by click."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Example(NamedTuple):
    """What is typed, and what it does."""

    line: str
    does: str


_UUID = "7f3c2a10-5b1e-4c6d-9a4f-0d2b8e6c1a55"
#: As a table shows it.
_ID = "7f3c2a10"
_CONFIG = "--config ./config.toml"

#: command -> its examples.
EXAMPLES: Mapping[str, Sequence[Example]] = {
    "": (
        Example("posd demo", "Everything on one machine, with nothing to configure:"),
        Example("posd status", "Is all well, and what is open?"),
        Example("posd --socket /run/posd/till.sock list --open", "The same socket that the tills use:"),
    ),
    "run": (
        Example("posd run", "As the service does it:"),
        Example(f"posd {_CONFIG} run", "By another configuration, for a trial:"),
    ),
    "demo": (
        Example("posd demo", "A payment and a receipt, shown step by step:"),
        Example("posd demo --keep", "Leave it running, and be told what to type next:"),
        Example("posd demo --fleet 5", "Five lanes, and head office with all that they charge:"),
        Example("posd demo --keep --no-charges --json --speed 100", "For the tests of a till, in any language:"),
    ),
    "simulate": (
        Example("posd simulate --list", "Which bad days there are, and the amount or metadata that asks for each:"),
        Example(
            "posd simulate --serial SIM-1 --state ./sim --trust /var/lib/posd/tls/ca.crt",
            "A terminal that trusts posd's certificate:",
        ),
        Example("posd simulate --terminals 3 --scenario decline --speed 10", "Three that decline, ten times as fast:"),
    ),
    "charge": (
        Example("posd charge --subtotal-iva 10.00 --iva 1.20", "A sale of 11.20, with its tax:"),
        Example("posd charge 11.20 --terminal SN-0001 --sale till-3/1042", "Without tax, once for this sale:"),
        Example(f"posd charge 11.20 --id {_UUID}", "With an id of your own, so that it can be repeated safely:"),
    ),
    "preauth": (Example("posd preauth 100.00 --terminal SN-0001", "Reserve 100.00 on a card:"),),
    "reauth": (Example(f"posd reauth {_ID} 150.00", "Change what the pre-authorization reserves:"),),
    "capture": (
        Example(f"posd capture {_ID} 95.50", "Charge 95.50 of what the pre-authorization reserves:"),
        Example(
            f"posd capture --reference {_UUID} 95.50", "One that posd does not know, by the reference of the acquirer:"
        ),
    ),
    "tip": (Example(f"posd tip {_ID} 2.00", "Add a tip of 2.00 to an approved charge:"),),
    "void": (Example(f"posd void {_ID}", "Take an approved charge back:"),),
    "refund": (Example(f"posd refund {_ID} 5.00", "Give back 5.00 of an approved charge:"),),
    "await": (
        Example(f"posd await {_ID}", "Wait for the outcome, however long it takes:"),
        Example(f"posd await {_ID} --timeout 30 --json", "For half a minute; exit code 4 where it is still open:"),
    ),
    "abort": (Example(f"posd abort {_ID}", "Ask the terminal to give up; then wait for the outcome:"),),
    "show": (
        Example(f"posd show {_ID}", "Everything about a payment:"),
        Example(f"posd show {_ID} --history", "Only what happened, in order:"),
    ),
    "list": (
        Example("posd list --attention", "What a person should look at, with what to type:"),
        Example("posd list --open --terminal SN-0001", "What is open on one terminal:"),
        Example(
            "posd list --since 2026-11-20 --result declined --totals", "What was declined since then, and its sums:"
        ),
        Example("posd list --since 2026-11-20 --until 2026-11-21 --all --json", "A day for a program, a page a line:"),
    ),
    "print": (
        Example("posd print receipt.txt --terminal SN-0001", "Print a text:"),
        Example("posd print receipt.txt --reference 'ticket 1042' --no-wait", "Hand it over, and do not wait:"),
        Example("posd print receipt.txt --reprint-of job-1042", "Once more, as a reprint of the first:"),
        Example("posd print receipt.json --preview", "See what would stand on the paper, and send nothing:"),
    ),
    "print-jobs": (
        Example("posd print-jobs --attention", "Jobs that a person should look at:"),
        Example("posd print-jobs job-1042 --wait", "Wait for the end of one:"),
    ),
    "reconcile": (Example(f"posd reconcile {_ID}", "Ask the terminal now what became of it:"),),
    "release": (
        Example(
            f"posd release {_ID} --operator Ana --note 'terminal was restarted'",
            "Free the terminal; the payment stays open:",
        ),
    ),
    "resolve": (
        Example(
            f"posd resolve {_ID} approved --operator Ana --note 'in the bank portal, ticket 000123'",
            "Book a payment as approved, by your word:",
        ),
        Example(
            f"posd resolve {_ID} approved --amount 11.20 --terminal SN-0001 --note 'slip 000123'",
            "Record a payment that a restore lost, as its slip shows it:",
        ),
        Example(
            "posd resolve job-1042 COMPLETED --note 'the receipt came out'",
            "Say that a print job came out of the printer:",
        ),
    ),
    "acknowledge": (
        Example(f"posd acknowledge {_ID} gap --note 'outcome is known'", "Clear one attention, having looked at it:"),
        Example("posd acknowledge job-1042 print_stuck --print-job --note 'paper was out'", "One of a print job:"),
    ),
    "quarantine": (
        Example("posd quarantine", "What terminals sent and posd could not use:"),
        Example("posd quarantine 3", "One of them, in full:"),
    ),
    "reprocess": (Example("posd reprocess", "Apply what can be applied now, and compare all else:"),),
    "terminals": (
        Example("posd terminals", "Where each terminal is, and why one cannot be reached:"),
        Example("posd terminals --watch", "The same, as it changes, until Ctrl-C:"),
        Example("posd terminals --all", "Also those that the configuration does not name:"),
    ),
    "terminals find": (
        Example("posd terminals find", "Who announces itself on this network:"),
        Example("posd terminals find --subnet 192.168.1.0/24", "Look at every address of a network:"),
    ),
    "terminals commission": (
        Example(
            "posd terminals commission SN-0001 --operator Ana", "See a new terminal work, and record what was seen:"
        ),
        Example(
            "posd terminals commission SN-0001 --operator Ana --pay --void", "With a card too, and the charge reversed:"
        ),
    ),
    "terminals identity": (
        Example("posd terminals identity SN-0001", "Who claims to be the terminal, and what proves it:"),
        Example(
            'posd terminals identity SN-0001 --base-url https://192.168.1.50:6869 --operator Ana --note "looked"',
            "Say which device it is, once you have compared the address with the terminal's display:",
        ),
    ),
    "terminals pin": (
        Example("posd terminals pin SN-0001", "Show the certificate, to be compared with the terminal's display:"),
        Example("posd terminals pin SN-0001 --address 192.168.1.50", "At an address that posd does not know yet:"),
    ),
    "status": (
        Example("posd status", "Is it all right? The first line is the answer:"),
        Example("posd status --json", "For a program; the exit code says whether it is well:"),
    ),
    "config": (Example("posd config check", "Name every mistake in the configuration:"),),
    "config check": (
        Example("posd config check", "Before posd is started, or told to take it up:"),
        Example(f"posd {_CONFIG} config check --file-only", "The file of another machine, before it goes there:"),
    ),
    "config show": (
        Example("posd config show", "What is in force, defaults included; no secret is shown:"),
        Example("posd config show --profile", "With the paths of the terminals' API, and which are assumptions:"),
    ),
    "tls": (Example("posd tls status", "What terminals see, and until when:"),),
    "tls init": (
        Example("posd tls init", "For all names and addresses of this machine:"),
        Example("posd tls init --name pos-1.shop.lan --address 192.168.1.10", "For more of them:"),
    ),
    "tls status": (Example("posd tls status", "What terminals see, and until when:"),),
    "tls renew": (
        Example("posd tls renew", "A new certificate by the same CA, taken up without a restart:"),
        Example("posd tls renew --if-needed", "Only where it ends soon:"),
    ),
    "tls ca": (
        Example("posd tls ca > posd-ca.crt", "The CA certificate, to be put on every terminal:"),
        Example("posd tls ca --fingerprint", "Its fingerprint, to compare with what a terminal shows:"),
    ),
    "backup": (
        Example("posd backup /var/lib/posd/backups/posd.db", "While payments run:"),
        Example("posd backup --into /var/lib/posd/backups --keep 14", "Each night; the newest 14 backups are kept:"),
        Example("posd backup - | ssh backup 'umask 077; cat > posd.db'", "To another machine:"),
    ),
    "prune": (
        Example("posd prune --dry-run", "What would go by the configured days:"),
        Example("posd prune --older-than 90 --yes", "Remove what ended more than 90 days ago:"),
    ),
    "restore": (
        Example("posd restore /var/lib/posd/backups/posd.db", "Posd is stopped; what the backup lacks is taken over:"),
        Example("posd restore --without-backup", "Make a new database of what can be read of the present one:"),
        Example("posd restore --ids quito-01-3.ids", "On a new machine, with what head office knows of the lost disk:"),
        Example("posd restore --seen --note 'compared with the bank'", "Afterwards: say that it was looked at:"),
    ),
    "verify": (
        Example("posd verify", "The database in use:"),
        Example("posd verify /var/lib/posd/backups/posd.db", "A backup:"),
    ),
    "doctor": (
        Example("posd doctor", "What is wrong here, what does it mean, what is to be done?"),
        Example("posd doctor --json", "For a program:"),
    ),
    "support": (
        Example("posd support posd-1.tar.gz", "Show what is in it, and write it when you say yes:"),
        Example("posd support /tmp/posd-1.tar.gz --log /var/log/posd.log --yes", "From a script, without a journal:"),
    ),
    "explain": (
        Example("posd explain in_doubt", "What it means, whether money is at stake, and what to do:"),
        Example("posd explain terminal_busy gap", "Several of them:"),
        Example("posd explain", "All of them:"),
    ),
    "completion": (
        Example("posd completion bash > /etc/bash_completion.d/posd", "For bash, for all users:"),
        Example("posd completion zsh > ~/.zfunc/_posd", "For zsh; the directory has to be in fpath:"),
        Example("posd completion fish > ~/.config/fish/completions/posd.fish", "For fish:"),
    ),
    "clock": (
        Example("posd clock", "Is the clock of this machine believed, and what waits for it?"),
        Example("posd clock --json", "For a program; the exit code says whether it is believed:"),
    ),
    "clock confirm": (
        Example("posd clock confirm --operator Ana", "Say that it is right, having compared it:"),
        Example("posd clock confirm --operator Ana --note 'by the phone'", "And how it was compared:"),
    ),
    "logs": (
        Example("posd logs -f", "The journal of the daemon in words, as it grows:"),
        Example(f"posd logs --transaction {_ID}", "What it says of one payment:"),
        Example("posd logs -p warning", "Only what a person should look at:"),
    ),
    "relay": (
        Example("posd relay", "As the service does it:"),
        Example("posd relay --once", "Send what there is, and see whether it works:"),
        Example("posd relay --from 1200", "Send again what head office has lost, from that change on:"),
    ),
    "collect": (
        Example("posd collect --init", "At head office, once: the stream, its consumer and the tables:"),
        Example("posd collect", "As a service does it; as many at once as are wanted:"),
        Example("posd collect --check", "Up to when is each lane complete, and what is missing?"),
    ),
    "collect totals": (
        Example("posd collect totals --day yesterday", "What each lane charged, by type:"),
        Example("posd collect totals --day 2026-11-01 --to 2026-11-30 --csv", "A month, for a spreadsheet:"),
    ),
    "collect ids": (
        Example(
            "posd collect ids --lane quito-01-3 --since 2026-11-20 > ids", "For a new machine in place of a lost one:"
        ),
    ),
    "collect retire": (Example("posd collect retire --lane quito-01-3", "A lane that is closed is not missed:"),),
    "openapi": (Example("posd openapi > posd.json", "The description of the API, for a generator of clients:"),),
    "metrics": (Example("posd metrics", "The metrics in Prometheus' format:"),),
    "report": (
        Example("posd report", "The totals of today, by terminal and type:"),
        Example("posd report yesterday --html yesterday.html", "A page of yesterday, to look at or to print:"),
        Example("posd report --from 2026-11-01 --to 2026-11-30 --csv", "A month for a spreadsheet:"),
        Example("posd report --since last --expect 1234.50", "Before closing: is it what the terminal says?"),
        Example("posd report --close --operator Ana", "Close the shift, and print what it came to:"),
        Example("posd report --shift last --html shift.html", "The last shift again, as it was counted:"),
    ),
    "watch": (Example("posd watch", "Terminals, open payments and what needs attention, live:"),),
}
