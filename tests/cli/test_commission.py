"""`posd terminals commission` against a real daemon and a simulated terminal: findings, records and messages."""

import json
import re
from typing import Any

import pytest

from tests.cli.processes import Done, Shop, posd_interrupted, posd_on_terminal
from tests.cli.stub import Answer

#: Amounts that select a scenario of the simulated terminal.
WAITS, REFUSED, DENIES = "9000.08", "9000.30", "9000.73"
PROBED = (
    b'{"client_transaction_id": "7f3c", "result": "none", "reason": null, '
    b'"webhook_signature": "", "found_before": false}'
)


def commission(shop: Shop, amount: str, *further: str) -> Done:
    given = ("--operator", "Ana", "--amount", amount, "--yes", *further)
    return shop.run("terminals", "commission", shop.serial, *given)


def shown(shop: Shop) -> Any:
    return shop.run("terminals", "--json").document["terminals"][0]["commissioned"]


@pytest.mark.slow
def test_a_function_that_was_not_seen_is_reported_and_no_longer_counts(shop: Shop) -> None:
    assert commission(shop, WAITS).returncode == 0
    assert "abort" in shown(shop)["proven"]

    # If a terminal denies a running payment, posd discards the proof of this function.
    done = commission(shop, DENIES, "--no-print")
    assert done.returncode == 1
    (abort,) = (row for row in done.rows if row[0] == "abort")
    assert abort[1] == "no"
    assert "nothing runs while a payment ran" in abort[2]
    assert re.search(r"The card was charged 9000\.73 by payment (\S+)\. .* posd void \1", done.stdout)
    assert "abort" not in shown(shop)["proven"]

    # If a terminal accepts no payment, posd gets no proof. The earlier record stays.
    before = shown(shop)
    done = commission(shop, REFUSED, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Nothing was recorded" in done.stderr
    assert shown(shop) == before


@pytest.mark.slow
def test_a_person_is_asked_on_a_screen_of_eighty_columns(shop: Shop) -> None:
    given = ("--amount", WAITS, "--operator", "Ana")
    socket = shop.config_path.parent / "run" / "admin.sock"
    seen = posd_on_terminal("terminals", "commission", shop.serial, *given, socket=socket, types="y\ny\nn\nn\n")
    assert seen.returncode == 0, seen.screen
    assert "Does the terminal ask for a card, for 9000.08?" in seen.screen
    assert shown(shop)["proven"] == ["start", "abort", "search", "callback", "amount_unit"]
    # With --json the questions are on stderr, and only the API's response is on stdout.
    seen = posd_on_terminal(
        "terminals", "commission", shop.serial, *given, "--json", socket=socket, types="y\nn\nn\nn\n", pipe=True
    )
    assert json.loads(seen.piped)["commissioned"]["proven"] == ["start", "abort", "search", "callback"]


def test_an_interrupted_commissioning_names_the_payment_that_may_run() -> None:
    arguments = ("terminals", "commission", "SN-1", "--yes")
    done = posd_interrupted(*arguments, answers=[Answer(), Answer(200, PROBED)])
    assert done.returncode == 4
    (started,) = re.findall(r"^charge (\S+)$", done.stdout, re.MULTILINE)
    for words in (f"posd await {started}", f"posd abort {started}", "Nothing was recorded"):
        assert words in done.stderr
