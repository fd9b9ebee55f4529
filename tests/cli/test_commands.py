"""The commands against a real daemon and a simulated terminal."""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shop
from tests.rig.commands import Done, posd, posd_interrupted, posd_on_terminal
from tests.rig.stub import Answer


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
    assert any(line[2:].startswith(f"  {shop.serial} ") for line in rest)  # after a "!" or a space
    assert "sudo posd status, or join the group posd-admin" in posd("status", socket=shop.till_socket).stdout
    document = posd("status", "--json", socket=shop.till_socket).document
    assert set(document) == {"version", "health", "terminals"}


def test_a_receipt_is_confirmed_as_printed_and_its_record_is_in_the_backup(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "receipt.txt").write_text("Thank you")
    done = shop.run("print", str(tmp_path / "receipt.txt")).ends(0)
    assert done.labels["proof"] == "the terminal reported it"
    identity = done.labels["print job"]  # a UUID, so `show` and `await` must ask posd whose id it is
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
def test_a_failing_function_of_a_terminal_is_reported_and_no_longer_counts_as_proven(shop: Shop) -> None:
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
