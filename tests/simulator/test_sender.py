"""Deliveries on the real wire: retries, order, persistence, trust (spec 6.2)."""

import asyncio
import gc
import socket
import ssl
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.clock import VirtualClock
from posd.simulator.delivery import VERDICTS, Verdict
from tests.simulator.conftest import PATIENCE, SPEED, Receiver, Till
from tests.support.connections import shut

MakeSettings = Callable[..., Settings]
CANCEL = {"scenario": "cancel-by-cardholder"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("status", [code for code, verdict in VERDICTS.items() if verdict is Verdict.RETRY])
async def test_a_retried_status_is_tried_again_with_the_same_bytes(till: Till, receiver: Receiver, status: int) -> None:
    seen: list[str] = []

    def fail_once(event: dict[str, Any]) -> int:
        seen.append(event["event_id"])
        return status if len(seen) == 1 else 204

    receiver.answer = fail_once
    await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)
    first, second, third = await receiver.wait_for(3)
    assert first.raw == second.raw
    assert second.at - first.at >= 2 / SPEED
    assert third.event["status"] == "TERMINAL_CANCELED"


@pytest.mark.parametrize("status", [*(c for c, v in VERDICTS.items() if v is Verdict.PERMANENT), 302, 307, 405, 413])
async def test_a_permanent_rejection_drops_the_event_and_the_next_one_follows(
    till: Till, receiver: Receiver, status: int
) -> None:
    receiver.location = receiver.url + "/elsewhere"  # it is not followed
    receiver.answer = lambda event: status if event["status"] == "TERMINAL_ACKNOWLEDGED" else 200
    await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)
    await receiver.wait_for(2)
    assert receiver.statuses == ["TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"]
    assert {delivery.path for delivery in receiver.deliveries} == {"/hook"}
    (dropped,) = till.terminal.ledger.of("dropped")
    assert (dropped["status"], dropped["reason"]) == ("TERMINAL_ACKNOWLEDGED", "permanent_rejection")


async def test_a_connection_that_is_cut_is_tried_again(till: Till, receiver: Receiver) -> None:
    receiver.answer = lambda _: None if len(receiver.deliveries) == 1 else 200
    await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)
    await receiver.wait_for(3)
    assert till.terminal.ledger.of("attempt")[0]["result"] == "connection_reset"


async def test_after_ten_attempts_it_is_given_up_with_the_delays_of_the_formula(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    receiver.answer = lambda event: 503 if event["status"] == "TERMINAL_ACKNOWLEDGED" else 200
    clock = VirtualClock()
    async with Simulator(settings(), clock) as terminal:
        await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=receiver.url)
        await clock.advance(3600)
        attempts = terminal.ledger.of("attempt", status="TERMINAL_ACKNOWLEDGED")
        (dropped,) = terminal.ledger.of("dropped")
    assert Counter(receiver.statuses) == {"TERMINAL_ACKNOWLEDGED": 10, "TERMINAL_CANCELED": 1}
    assert receiver.statuses[-1] == "TERMINAL_CANCELED"  # in order: not before the one before it was given up
    assert dropped["reason"] == "attempts_exhausted"
    delays = [line["retry_in_seconds"] for line in attempts]
    assert delays.pop() is None
    for delay, base in zip(delays, (2, 4, 8, 16, 32, 60, 60, 60, 60), strict=True):
        assert base <= delay <= base + 2


async def test_after_fifteen_minutes_it_is_given_up(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    """A receiver that never answers: each attempt takes 400 s of the terminal's time, so the third is the last."""
    receiver.silent = True
    clock = VirtualClock(speed=2000)
    async with Simulator(settings(delivery_timeout=0.2), clock) as terminal:
        await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=receiver.url)
        await clock.advance(1300)
        (dropped,) = terminal.ledger.of("dropped")
        attempts = terminal.ledger.of("attempt", event_id=dropped["event_id"])
    assert dropped["reason"] == "window_exhausted"
    assert [line["result"] for line in attempts] == ["timeout"] * 3


