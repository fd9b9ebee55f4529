"""The course of a charge that a restore lost, from the card to the report. posd and a simulated terminal are processes.
The test uses only commands.
"""

import uuid
from typing import Any

import pytest

from posd.client import Problem
from tests.cli.processes import Shop


def put(shop: Shop, identity: str) -> dict[str, Any]:
    """Make the till's call. Return the transaction, or the problem."""
    done = shop.run("charge", "11.20", "--id", identity, "--no-wait", "--json")
    return {**done.document, "exit": done.returncode}


def sent(shop: Shop, identity: str) -> int:
    """Return the number of requests for this id that the terminal accepted."""
    return len(shop.terminal.ledger("start", client_transaction_id=identity))


@pytest.mark.parametrize("looked", [False, True])
def test_a_charge_that_a_restore_lost_is_recorded_by_the_slip_and_never_sent_again(looked: bool) -> None:
    """posd refuses the id before and after `restore --seen`. The customer did not pay a second charge. For a third
    charge the person has no slip.
    """
    with Shop(speed=200.0, patient=True) as shop:
        backup = shop.directory / "old.db"
        assert shop.run("backup", str(backup)).returncode == 0
        paid, declined, unsent = (str(uuid.uuid4()) for _ in range(3))
        assert shop.run("charge", "11.20", "--id", paid).returncode == 0
        shop.terminal.choose("decline")
        assert shop.run("charge", "11.20", "--id", declined).returncode == 1
        shop.terminal.choose(None)
        shop.stop_daemon()
        for path in (shop.directory / "posd").glob("posd.db*"):
            path.unlink()
        assert shop.run("restore", str(backup), "--yes").returncode == 0
        shop.start_daemon()
        for identity in (paid, declined, unsent):
            refused = put(shop, identity)
            assert (refused["code"], refused["next_step"], refused["never_started"]) == (
                "restore_unseen",
                "ask_person",
                False,
            )
            assert refused["exit"] == 4
            assert shop.run("await", identity).returncode == 4
            with pytest.raises(Problem) as caught:
                shop.client.charge(identity, "11.20")
            assert not caught.value.never_started
        word = ("--amount", "11.20", "--note", "by the slip", "--yes")
        if looked:
            assert shop.run("restore", "--seen", "--note", "looked").returncode == 0
        assert shop.run("resolve", paid, "approved", *word).returncode == 0
        assert shop.run("resolve", declined, "declined", *word).returncode == 0
        if not looked:
            assert shop.run("restore", "--seen", "--note", "looked").returncode == 0
        for identity, result, step, code in ((paid, "approved", "done", 0), (declined, "declined", "new_id_ok", 1)):
            known = put(shop, identity)
            assert (known["phase"], known["outcome"]["result"], known["next_step"]) == ("final", result, step)
            assert known["exit"] == code
            assert shop.run("await", identity).returncode == code
            assert sent(shop, identity) == 1
        assert shop.client.charge(paid, "11.20").outcome().result == "approved"
        assert shop.run("charge", "11.20", "--id", unsent).returncode == 0
        assert [sent(shop, identity) for identity in (paid, declined, unsent)] == [1, 1, 1]
