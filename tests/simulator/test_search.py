"""The online search: what the terminal knows, at every moment, over restarts."""

from collections.abc import Callable

import httpx2

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Till

MakeSettings = Callable[..., Settings]
#: Letters in it, so that upper and lower case differ.
UUID = "7f3cabcd-0000-4000-8000-00000000000f"
#: One scenario for each final.
ENDINGS = {
    "approve-contactless": "APPROVAL",
    "decline": "DECLINED",
    "reject-after-card": "TERMINAL_REJECTED",
    "cancel-by-cardholder": "TERMINAL_CANCELED",
}


async def pay(till: Till, scenario: str) -> str:
    """Run a payment to its end, return its id."""
    answer = await till.charge(metadata={"scenario": scenario})
    transaction = str(answer.json()["operation"]["client_transaction_id"])
    await till.terminal.ledger.wait_for("final", client_transaction_id=transaction)
    return transaction


async def test_finals_are_known_after_a_restart_and_the_payment_in_progress_is_not(
    settings: MakeSettings, client: httpx2.AsyncClient
) -> None:
    told: dict[str, bytes] = {}
    async with Simulator(settings()) as terminal:
        till = Till(terminal, client)
        for scenario in ENDINGS:
            transaction = await pay(till, scenario)
            told[transaction] = (await till.search(transaction)).content
    async with Simulator(settings(scenario="approve-chip-pin", speed=1.0)) as terminal:
        till = Till(terminal, client)
        assert (await till.charge(client_transaction_id=UUID)).status_code == 200
    async with Simulator(settings()) as terminal:
        till = Till(terminal, client)
        assert {transaction: (await till.search(transaction)).content for transaction in told} == told
        assert (await till.search(UUID)).content == b"[]"
        assert terminal.ledger.of("final") == []  # a ledger in memory has what happens in its time
