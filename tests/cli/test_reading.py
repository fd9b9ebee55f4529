"""Input and output for people with a real daemon: shortened ids, times, and screens of any width."""

import re
from collections.abc import Iterator

import pytest

from posd.cli.app.connection import Api, Problem
from tests.cli.conftest import Shop
from tests.rig.tables import every

#: Ids with the same beginning. One id differs only in its last characters.
FIRST = "7f3c0001-0000-4000-8000-000000000001"
TWIN = "7f3c0001-0000-4000-8000-000000000002"
OTHER = "7f3cffff-0000-4000-8000-000000000003"
#: An id of digits only, which could also be an amount.
DIGITS = "20261120-0000-4000-8000-000000000004"
JOB = "receipt-10"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    paper = tmp_path_factory.mktemp("paper") / "receipt.txt"
    paper.write_text("Thank you\n")
    with Shop(speed=200.0, patient=True) as machine:
        for number, identity in enumerate((FIRST, TWIN, OTHER, DIGITS)):
            machine.run("charge", f"{number + 5}", "--id", identity).ends(0)
        for job in (JOB, f"{JOB}42"):
            machine.run("print", str(paper), "--id", job).ends(0)
        yield machine


def test_a_payment_is_named_by_a_unique_beginning_of_its_id(shop: Shop) -> None:
    for typed in ("7f3cf", "7F3CFFFF", OTHER[:-1], OTHER.upper()):
        done = shop.run("show", typed, "--json")
        assert done.document["client_transaction_id"] == OTHER
        assert done.stderr.startswith(f"transaction {OTHER}: " if len(typed) < 36 else "")
    assert shop.run("await", "7f3cf").returncode == 0
    assert "SN-0001  charge  7.00  approved" in shop.run("show", "7f3cf").stderr


@every("options", [(), ("--json",)])
@every("command", ["show", "await", "abort", "reconcile", "void"])
def test_an_ambiguous_beginning_lists_the_ids_and_does_nothing(
    shop: Shop, command: str, options: tuple[str, ...]
) -> None:
    done = shop.run(command, "7f3c0001", *options)
    words = done.document["detail"] if options else done.stderr
    assert (done.returncode, bool(done.stdout)) == (2, bool(options))
    head, *listed = words.splitlines()
    assert "several ids begin with 7f3c0001" in head
    found = [(line.split()[0], *line.split()[-4:]) for line in listed]
    assert found == [(FIRST, "SN-0001", "charge", "5.00", "approved"), (TWIN, "SN-0001", "charge", "6.00", "approved")]


def test_an_unknown_or_too_short_beginning_is_refused(shop: Shop) -> None:
    short = "write the UUID, or its first characters, 4 at least"
    none = "no payment has an id that begins with 7f3d. posd list lists the existing ones"
    for typed, code, words in (("7f3d", 1, none), ("7f3", 2, short), ("7f3g", 2, short), ("receipt-10", 2, short)):
        shop.run("abort", typed).ends(code, words)
    shop.run("show", "receipt-none").ends(1, "no payment or print job has an id that begins with receipt-none")


def test_a_decision_applies_to_the_found_payment_and_names_the_payment(shop: Shop) -> None:
    signed = ("--operator", "Ana", "--note", "tried", "--yes")
    for command in (("release", "7f3cf"), ("resolve", "7f3cf", "declined"), ("acknowledge", "7f3cf", "gap")):
        # the payment has ended, or has no such attention
        shop.run(*command, *signed).ends(1, f"transaction {OTHER}: ")


def test_an_operation_on_money_needs_eight_characters_of_the_id(shop: Shop) -> None:
    assert "its first characters, 8 at least" in shop.run("refund", "7f3cfff").stderr
    # A refund command without its ORIGINAL must not find a payment by chance.
    assert "neither ORIGINAL nor --reference is given" in shop.run("refund", DIGITS[:7]).stderr
    done = shop.run("refund", DIGITS[:8], "1.50", "--json").ends(0)
    assert (done.document["original"], done.document["outcome"]["result"]) == (DIGITS, "approved")
    assert done.stderr.startswith(f"transaction {DIGITS}: ")


def test_a_complete_print_job_id_names_this_job_and_no_longer_id(shop: Shop) -> None:
    for typed, found in ((JOB, JOB), (JOB.upper(), JOB), (f"{JOB}4", f"{JOB}42")):
        done = shop.run("show", typed, "--json")
        assert done.document["print_job_id"] == found
    several = shop.run("show", "rec").ends(2)
    assert [line.split()[0] for line in several.stderr.splitlines()[1:]] == [JOB, f"{JOB}42"]
    assert shop.run("show", "rec-").returncode == 1


def test_the_daemon_lists_exactly_the_ids_that_begin_with_a_text(shop: Shop) -> None:
    with Api(shop.admin_socket) as api:

        def listed(**params: str) -> list[str]:
            return [item["client_transaction_id"] for item in api.get("/transactions", params).body["transactions"]]

        assert listed(id="7F3C") == [FIRST, TWIN, OTHER]
        assert listed(id="7f3c0001-0000-4000-8000-00000000000", limit="1") == [FIRST]
        assert listed(id=OTHER) == [OTHER]
        assert listed(id="7f3d") == []
        alone, beginning = "id goes with `limit` alone", "must be the beginning of a UUID"
        others = ({"open": "true"}, {"totals": "true"}, {"metadata.a": "b"}, {"since": "2026-01-01T00:00:00Z"})
        for params, why in (*((other, alone) for other in others), ({"id": "7f3c%"}, beginning)):
            with pytest.raises(Problem, match=why):
                api.get("/transactions", {"id": "7f3c"} | params)


#: Command -> columns of the table in a pipe, for any content.
PIPED = {
    "list": "created\ttransaction\tterminal\ttype\tamount\tstate",
    "list --print-jobs": "created\tprint job\tterminal\treference\tstate",
    "terminals": "serial\tmodel\taddress\tsource\treachable\tpayment\tseen\twhy",
    "quarantine": "id\treceived\tchannel\tabout\tpeer\tbytes\treason",
}


def test_a_pipe_gets_every_column_and_no_shortened_value(shop: Shop) -> None:
    for command in (("show", FIRST), ("report", "--timezone", "UTC"), ("clock",), *((name,) for name in PIPED)):
        said = shop.run(*" ".join(command).split())
        assert not set(said.stdout) & set("\x1b─│╭╮╰╯…"), said.stdout
        if command[0] in PIPED:
            assert said.lines[0] == PIPED[command[0]]
    assert shop.run("list", "--result", "canceled").stdout == f"{PIPED['list']}\n"
    rows = [line.split("\t") for line in shop.run("list", "--utc").lines[1:]]
    assert {FIRST, TWIN, OTHER, DIGITS} <= {row[1] for row in rows}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[0]) for row in rows)
