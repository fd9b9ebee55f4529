"""Lists, the feed, terminals, print jobs, and operators' decisions, against a real daemon."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.client import Approved, AsyncPosd, Canceled, OutcomeUnknown, Paid, Posd, Reserved
from tests.client.conftest import refused
from tests.rig.prints import Job
from tests.rig.shop import OFFLINE, Shop, acknowledging, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def own(home: Path) -> AsyncIterator[Shop]:
    """Yield a shop for one test. The test can kill the daemon."""
    async with open_shop(home) as shop:
        yield shop


async def test_lists_are_read_page_by_page_newest_first(shop: Shop) -> None:
    sale = str(uuid4())
    paid = []
    for till in (1, 2, 1, 1, 2):
        payment = await shop.started(sale=sale, additional=True, metadata={"till": till})
        await payment.end()
        paid.append(payment.identity)
    before = datetime.now(UTC) - timedelta(hours=1)
    async with AsyncPosd(shop.daemon.till_socket) as client:
        found = [row.id async for row in client.transactions(sale=sale, page_size=2)]
        of_one = [row.id async for row in client.transactions(sale=sale, metadata={"till": 1}, since=before)]
        still_open = [row.id async for row in client.transactions(sale=sale, open=True)]
        canceled = [row.id async for row in client.transactions(sale=sale, result="canceled")]
        declined = [row.id async for row in client.transactions(sale=sale, result="declined")]
        earlier = [row async for row in client.transactions(sale=sale, until=before)]
    assert found == paid[::-1]
    assert of_one == [paid[3], paid[2], paid[0]]
    assert canceled == found
    assert still_open == earlier == declined == []

    def read() -> list[str]:
        with Posd(shop.daemon.till_socket) as client:
            return [row.id for row in client.transactions(sale=sale, page_size=2, phase="final")]

    assert await asyncio.to_thread(read) == found


async def test_a_time_without_a_zone_is_refused(shop: Shop) -> None:
    with Posd(shop.daemon.till_socket) as client, pytest.raises(ValueError, match="no time zone"):
        client.transactions(since=datetime(2026, 11, 20))  # noqa: DTZ001 - the client refuses a time without a zone


async def test_each_refusal_is_raised_with_its_code(shop: Shop) -> None:
    async with AsyncPosd(shop.daemon.till_socket) as client:
        with refused("unknown_terminal") as caught:
            await client.charge(uuid4(), 5, terminal="SN-NONE")
        assert OFFLINE in caught.value.extra["fleet"]
        with refused("terminal_offline"):
            await client.charge(uuid4(), 5, terminal=OFFLINE)
        with refused("not_found"):
            await client.transaction(uuid4()).state()
        with pytest.raises(OutcomeUnknown):
            await client.transaction(uuid4()).outcome()
        with refused("not_found"):
            await client.terminal("SN/NONE")


async def test_a_persons_decisions_are_recorded(shop: Shop) -> None:
    payment = await shop.in_doubt()
    async with AsyncPosd(shop.daemon.till_socket) as till, AsyncPosd(shop.daemon.admin_socket) as admin:
        released = await till.transaction(payment.identity).release("Ana", "the display is dark")
        assert (released.released, released.phase) == (True, "in_doubt")
        with refused("forbidden"):
            await till.transaction(payment.identity).resolve("approved", "Ana", "slip")
        reference = str(uuid4())
        handle = admin.transaction(payment.identity)
        state = await handle.resolve("approved", "Ana", "slip", transaction_reference=reference)
        assert isinstance(state.outcome, Approved)
        assert (state.outcome.transaction_reference, state.outcome.evidence[0].kind) == (reference, "operator")
        with refused("already_final") as caught:
            await handle.abort()
        assert caught.value.extra["outcome"]["result"] == "approved"


async def test_attention_is_acknowledged(shop: Shop) -> None:
    payment = await shop.started()
    assert await payment.event("APPROVAL_REQUESTED", "CARD_PRESENTED") == 200
    async with AsyncPosd(shop.daemon.admin_socket) as admin:
        handle = admin.transaction(payment.identity)
        assert [item.code for item in (await handle.state()).attention] == ["gap"]
        assert (await handle.acknowledge("gap", "Ana", "seen")).attention == ()
        await payment.end()
        assert isinstance(await handle.outcome(), Canceled)
        assert (await handle.state()).final


async def test_a_chain_of_operations_is_run_and_listed(shop: Shop) -> None:
    first, second = shop.payment(), shop.payment()
    second.serial = first.serial
    shop.terminal.start = acknowledging(first.serial)
    async with AsyncPosd(shop.daemon.till_socket) as client:
        reserved = await client.pre_auth(first.identity, Decimal("11.20"), terminal=first.serial)
        assert await first.event("APPROVAL") == 200
        outcome = await reserved.outcome()
        assert (isinstance(outcome, Approved), outcome.reserved) == (True, Reserved.RESERVED)
        capture = await client.capture(second.identity, "9.00", original=first.identity, terminal=first.serial)
        assert await second.event("APPROVAL") == 200
        assert (await capture.outcome()).paid is Paid.PAID
        assert (await capture.state()).original == first.identity


async def test_the_client_reads_terminals_and_health_and_version(shop: Shop) -> None:
    payment = await shop.started()
    async with AsyncPosd(shop.daemon.till_socket) as client:
        terminals = {terminal.serial: terminal for terminal in await client.terminals()}
        assert terminals[payment.serial].transaction == payment.identity
        assert terminals[OFFLINE].base_url is None
        assert (await client.terminal(payment.serial)).transaction == payment.identity
        health = await client.health()
        assert health.checks["storage"].status == "ok"
        version = await client.version()
        assert (version.api, version.timezone) == ("v1", "America/Guayaquil")
        assert (version.currency, version.language) == ("", "en")
    await payment.end()


async def test_a_wait_returns_the_end_of_a_print_job(shop: Shop) -> None:
    job = Job(shop.daemon, shop.terminal, f"job-{uuid4()}")
    async with AsyncPosd(shop.daemon.till_socket) as client:
        printing = await client.print_job(
            job.identity, {"lines": ["TOTAL 11.20"]}, terminal="SN-001", external_reference="t-1"
        )
        assert (await printing.state()).phase == "active"
        waiting = asyncio.create_task(printing.outcome())
        assert await job.webhook() == 200
        done = await waiting
        assert (done.printed, done.status, done.external_reference) == (True, "COMPLETED", "t-1")
        assert (await client.printed(job.identity).outcome(timeout=0)).id == job.identity
        assert job.identity in [row.id async for row in client.print_jobs(external_reference="t-1")]
