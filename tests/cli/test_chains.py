"""Chains by command line, with a real daemon and a simulated terminal. tests/e2e/test_wrong_chains.py tests
references.
"""

import uuid
from typing import Any

import pytest

from posd.cli.app.connection import Api
from posd.cli.payments.words import meaning, operation
from tests.cli.processes import Shop


def get(shop: Shop, transaction_id: str) -> dict[str, Any]:
    with Api(shop.till_socket) as api:
        return dict(api.get(f"/transactions/{transaction_id}").body)


def test_the_command_shown_after_a_re_auth_captures_the_newest_reference(shop: Shop) -> None:
    reserve = shop.approved("preauth", "10")
    done = shop.run("reauth", reserve, "11")
    assert done.labels["result"] == "The reservation was changed; nothing is charged before it is captured."
    [typed] = [line for line in done.lines if line.startswith("posd capture ")]
    capture = shop.approved(*typed.replace("AMOUNT", "11").removeprefix("posd ").split())
    assert get(shop, capture)["transaction_reference"] == done.labels["reference"]


def test_a_reference_that_does_not_exist_is_refused_by_the_terminal_and_reverses_nothing(shop: Shop) -> None:
    done = shop.run("void", "--reference", str(uuid.uuid4()))
    assert done.returncode == 1
    assert done.labels["result"] == ("The void did not start; nothing was reversed, and the original is unchanged.")
    assert "UNKNOWN_REFERENCE" in done.labels["proof"]


#: Amounts that are parts of an original payment of 10. A void is for the whole amount.
PARTS = {"void": "10"}


def original_for(shop: Shop, command: str) -> list[str]:
    """Make the original payment for a command. Return the arguments that name the original payment."""
    begins = {"reauth": "preauth", "capture": "preauth", "tip": "charge", "void": "charge"}
    return [shop.approved(begins[command], "10")] if command in begins else []


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", ["charge", "preauth", "reauth", "capture", "tip", "void"])
def test_a_decline_exits_1_says_what_is_unchanged_and_can_be_repeated(shop: Shop, command: str) -> None:
    original = original_for(shop, command)
    asked = PARTS.get(command, "5")
    done = shop.run(command, *original, asked, "--metadata", "scenario=decline")
    assert done.returncode == 1, done.stderr
    declined = get(shop, done.labels["transaction"])
    assert done.labels["result"] == meaning(declined)[1]
    assert operation(declined["type"]).undone in done.labels["result"]
    assert done.labels["next"].startswith("To try again, start a new ")
    assert shop.run(command, *original, asked).returncode == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("command", ["capture", "tip"])
def test_a_second_operation_is_refused_and_sent_only_with_repeat(shop: Shop, command: str) -> None:
    original = original_for(shop, command)
    first = shop.approved(command, *original, "5")
    refused = shop.run(command, *original, "5")
    assert refused.returncode == 1
    again = refused.stdout.split()[1]
    assert "say so with --additional" in refused.stderr
    assert f"\n  posd show {first}\n" in refused.stderr
    assert shop.run("show", again).returncode == 1
    repeated = shop.run(command, *original, "5", "--additional", "--id", again)
    # The terminal itself refuses a second operation. This test therefore does not cover the effect.
    assert (repeated.returncode, repeated.labels["transaction"]) == (1, again)
