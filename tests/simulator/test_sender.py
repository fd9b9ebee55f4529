"""Deliveries on the real wire: retries, order, persistence, trust (spec 6.2)."""

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import PATIENCE, Receiver, Till
from tests.support.connections import shut

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


@pytest.mark.quick(1)
@pytest.mark.parametrize("patience", [0.05, 60.0])
async def test_a_receiver_that_hangs_in_the_handshake_leaves_no_connection_behind(
    settings: MakeSettings, client: httpx2.AsyncClient, patience: float
) -> None:
    """By the time-out of the attempt, or by the stop of the terminal; a leaked socket is a warning, and fails."""
    greeted, gone = asyncio.Event(), asyncio.Event()

    async def listen_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        greeted.set()
        await reader.read()  # until the terminal goes
        gone.set()
        writer.close()

    server = await asyncio.start_server(listen_only, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with Simulator(settings(delivery_timeout=patience)) as terminal:
        await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=url)
        await asyncio.wait_for(greeted.wait(), PATIENCE)
        if patience < PATIENCE:
            assert (await terminal.ledger.wait_for("attempt"))["result"] == "timeout"
    gc.collect()
    await asyncio.wait_for(gone.wait(), PATIENCE)
    await shut(server)
    await server.wait_closed()
