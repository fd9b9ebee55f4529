"""Deliveries on the real wire: retries, order, persistence, trust (spec 6.2)."""

from collections.abc import Callable
from pathlib import Path

import httpx2

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Receiver, Till

MakeSettings = Callable[..., Settings]
CANCEL = {"scenario": "cancel-by-cardholder"}


async def test_a_receiver_that_the_ca_does_not_vouch_for_gets_nothing(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, pem: dict[str, Path]
) -> None:
    for trust in (pem["other_ca"], None):  # another CA; the system's
        async with Simulator(settings(trust=trust)) as terminal:
            await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=receiver.url)
            attempt = await terminal.ledger.wait_for("attempt")
            assert (attempt["result"], attempt["retry_in_seconds"] is None) == ("tls_failure", False)
    assert receiver.deliveries == []


async def test_a_plain_http_receiver_works_too(till: Till) -> None:
    receiver = Receiver()
    await receiver.open(None)
    await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)
    await receiver.wait_for(2)
    await receiver.close()
