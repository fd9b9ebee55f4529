"""Each command reports wrong usage with exit code 2, and sends nothing to posd."""

import shlex

from posd.cli.payments.start import STARTS
from tests.cli.documents import ID, JOB, OTHER_ID
from tests.cli.processes import asked
from tests.support.tables import every

REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
BY_ANA = "--operator Ana --note x --yes"
#: Commands with an original.
DERIVED = ("reauth", "capture", "tip", "void")
#: Arguments of these commands -> words of the message.
OF_DERIVED = {
    "": "neither ORIGINAL nor --reference is given",
    "5": "neither ORIGINAL nor --reference is given",
    f"{ID} 5 --reference {REFERENCE}": "ORIGINAL and --reference are both given",
    f"{ID} --reference {REFERENCE}": "ORIGINAL and --reference are both given",
    f"5 6 --reference {REFERENCE}": "'6' is not allowed",
    "7f3c0000x 5": "'7f3c0000x' is not the id of a payment",
    "7f3c000 5": "its first characters, 8 at least",
    "1234567 5": "neither ORIGINAL nor --reference is given",
    f"5 {ID}": "neither ORIGINAL nor --reference is given",
    f"{ID} 5,00": "'5,00' is not an amount",
    f"5,00 --reference {REFERENCE}": "'5,00' is not an amount",
    f"{ID} 5 --reference 17": "--reference",
    f"{ID} 5 --subtotal-iva0 5": "AMOUNT and --subtotal-iva0",
    f"{ID} 5 --id 17": "--id",
    f"{ID} 5 6": "unexpected extra argument",
}
#: Command line -> words of the message.
WRONG = {
    **{f"{command} {rest}": words for command in DERIVED for rest, words in OF_DERIVED.items()},
    **{f"{row.name} {ID if row.original else ''}": "no amount: give AMOUNT" for row in STARTS if row.needs_amount},
    **{
        f"{command} 5 {option} {REFERENCE}": option
        for command in ("charge", "preauth")
        for option in ("--reference", "--original")
    },
    "charge 1,50": "'1,50' is not an amount",
    "charge 1 --option is_deferred=yes": "is_deferred",
    "show not-a-uuid": "ID",
    "list --since someday": "someday",
    f"release {ID}": "--note",
    f"release {ID} --note '  '": "--note",
    f"release {ID} --note x --operator ' '": "--operator",
    f"release 17 {BY_ANA}": "ID",
    f"acknowledge {ID} gap": "--note",
    f"resolve {ID} approved --note x": "--yes",
    f"resolve {ID} declined --operator Ana": "--note",
    f"resolve {ID} paid {BY_ANA}": "not_started",
    f"resolve {ID} declined --reference {OTHER_ID} {BY_ANA}": "--reference",
    f"resolve {ID} approved --reference 17 {BY_ANA}": "--reference",
    f"resolve {JOB} COMPLETED --operator Ana": "--note",
    f"resolve {JOB} COMPLETED --amount 1 --terminal SN-0001 {BY_ANA}": "--amount",
    f"resolve {JOB} COMPLETED --reference {ID} {BY_ANA}": "--reference",
    f"resolve {JOB} completed {BY_ANA}": "COMPLETED",
    f"resolve {JOB}x approved {BY_ANA}": f"'{JOB}x' is not the id of a payment",
    f"resolve a/b FAILED {BY_ANA}": "is not the id of a print job",
    "print": "FILE",
    "print none.txt": "cannot read none.txt: No such file or directory",
    "print /": "cannot read /: Is a directory",
    "print /dev/zero": "/dev/zero is too large",
    f"print {shlex.quote(__file__)} --id ..": "'..' is not the id of a print job",
    f"print {shlex.quote(__file__)} --id a/b": "'a/b' is not the id of a print job",
    f"print {shlex.quote(__file__)} --id ''": "'' is not the id of a print job",
    f"print {shlex.quote(__file__)} --id 'a\n'": "is not the id of a print job",
    f"print {shlex.quote(__file__)} --reprint-of {'x' * 65}": "is not the id of a print job",
    f"print {shlex.quote(__file__)} --timeout -1": "--timeout",
    "print-jobs --wait": "--wait is for one print job",
    "print-jobs ..": "is not the id of a print job",
    "print-jobs --limit 0": "--limit",
    "quarantine 0": "0",
    "quarantine -- -1": "-1",
    "quarantine x": "x",
    "backup": "name the FILE to write, or --into DIRECTORY",
    "backup /b.db --into /b": "name the FILE to write, or --into DIRECTORY",
    "backup /b.db --keep 3": "--keep belongs to --into",
    "backup --into /b --keep 0": "0 is not in the range",
    "backup - --json": "a backup is bytes",
    "report --csv --json": "choose one",
    "report --html x --csv": "choose one",
    "report --html ''": "--html needs the name of a file",
    "report 2026-02-30 --timezone UTC": "write one like 2026-11-20, or today, or yesterday",
    "report --from x --timezone UTC": "Invalid value for --from: 'x' is not a day",
    "report --to today --timezone UTC": "--to needs --from",
    "report today --from today --timezone UTC": "give one or the other",
    "report --from 2026-11-20 --to 2026-11-19 --timezone UTC": "the days end (2026-11-19) before they begin",
    "report --timezone Mars/Olympus": "'Mars/Olympus' is not a time zone",
    "report --timezone ../etc": "is not a time zone",
    "logs --follow x.log": "tail -f FILE | posd logs -",
    "logs --since today -": "tail -f FILE | posd logs -",
    "logs --all -n 3": "not both",
    "logs --level loud": "loud",
    "terminals nonsense": "nonsense",
    "terminals --nonsense": "--nonsense",
    "terminals commission SN-1": "--yes",
    "terminals add SN-1 --address https://127.0.0.1:1 --yes": "--pin",
    f"terminals add SN-1 --address https://127.0.0.1:1 --pin {'0' * 64}": "--yes",
    "terminals add SN-1 --address https://127.0.0.1:1 --yes --pin abc": "SHA-256",
    "terminals pin SN-1 --address https://127.0.0.1:1 --fingerprint abc": "--fingerprint",
    f"terminals pin SN-1 --address https://127.0.0.1:1 --fingerprint {'g' * 64}": "--fingerprint",
    "terminals pin SN-1 --address http://127.0.0.1": "does not begin with https://",
    "terminals pin SN-1 --address 'a b'": "has no usable host",
    "watch": "posd list --open",
    "support /nowhere/s.tar.gz": "give --yes",
    "demo --no-charges": "--keep",
    "completion tcsh": "'bash', 'zsh', 'fish'",
}


@every(("line", "words"), WRONG.items())
def test_wrong_usage_is_reported_and_nothing_is_sent(line: str, words: str) -> None:
    done = asked([], *shlex.split(line))
    assert (done.returncode, done.calls) == (2, []), done
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
