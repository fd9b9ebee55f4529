"""A terminal that is killed and started again: the money, the record, the ledger and the deliveries agree."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.simulator.conftest import PATIENCE, SEARCH
from tests.simulator.processes import lines_of, until
from tests.simulator.restarted import Restarted
from tests.support.slow import chosen_quick

ORDER = ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]


class Shop(Restarted):
    """A terminal that takes payments, its random choices always the same."""

    options = ("--seed", "7")

    async def charge(self, transaction: str) -> int:
        return (await self.start("charge", client_transaction_id=transaction)).status_code

    async def search(self, transaction: str) -> list[dict[str, Any]]:
        answer = await self.client.post(self.base_url + SEARCH, json={"client_transaction_id": transaction})
        assert answer.status_code == 200
        found: list[dict[str, Any]] = answer.json()
        return found

    def delivered(self, transaction: str) -> list[str]:
        """Return the states that the receiver was told of, each where it came first: a kill repeats an event."""
        events = (item.event for item in self.receiver.deliveries)
        statuses = [event["status"] for event in events if event["client_transaction_id"] == transaction]
        return list(dict.fromkeys(statuses))


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with Shop.opened(tmp_path) as shop:
        yield shop


#: Where the process dies in the middle of an approved payment: the point and the number of its passage. What the world
#: knows then: whether the payment is in the record, whether it is in the ledger, how many events are queued at least.
POINTS: list[tuple[str, int, bool, bool, int]] = [
    ("return:terminal.Terminal.start", 1, False, False, 0),
    ("return:delivery.Queue.attempted", 1, False, False, 1),
    ("return:delivery.Queue.put", 3, False, False, 3),
    ("call:record.Record.add", 1, False, False, 3),
    ("return:record.Record.add", 1, True, False, 3),
    ("return:ledger.Ledger.add_final", 1, True, True, 3),
    ("return:delivery.Queue.put", 4, True, True, 4),
    ("return:delivery.Queue.done", 4, True, True, 4),
]


#: Before the payment is in the record, between record and ledger, and after both.
QUICK = [POINTS[3], POINTS[4], POINTS[6]]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("point", "passage", "recorded", "in_ledger", "queued"),
    chosen_quick(POINTS, QUICK, lambda row: f"{row[0]}-{row[1]}"),
)
async def test_killed_at_an_exact_point_of_a_payment(
    shop: Shop, point: str, passage: int, recorded: bool, in_ledger: bool, queued: int
) -> None:
    transaction = str(uuid4())
    async with shop.terminal(kill_at=(point, passage)) as process:
        with suppress(httpx2.TransportError):
            await shop.charge(transaction)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
    assert len(lines_of(shop.ledger, "final")) == in_ledger
    async with shop.terminal() as process:
        if recorded and not in_ledger:
            assert (await until(process, "final"))["charged"]  # told as if it happened now
        known = await shop.search(transaction)
        assert [event["status"] for event in known] == ["APPROVAL"] * recorded
        finals = lines_of(shop.ledger, "final", charged=True)
        assert [line["event_id"] for line in finals] == [event["event_id"] for event in known]
        await shop.receiver.until(lambda: len(shop.delivered(transaction)) >= queued)
        delivered = shop.delivered(transaction)
        assert delivered == ORDER[: len(delivered)]
        assert ("APPROVAL" in delivered) == (queued == len(ORDER))

        again = str(uuid4()) if recorded else transaction  # what was forgotten can be started again
        assert await shop.charge(again) == 200
        await until(process, "final", client_transaction_id=again)
    charged = Counter(line["client_transaction_id"] for line in lines_of(shop.ledger, "final", charged=True))
    assert charged == dict.fromkeys({transaction, again}, 1)
