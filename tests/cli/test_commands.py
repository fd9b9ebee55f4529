"""The commands as processes, against a real daemon and a simulated terminal."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.cli.processes import PATIENCE, Shop, daemon_away, posd, posd_process, read_until, started_posd


@pytest.fixture(autouse=True)
def left_free(shop: Shop) -> Iterator[None]:
    """Free the terminals after the test. A failed test can leave a payment open."""
    yield
    left = shop.run("list", "--open", "--json")
    for payment in left.document["transactions"]:
        shop.run("abort", payment["client_transaction_id"])
        shop.run("await", payment["client_transaction_id"], "--timeout", "10")


@pytest.fixture
def waiting_payment(shop: Shop) -> Iterator[str]:
    """Yield a payment whose customer never presents the card. Abort the payment at the end, so that the terminal is
    free.
    """
    payment = str(uuid.uuid4())
    started = shop.run("charge", "5", "--id", payment, "--metadata", "scenario=wait-for-abort", "--no-wait")
    assert started.returncode == 0, started.stderr
    assert f"posd await {payment}" in started.stdout
    yield payment
    shop.run("abort", payment)
    assert shop.run("await", payment).returncode == 1


def test_an_approved_charge_shows_its_events_and_reference_and_exits_0(shop: Shop) -> None:
    done = shop.run("charge", "--subtotal-iva", "10.00", "--iva", "1.20")
    assert done.returncode == 0, done.stderr
    assert done.lines[0].startswith("transaction ")
    told = [line.split()[1] for line in done.lines[1:5]]
    assert told == ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
    assert (done.labels["authorized"], bool(done.labels["ticket"])) == ("11.20", True)
    assert uuid.UUID(done.labels["reference"])
    assert "approved" in done.lines


def test_a_wait_that_times_out_exits_4_and_says_how_to_continue(shop: Shop, waiting_payment: str) -> None:
    cut = posd_process("await", waiting_payment, "--timeout", "0.3", "--json", config=shop.config_path)
    assert cut.returncode == 4
    assert cut.document["outcome"] is None
    assert f"posd await {waiting_payment}" in cut.stderr
    assert f"posd abort {waiting_payment}" in cut.stderr


@pytest.mark.slow
def test_ctrl_c_exits_4_and_the_payment_continues(shop: Shop) -> None:
    arguments = ("charge", "7", "--metadata", "scenario=wait-for-abort")
    with started_posd(*arguments, config=shop.config_path) as charge:
        told = read_until(charge, "TERMINAL_ACKNOWLEDGED")
        payment = told.split()[1]
        charge.send_signal(signal.SIGINT)
        _, stderr = charge.communicate(timeout=PATIENCE)
    assert charge.returncode == 4
    assert "the payment goes on" in stderr
    assert f"posd abort {payment}" in stderr
    assert "Traceback" not in stderr
    assert shop.run("abort", payment).returncode == 0
    ended = shop.run("await", payment, "--json")
    assert (ended.returncode, ended.document["outcome"]["result"]) == (1, "canceled")


def test_a_charge_survives_a_restart_of_the_daemon(shop: Shop) -> None:
    arguments = ("charge", "8", "--metadata", "scenario=wait-for-abort")
    with started_posd(*arguments, config=shop.config_path) as charge:
        payment = read_until(charge, "TERMINAL_ACKNOWLEDGED").split()[1]
        with daemon_away(shop):
            read_until(charge, "posd does not answer; waiting for it (the payment goes on)")
        assert shop.run("abort", payment).returncode == 0
        stdout, stderr = charge.communicate(timeout=PATIENCE)
    assert charge.returncode == 1, stderr
    assert "posd is back" in stdout
    assert stdout.count("TERMINAL_CANCELED") == 1
    assert "canceled" in stdout.splitlines()


def test_list_shows_payments_of_a_result_and_their_totals(shop: Shop) -> None:
    since = datetime.now(UTC).isoformat()
    for arguments in (("5",), ("7.5", "--tip", "1"), ("6", "--metadata", "scenario=decline")):
        shop.run("charge", *arguments)
    declined = shop.run("list", "--since", since, "--result", "declined").lines
    assert [row.split("\t")[4:] for row in declined[1:]] == [["6.00", "declined"]]
    listed = shop.run("list", "--since", since, "--totals", "--limit", "1", "--all")
    rows = [row.split("\t") for row in listed.lines]
    assert rows[-4:] == [
        [""],
        ["type", "of", "result", "currency", "payments", "amount", "tips", "authorized_amount"],
        ["charge", "payment", "approved", "USD", "2", "12.50", "1.00", "13.50"],
        ["charge", "payment", "declined", "-", "1", "6.00", "0.00", "0.00"],
    ]
    program = shop.run("list", "--since", since, "--totals", "--limit", "1", "--all", "--json")
    pages = [json.loads(line) for line in program.lines]
    assert ["totals" in page for page in pages] == [True, False, False]
    assert [row["count"] for row in pages[0]["totals"]] == [2, 1]


def test_status_has_the_result_in_the_first_line_and_shows_less_on_the_tills_socket(shop: Shop) -> None:
    program, person = (shop.run("status", *more) for more in (("--json",), ()))
    document = program.document
    assert document["version"]["version"]
    assert [item["serial"] for item in document["terminals"]] == [shop.serial]
    assert program.returncode == person.returncode
    first, *rest = person.lines
    assert (first == "posd: all is well") == (person.returncode == 0)
    assert any(line.startswith(f"    {shop.serial} ") for line in rest)
    till = posd("status", socket=shop.till_socket)
    assert "sudo posd status, or join the group posd-admin" in till.stdout
    assert set(json.loads(posd("status", "--json", socket=shop.till_socket).stdout)) == {
        "version",
        "health",
        "terminals",
    }


@pytest.mark.slow
def test_a_person_releases_the_terminal_and_resolves_the_payment() -> None:
    payment, reference = str(uuid.uuid4()), str(uuid.uuid4())
    # The shop is separate, because its terminal keeps waiting for the card.
    with Shop(speed=200.0, patient=True) as machine:
        run = machine.run
        run("charge", "5", "--id", payment, "--metadata", "scenario=wait-for-abort", "--no-wait")
        assert run("reconcile", payment).returncode == 4
        released = run("release", payment, "--operator", "Ana", "--note", "it hangs")
        assert released.returncode == 0, released.stderr
        assert f"posd resolve {payment} RESULT" in run("list", "--attention").stdout
        resolved = run("resolve", payment, "approved", "--reference", reference, "--note", "the slip says so", "--yes")
        assert resolved.returncode == 0, resolved.stderr
        shown = run("show", payment).stdout
        assert f"terminal freed by a person\tby Ana, user id {os.getuid()}, note: it hangs" in shown
        assert f"reference {reference}, note: the slip says so" in shown
        again = run("resolve", payment, "declined", "--note", "no", "--yes")
        assert (again.returncode, "already ended (approved)" in again.stderr) == (1, True)
        assert run("acknowledge", payment, "gap", "--note", "none").returncode == 1
        assert run("quarantine", "--json").stdout.startswith('{"quarantine":[]')
        assert run("reprocess").returncode == 0


def test_a_new_terminal_is_commissioned(shop: Shop) -> None:
    """The payment of this amount waits for an abort."""
    given = ("--operator", "Ana", "--amount", "9000.08", "--yes")
    done = shop.run("terminals", "commission", shop.serial, *given)
    assert done.returncode == 0, done.stderr
    table = {row[0]: row[1:] for row in done.rows if len(row) == 3}
    yes = {part for part, (proven, _) in table.items() if proven == "yes"}
    assert yes == {"start", "callback", "abort", "search", "print", "print_job"}
    assert "--pay" in table["amount_unit"][1]
    found = shop.run("terminals", "--json").document["terminals"][0]["commissioned"]
    assert (found["by"], found["proven"]) == ("Ana", ["start", "abort", "search", "print", "print_job", "callback"])


@pytest.mark.slow
def test_open_payments_are_listed_and_counted(shop: Shop, waiting_payment: str) -> None:
    rows = shop.run("list", "--open").lines[1:]
    assert [row.split("\t")[1] for row in rows] == [waiting_payment]
    status = shop.run("status")
    assert "\n  open payments  1\n" in status.stdout
    assert waiting_payment[:8] in status.stdout
    busy = shop.run("terminals").lines[1].split("\t")
    assert (busy[0], busy[2], busy[3], busy[5]) == (shop.serial, shop.terminal.base_url, "config", waiting_payment)
