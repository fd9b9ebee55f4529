"""A terminal that is killed and started again: the money, the record, the ledger and the deliveries agree."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.simulator.conftest import PATIENCE, SEARCH
from tests.simulator.processes import A_WHILE, lines_of, next_line, put_back, until
from tests.simulator.restarted import Restarted
from tests.support.slow import chosen_quick, first_quick

ORDER = ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
#: With seed 7 the acquirer takes 12 s for it, and everything before that 6 s.
LONG_WAIT = "7f3c0000-0000-4000-8000-000000000003"
#: Rounds of the random run; in each, one process is killed.
KILLS = 3


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


#: What is done to an original when the process is killed, what is done to the same original afterwards, and the code of
#: the refusal where the first one was recorded; None where it is no hindrance.
DERIVED = [
    ("pre-auth", "capture", "capture", "ALREADY_CAPTURED"),
    ("pre-auth", "capture", "void", "ALREADY_CAPTURED"),
    ("pre-auth", "re-auth", "capture", "REFERENCE_SUPERSEDED"),
    ("pre-auth", "re-auth", "re-auth", None),
    ("charge", "post-tip", "post-tip", "ALREADY_TIPPED"),
    ("charge", "void", "post-tip", "ALREADY_VOIDED"),
]


POINTS_OF_DERIVED = [("call:record.Record.add", False), ("return:record.Record.add", True)]
KILLED_DERIVED = [(*derived, *point) for derived, point in product(DERIVED, POINTS_OF_DERIVED)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first", "second", "code", "point", "recorded"), first_quick(KILLED_DERIVED, 2))
async def test_references_are_known_after_a_kill(
    shop: Shop, kind: str, first: str, second: str, code: str | None, point: str, recorded: bool
) -> None:
    """Killed as an operation on an original is approved: what is in the record was done, what is not was not."""
    async with shop.terminal(kill_at=(point, 2)) as process:
        assert (await shop.start(kind)).status_code == 200
        original = (await until(process, "final", operation=kind))["transaction_reference"]
        transaction = str(uuid4())
        with suppress(httpx2.TransportError):
            await shop.start(first, client_transaction_id=transaction, transaction_reference=original)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL
    async with shop.terminal() as process:
        assert [event["status"] for event in await shop.search(transaction)] == ["APPROVAL"] * recorded
        finals = [line["operation"] for line in lines_of(shop.ledger, "final", charged=True)]
        assert finals == [kind, *([first] if recorded else [])]
        answer = await shop.start(second, transaction_reference=original)
        if recorded and code is not None:
            assert (answer.status_code, answer.json()["code"]) == (422, code)
        else:
            assert answer.status_code == 200
            assert (await until(process, "final", operation=second))["charged"]


async def test_killed_in_mid_payment_it_has_forgotten_it(shop: Shop) -> None:
    """From outside, at the point of no return: a search knew of the payment, and does not after the power cut."""
    async with shop.terminal("--speed", "10") as process:
        address = shop.base_url
        assert await shop.charge(LONG_WAIT) == 200
        await until(process, "event", status="APPROVAL_REQUESTED")
        assert [event["status"] for event in await shop.search(LONG_WAIT)] == ["APPROVAL_REQUESTED"]
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with shop.terminal("--listen", address.removeprefix("http://")) as process:
        assert shop.base_url == address  # free again at once
        assert await shop.search(LONG_WAIT) == []
        assert lines_of(shop.ledger, "final") == []
        assert await shop.charge(LONG_WAIT) == 200
        assert (await until(process, "final"))["charged"]


@pytest.mark.slow
@pytest.mark.parametrize("options", first_quick([((),), (("--unruly",),)], 1, ["orderly", "unruly"]))
async def test_killed_again_and_again_nothing_is_charged_unknown_or_lost(shop: Shop, options: tuple[str, ...]) -> None:
    rng = Random(3)
    started: list[str] = []
    for _ in range(KILLS):
        async with shop.terminal("--speed", "300", *options) as process:
            lines = rng.randrange(5, 50)  # of the ledger; then it dies
            while lines:
                started.append(str(uuid4()))
                assert await shop.charge(started[-1]) == 200
                while lines:
                    lines -= 1
                    if (await next_line(process))["kind"] == "final":
                        break
            process.send_signal(signal.SIGKILL)
            await process.wait()
        put_back(shop.state / "queue.jsonl", -A_WHILE)
    async with shop.terminal("--speed", "300", *options):
        found = {transaction: await shop.search(transaction) for transaction in started}
        owed = {line["event_id"] for line in lines_of(shop.ledger, "event")}
        await shop.receiver.until(lambda: owed <= {item.event["event_id"] for item in shop.receiver.deliveries})
    finals = {line["client_transaction_id"]: line for line in lines_of(shop.ledger, "final", charged=True)}
    assert len(finals) == len(lines_of(shop.ledger, "final"))
    assert {one: [line["event_id"]] for one, line in finals.items()} == {
        one: [event["event_id"] for event in events] for one, events in found.items() if events
    }
    assert len(finals) >= KILLS
    assert lines_of(shop.ledger, "dropped") == []
    assert bool(lines_of(shop.ledger, "attempt", again=True)) == bool(options)
    if not options:
        for transaction in started:
            assert shop.delivered(transaction) == ORDER[: len(shop.delivered(transaction))]
