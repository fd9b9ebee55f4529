"""The commands against a real daemon and a simulated terminal."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shop
from tests.rig.commands import PATIENCE, Done, posd, posd_interrupted, posd_on_terminal, read_until, started_posd
from tests.rig.stub import Answer

#: Polls and the attention print_stuck come soon.
SOON = "poll_first_seconds = 3\npoll_max_seconds = 3\nstuck_seconds = 1"
WAITS_FOR_ABORT = ("--metadata", "scenario=wait-for-abort")


@pytest.fixture(autouse=True)
def left_free(shop: Shop) -> Iterator[None]:
    """Free the terminals after the test. A failed test can leave a payment open."""
    yield
    for payment in shop.run("list", "--open", "--json").document["transactions"]:
        shop.run("abort", payment["client_transaction_id"])
        shop.run("await", payment["client_transaction_id"], "--timeout", "10")


def test_an_approved_charge_shows_its_events_and_reference_and_exits_0(shop: Shop) -> None:
    done = shop.run("charge", "--subtotal-iva", "10.00", "--iva", "1.20").ends(0)
    assert done.lines[0].startswith("transaction ")
    told = [line.split()[1] for line in done.lines[1:5]]
    assert told == ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
    assert (done.labels["authorized"], bool(done.labels["ticket"])) == ("11.20", True)
    assert uuid.UUID(done.labels["reference"])
    assert "approved" in done.lines


def test_after_a_re_authorization_the_shown_command_captures_the_newest_reference(shop: Shop) -> None:
    done = shop.run("reauth", shop.approved("preauth", "10"), "11")
    assert done.labels["result"] == "The reservation was changed; nothing is charged before it is captured."
    [typed] = [line for line in done.lines if line.startswith("posd capture ")]
    capture = shop.approved(*typed.replace("AMOUNT", "11").removeprefix("posd ").split())
    assert shop.run("show", capture, "--json").document["transaction_reference"] == done.labels["reference"]


def test_a_charge_survives_a_restart_of_the_daemon(shop: Shop) -> None:
    with started_posd("charge", "8", *WAITS_FOR_ABORT, config=shop.config_path) as charge:
        payment = read_until(charge, "TERMINAL_ACKNOWLEDGED").split()[1]
        with shop.daemon_away():
            read_until(charge, "posd does not answer; waiting for it (the payment goes on)")
        assert shop.run("abort", payment).returncode == 0
        stdout, stderr = charge.communicate(timeout=PATIENCE)
    assert (charge.returncode, stdout.count("TERMINAL_CANCELED")) == (1, 1), stderr
    assert "posd is back" in stdout
    assert "canceled" in stdout.splitlines()


def test_list_shows_the_payments_with_a_result_and_their_totals(shop: Shop) -> None:
    since = ("list", "--since", datetime.now(UTC).isoformat())
    for arguments in (("5",), ("7.5", "--tip", "1"), ("6", "--metadata", "scenario=decline")):
        shop.run("charge", *arguments)
    assert [row[4:] for row in shop.run(*since, "--result", "declined").rows[1:]] == [["6.00", "declined"]]
    listed, program = (shop.run(*since, "--totals", "--limit", "1", "--all", *more) for more in ((), ("--json",)))
    assert listed.rows[-4:] == [
        [""],
        ["type", "of", "result", "currency", "payments", "amount", "tips", "authorized_amount"],
        ["charge", "payment", "approved", "USD", "2", "12.50", "1.00", "13.50"],
        ["charge", "payment", "declined", "-", "1", "6.00", "0.00", "0.00"],
    ]
    pages = [json.loads(line) for line in program.lines]
    assert ["totals" in page for page in pages] == [True, False, False]
    assert [row["count"] for row in pages[0]["totals"]] == [2, 1]


def test_status_has_the_result_in_the_first_line_and_shows_less_on_the_tills_socket(shop: Shop) -> None:
    program, person = (shop.run("status", *more) for more in (("--json",), ()))
    assert program.document["version"]["version"]
    assert [item["serial"] for item in program.document["terminals"]] == [shop.serial]
    assert program.returncode == person.returncode
    first, *rest = person.lines
    assert (first == "posd: all is well") == (person.returncode == 0)
    assert any(line.startswith(f"    {shop.serial} ") for line in rest)
    assert "sudo posd status, or join the group posd-admin" in posd("status", socket=shop.till_socket).stdout
    document = posd("status", "--json", socket=shop.till_socket).document
    assert set(document) == {"version", "health", "terminals"}


@pytest.mark.slow
def test_a_person_releases_the_terminal_and_resolves_the_payment() -> None:
    payment, reference = str(uuid.uuid4()), str(uuid.uuid4())
    # The shop is separate, because its terminal keeps waiting for the card.
    with Shop(speed=200.0, patient=True) as machine:
        run = machine.run
        run("charge", "5", "--id", payment, *WAITS_FOR_ABORT, "--no-wait")
        assert [row[1] for row in run("list", "--open").rows[1:]] == [payment]
        run("status").ends(0, "\n  open payments  1\n", payment[:8])
        busy = run("terminals").rows[1]
        assert (busy[0], *busy[2:4], busy[5]) == (machine.serial, machine.terminal.base_url, "config", payment)
        run("reconcile", payment).ends(4)
        run("release", payment, "--operator", "Ana", "--note", "it hangs").ends(0)
        run("list", "--attention").ends(0, f"posd resolve {payment} RESULT")
        run("resolve", payment, "approved", "--reference", reference, "--note", "the slip says so", "--yes").ends(0)
        freed = f"terminal freed\tby Ana, user id {os.getuid()}, note: it hangs"
        run("show", payment).ends(0, freed, f"reference {reference}, note: the slip says so")
        run("resolve", payment, "declined", "--note", "no", "--yes").ends(1, "already ended (approved)")
        run("reprocess").ends(0)


@pytest.mark.slow
def test_a_wait_for_a_stuck_print_job_lasts_until_a_person_resolves_the_job(tmp_path: Path) -> None:
    (tmp_path / "receipt.txt").write_text("Coffee  2.50\nThank you")
    arguments = ("print", str(tmp_path / "receipt.txt"), "--id", "stuck", "--reference", "print:stuck")
    with Shop(speed=200.0, patient=True) as machine:
        run, file = machine.run, machine.config_path
        with machine.daemon_away():
            file.write_text(file.read_text().replace("poll_first_seconds = 10", SOON))
        with started_posd(*arguments, config=file) as waiting:
            read_until(waiting, "attention print_stuck")
            run("status").ends(1, "posd: not well: print attention\n", "posd list --print-jobs --attention")
            with machine.daemon_away():
                read_until(waiting, "posd does not answer")
            read_until(waiting, "posd is back")
            assert "    posd resolve stuck FAILED" in run("print-jobs", "--attention").lines
            run("resolve", "stuck", "FAILED", "--note", "nothing came out").ends(0)
            stdout, stderr = waiting.communicate(timeout=PATIENCE)
        assert waiting.returncode == 1, stderr
        assert "An operator recorded that the document is not printed." in stdout
        run("show", "stuck").ends(0, "decided by an operator: FAILED", "note: nothing came out")
        run("print-jobs", "stuck", "--wait").ends(1)
        run("resolve", "stuck", "FAILED", "--note", "x").ends(1)


def test_a_receipt_is_confirmed_as_printed_and_its_record_is_in_the_backup(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "receipt.txt").write_text("Thank you")
    done = shop.run("print", str(tmp_path / "receipt.txt")).ends(0)
    assert done.labels["proof"] == "the terminal reported it"
    identity = done.labels["print job"]  # a UUID: `show` and `await` learn from posd that it is a print job's
    assert shop.paper(identity) == "Thank you"
    assert shop.run("show", identity, "--json").document["print_job_id"] == identity
    shop.run("await", identity).ends(0, "the terminal reported it")
    shop.run("acknowledge", identity, "orphan", "--note", "x").ends(1, "orphan is not open")
    count = len(shop.run("list", "--print-jobs", "--limit", "500", "--json").document["print_jobs"])
    shop.run("backup", str(tmp_path / "backup.db")).ends(0)
    for file in ((), (str(tmp_path / "backup.db"),)):
        report = shop.run("verify", *file, "--json").document
        assert (report["ok"], report["print_jobs"]) == (True, count), report
    shop.run("reprocess").ends(0, f"print jobs: {count}")


# posd terminals commission

#: Amounts that select a scenario of the simulated terminal.
WAITS, REFUSED, DENIES = "9000.08", "9000.30", "9000.73"
PROBED = (
    b'{"client_transaction_id": "7f3c", "result": "none", "reason": null, '
    b'"webhook_signature": "", "found_before": false}'
)


def commission(shop: Shop, amount: str, *further: str) -> Done:
    given = ("--operator", "Ana", "--amount", amount, "--yes", *further)
    return shop.run("terminals", "commission", shop.serial, *given)


def commissioned(shop: Shop) -> Any:
    return shop.run("terminals", "--json").document["terminals"][0]["commissioned"]


def test_a_new_terminal_is_commissioned(shop: Shop) -> None:
    """The payment of this amount waits for an abort."""
    done = commission(shop, WAITS).ends(0)
    table = {row[0]: row[1:] for row in done.rows if len(row) == 3}
    yes = {part for part, (proven, _) in table.items() if proven == "yes"}
    assert yes == {"start", "callback", "abort", "search", "print", "print_job"}
    assert "--pay" in table["amount_unit"][1]
    found = commissioned(shop)
    assert (found["by"], found["proven"]) == ("Ana", ["start", "abort", "search", "print", "print_job", "callback"])


@pytest.mark.slow
def test_a_function_that_fails_is_reported_and_loses_its_proof(shop: Shop) -> None:
    commission(shop, WAITS).ends(0)
    assert "abort" in commissioned(shop)["proven"]

    # If a terminal denies a running payment, posd discards the proof of this function.
    done = commission(shop, DENIES, "--no-print")
    (abort,) = (row for row in done.rows if row[0] == "abort")
    assert (done.returncode, abort[1], "nothing runs" in abort[2]) == (1, "no", True)
    assert re.search(r"The card was charged 9000\.73 by payment (\S+)\. .* posd void \1", done.stdout)
    assert "abort" not in commissioned(shop)["proven"]

    # If a terminal accepts no payment, posd gets no proof. The earlier record stays.
    before = commissioned(shop)
    assert commission(shop, REFUSED, "--json").ends(1, "Nothing was recorded").stdout == ""
    assert commissioned(shop) == before


@pytest.mark.slow
def test_commissioning_asks_its_questions_on_the_terminal_even_with_json(shop: Shop) -> None:
    command = ("terminals", "commission", shop.serial, "--amount", WAITS, "--operator", "Ana")
    seen = posd_on_terminal(*command, socket=shop.admin_socket, types="y\ny\nn\nn\n")
    seen.ends(0, "ask for a card, for 9000.08?")
    assert commissioned(shop)["proven"] == ["start", "abort", "search", "callback", "amount_unit"]
    # With --json the questions are on stderr, and only the API's response is on stdout.
    seen = posd_on_terminal(*command, "--json", socket=shop.admin_socket, types="y\nn\nn\nn\n", pipe=True)
    assert seen.document["commissioned"]["proven"] == ["start", "abort", "search", "callback"]


def test_an_interrupted_commissioning_names_the_payment_that_may_run() -> None:
    script = [Answer(), Answer(200, PROBED)]
    done = posd_interrupted("terminals", "commission", "SN-1", "--yes", answers=script)
    (started,) = re.findall(r"^charge (\S+)$", done.stdout, re.MULTILINE)
    done.ends(4, f"posd await {started}", f"posd abort {started}", "Nothing was recorded")
