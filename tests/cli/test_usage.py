"""Each command reports wrong usage with exit code 2 and sends nothing. Values are read exactly."""

import shlex
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import click
import pytest

from posd.base.operations import OPERATIONS
from posd.base.times import iso
from posd.cli.app import parameters
from tests.cli.documents import ID, JOB, OTHER_ID
from tests.cli.processes import FILE_TO_PRINT, asked
from tests.support.tables import every

REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
BY_ANA = "--operator Ana --note x --yes"
#: Commands with an original.
DERIVED = ("reauth", "capture", "tip", "void")
#: Arguments of these commands -> words of the message.
OF_DERIVED = {
    "": "neither ORIGINAL nor --reference is given",
    f"{ID} 5 --reference {REFERENCE}": "ORIGINAL and --reference are both given",
    f"5 6 --reference {REFERENCE}": "'6' is not allowed",
    "7f3c0000x 5": "'7f3c0000x' is not the id of a payment",
    "7f3c000 5": "its first characters, 8 at least",
    "1234567 5": "neither ORIGINAL nor --reference is given",
    f"5 {ID}": "neither ORIGINAL nor --reference is given",
    f"{ID} 5,00": "'5,00' is not an amount",
    f"{ID} 5 --subtotal-iva0 5": "AMOUNT and --subtotal-iva0",
}
#: Command line -> words of the message.
WRONG = {
    **{f"{command} {rest}": words for command in DERIVED for rest, words in OF_DERIVED.items()},
    **{
        f"{row.command} {ID if row.originals else ''}": "no amount: give AMOUNT"
        for row in OPERATIONS.values()
        if row.needs_amount
    },
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
    f"resolve {ID} declined --reference {OTHER_ID} {BY_ANA}": "--reference",
    f"resolve {JOB} COMPLETED --operator Ana": "--note",
    f"resolve {JOB} COMPLETED --amount 1 --terminal SN-0001 {BY_ANA}": "--amount",
    f"resolve {JOB} COMPLETED --reference {ID} {BY_ANA}": "--reference",
    f"resolve {JOB}x approved {BY_ANA}": f"'{JOB}x' is not the id of a payment",
    f"resolve a/b FAILED {BY_ANA}": "is not the id of a print job",
    "print": "FILE",
    "print none.txt": "cannot read none.txt: No such file or directory",
    "print /": "cannot read /: Is a directory",
    "print /dev/zero": "/dev/zero is too large",
    f"print {FILE_TO_PRINT} --id ..": "'..' is not the id of a print job",
    f"print {FILE_TO_PRINT} --id ''": "'' is not the id of a print job",
    f"print {FILE_TO_PRINT} --id 'a\n'": "is not the id of a print job",
    f"print {FILE_TO_PRINT} --reprint-of {'x' * 65}": "is not the id of a print job",
    "print-jobs --wait": "--wait is for one print job",
    "print-jobs ..": "is not the id of a print job",
    "backup": "name the FILE to write, or --into DIRECTORY",
    "backup /b.db --into /b": "name the FILE to write, or --into DIRECTORY",
    "backup /b.db --keep 3": "--keep needs --into",
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
    "terminals commission SN-1": "--yes",
    "terminals add SN-1 --address https://127.0.0.1:1 --yes": "--pin",
    f"terminals add SN-1 --address https://127.0.0.1:1 --pin {'0' * 64}": "--yes",
    "terminals add SN-1 --address https://127.0.0.1:1 --yes --pin abc": "SHA-256",
    "terminals pin SN-1 --address https://127.0.0.1:1 --fingerprint abc": "--fingerprint",
    "terminals pin SN-1 --address http://127.0.0.1": "does not begin with https://",
    "terminals pin SN-1 --address 'a b'": "has no usable host",
    "watch": "posd list --open",
    "support /nowhere/s.tar.gz": "give --yes",
    "demo --no-charges": "--keep",
}