async def test_transactions_do_not_wait_for_each_other(till: Till, receiver: Receiver) -> None:
    """The first transaction's first event is refused for as long as the second one's events take."""
    stuck = str(uuid.uuid4())
    receiver.answer = lambda event: 503 if event["client_transaction_id"] == stuck else 200
    await till.charge(client_transaction_id=stuck, metadata=CANCEL, events_webhook_url=receiver.url)
    await till.terminal.ledger.wait_for("final", client_transaction_id=stuck)
    other = (await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)).json()["operation"]
    await till.terminal.ledger.wait_for(
        "attempt", client_transaction_id=other["client_transaction_id"], status="TERMINAL_CANCELED", result=200
    )
    assert till.terminal.ledger.of("attempt", client_transaction_id=stuck, result=200) == []
    receiver.answer = lambda _: 200
    await till.terminal.ledger.wait_for("attempt", client_transaction_id=stuck, status="TERMINAL_CANCELED", result=200)
    mine = [item.event["status"] for item in receiver.deliveries if item.event["client_transaction_id"] == stuck]
    assert mine == sorted(mine)  # ACKNOWLEDGED (repeated), then CANCELED


async def test_events_made_while_the_consumer_is_away_come_in_order_when_it_is_back(
    till: Till, server_tls: ssl.SSLContext
) -> None:
    receiver = Receiver(port=free_port())
    await till.charge(events_webhook_url=f"https://127.0.0.1:{receiver.port}/hook")
    await till.terminal.ledger.wait_for("final")
    assert {line["result"] for line in till.terminal.ledger.of("attempt")} == {"unreachable"}
    await receiver.open(server_tls)
    await receiver.wait_for(4)
    assert receiver.statuses == ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
    await receiver.close()


async def test_a_restart_of_the_terminal_replays_what_was_not_delivered_in_order(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    receiver.answer = lambda _: 503
    async with Simulator(settings()) as terminal:
        await Till(terminal, client).charge(events_webhook_url=receiver.url)
        await terminal.ledger.wait_for("final")
        made = [line["event_id"] for line in terminal.ledger.of("event")]
    receiver.deliveries.clear()
    receiver.answer = lambda _: 200
    async with Simulator(settings()) as terminal:
        await terminal.ledger.wait_for("attempt", event_id=made[-1], result=200)
        assert [delivery.event["event_id"] for delivery in receiver.deliveries] == made
        first = await terminal.ledger.wait_for("attempt", event_id=made[0])
        assert first["attempt"] > 1  # counted on, not anew
    receiver.deliveries.clear()
    async with Simulator(settings()) as terminal:
        await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=receiver.url)
        await receiver.wait_for(2)
    assert not {delivery.event["event_id"] for delivery in receiver.deliveries} & set(made)


async def test_a_receiver_that_the_ca_does_not_vouch_for_gets_nothing(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver, pem: dict[str, Path]
) -> None:
    for trust in (pem["other_ca"], None):  # another CA; the system's
        async with Simulator(settings(trust=trust)) as terminal:
            await Till(terminal, client).charge(metadata=CANCEL, events_webhook_url=receiver.url)
            attempt = await terminal.ledger.wait_for("attempt")
            assert (attempt["result"], attempt["retry_in_seconds"] is None) == ("tls_failure", False)
    assert receiver.deliveries == []


async def test_a_name_that_does_not_resolve_is_a_dns_failure(till: Till) -> None:
    """An empty label cannot be a name: the resolver says so without asking the network."""
    await till.charge(metadata=CANCEL, events_webhook_url="https://consumer..invalid/hook")
    attempt = await till.terminal.ledger.wait_for("attempt")
    assert (attempt["result"], attempt["retry_in_seconds"] is None) == ("dns_failure", False)


async def test_a_plain_http_receiver_works_too(till: Till) -> None:
    receiver = Receiver()
    await receiver.open(None)
    await till.charge(metadata=CANCEL, events_webhook_url=receiver.url)
    await receiver.wait_for(2)
    await receiver.close()


async def test_the_terminal_stops_at_once_while_deliveries_hang(
    settings: MakeSettings, client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    receiver.silent = True
    async with Simulator(settings()) as terminal:
        await Till(terminal, client).charge(events_webhook_url=receiver.url)
        await receiver.wait_for(1)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 8  # a delivery hangs for 10


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
