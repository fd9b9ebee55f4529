"""A charge that a restore lost, from the card to the report: posd and a simulated terminal as processes, by
commands.
"""

import json
import uuid
from typing import Any

import pytest

from posd.client import Problem
from posd.sandbox import Sandbox
from tests.cli.processes import Done, posd

SPEED = 200.0


def command(shop: Sandbox, *arguments: str) -> Done:
    return posd(*arguments, config=shop.config_path)


def put(shop: Sandbox, identity: str) -> dict[str, Any]:
    """Make the till's call. Return the transaction, or the problem."""
    done = command(shop, "charge", "11.20", "--id", identity, "--no-wait", "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    return document | {"exit": done.returncode}


def sent(shop: Sandbox, identity: str) -> int:
    """Return the number of requests for that id that the terminal accepted."""
    return len(shop.terminal.ledger("start", client_transaction_id=identity))


@pytest.mark.parametrize("looked", [False, True])
def test_a_charge_that_a_restore_lost_is_recorded_by_the_slip_and_never_sent_again(looked: bool) -> None:
    """Before and after `restore --seen`. Another charge was not paid; for a third the person has no slip."""
    with Sandbox(speed=SPEED, patient=True) as shop:
        backup = shop.directory / "old.db"
        assert command(shop, "backup", str(backup)).returncode == 0
        paid, declined, unsent = (str(uuid.uuid4()) for _ in range(3))
        assert command(shop, "charge", "11.20", "--id", paid).returncode == 0
        shop.terminal.choose("decline")
        assert command(shop, "charge", "11.20", "--id", declined).returncode == 1
        shop.terminal.choose(None)
        shop.stop_daemon()
        for path in (shop.directory / "posd").glob("posd.db*"):
            path.unlink()
        assert command(shop, "restore", str(backup), "--yes").returncode == 0
        shop.start_daemon()
        for identity in (paid, declined, unsent):
            refused = put(shop, identity)
            assert (refused["code"], refused["next_step"], refused["never_started"]) == (
                "restore_unseen",
                "ask_person",
                False,
            )
            assert refused["exit"] == 4
            assert command(shop, "await", identity).returncode == 4
            with pytest.raises(Problem) as caught:
                shop.client.charge(identity, "11.20")
            assert not caught.value.never_started
        word = ("--amount", "11.20", "--note", "by the slip", "--yes")
        if looked:
            assert command(shop, "restore", "--seen", "--note", "looked").returncode == 0
        assert command(shop, "resolve", paid, "approved", *word).returncode == 0
        assert command(shop, "resolve", declined, "declined", *word).returncode == 0
        if not looked:
            assert command(shop, "restore", "--seen", "--note", "looked").returncode == 0
        for identity, result, step, code in ((paid, "approved", "done", 0), (declined, "declined", "new_id_ok", 1)):
            known = put(shop, identity)
            assert (known["phase"], known["outcome"]["result"], known["next_step"]) == ("final", result, step)
            assert known["exit"] == code
            assert command(shop, "await", identity).returncode == code
            assert sent(shop, identity) == 1
        assert shop.client.charge(paid, "11.20").outcome().result == "approved"
        assert command(shop, "charge", "11.20", "--id", unsent).returncode == 0
        assert [sent(shop, identity) for identity in (paid, declined, unsent)] == [1, 1, 1]