@every(("line", "words"), WRONG.items())
def test_wrong_usage_is_reported_and_nothing_is_sent(line: str, words: str) -> None:
    done = asked([], *shlex.split(line))
    assert (done.returncode, done.calls, "Traceback" in done.stderr) == (2, [], False), done
    assert words in " ".join(done.stderr.split())


# Values on the command line are read exactly, or refused with a clear message.


@every("text", ["0", "10", "10.5", "11.20", "0.1", "19999999.99", "999999999999.9999", "007.50"])
def test_an_amount_is_exactly_the_typed_decimal(text: str) -> None:
    assert str(parameters.amount(text)) == str(Decimal(text))


INVALID = ("", "-1", "+1", "1,20", "1.", ".5", "1e3", "NaN", "Infinity", "1_000", " 1", "1.23456", "1234567890123")


@every("text", [*INVALID, "٣", "1\n"])
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not an amount"):
        parameters.amount(text)


@every(
    ("text", "utc"),
    [
        ("2026-11-20T14:30:00Z", "2026-11-20T14:30:00.000Z"),
        ("2026-11-20T14:30:00.5+02:00", "2026-11-20T12:30:00.500Z"),
        ("2026-11-20T14:30-05:00", "2026-11-20T19:30:00.000Z"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_becomes_utc_with_milliseconds(text: str, utc: str) -> None:
    assert parameters.moment(text) == utc


def test_a_time_has_the_form_of_the_journal() -> None:
    now = datetime.now().astimezone().replace(microsecond=0)
    today, ago = parameters.moment("today"), parameters.moment("-90min")
    assert today == now.date() or datetime.now().astimezone().date() != now.date()
    assert isinstance(ago, str)
    assert timedelta(0) <= datetime.fromisoformat(ago) - (now - timedelta(minutes=90)) < timedelta(minutes=1)
    assert parameters.moment(f"{now.date()} 10:42") == iso(datetime.fromisoformat(f"{now.date()} 10:42"))
    clock = parameters.moment("10:42")
    assert clock == iso(datetime.combine(datetime.now().astimezone().date(), time(10, 42)))
    yesterday = parameters.moment("yesterday")
    assert isinstance(yesterday, date)
    assert yesterday < datetime.now().astimezone().date()
    with pytest.raises(click.BadParameter, match="not a time"):
        parameters.moment("tomorrow")


def test_an_amount_is_a_sale_without_tax_or_has_parts_that_are_sent_as_given() -> None:
    alone = parameters.amounts(Decimal("12.50"), {"iva": None, "subtotal_iva0": None})
    assert alone == {"subtotal_iva0": Decimal("12.50")}
    parts = {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20")}
    assert parameters.amounts(None, parts | {"tip": None}) == parts
    for total, given in ((None, {}), (Decimal(1), {"subtotal_iva0": Decimal(1)})):
        with pytest.raises(click.UsageError):
            parameters.amounts(total, given)


def read(callback: object, *values: str) -> object:
    assert callable(callback)
    return callback(click.Context(click.Command("x")), click.Option(["--x"]), values)


def test_a_pair_keeps_everything_after_the_first_equals_sign_and_json_pairs_keep_numbers_exact() -> None:
    assert read(parameters.pairs, "a=1", "b=x=y", "c=") == {"a": "1", "b": "x=y", "c": ""}
    values = read(parameters.json_pairs, "is_deferred=true", "rate=10.10", 'name="x"')
    assert values == {"is_deferred": True, "rate": Decimal("10.10"), "name": "x"}
    assert isinstance(values, dict)
    assert str(values["rate"]) == "10.10"
    for value in ("a", "=1", ""):
        with pytest.raises(click.BadParameter, match="KEY=VALUE"):
            read(parameters.pairs, value)
    with pytest.raises(click.BadParameter, match='name="text"'):
        read(parameters.json_pairs, "name=text")
