"""The queue of a terminal that is killed: ten attempts in all, fifteen minutes in all, and the order is kept (6.2)."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.simulator.conftest import PATIENCE, Receiver
from tests.simulator.processes import A_WHILE, lines_of, put_back, until
from tests.simulator.restarted import Restarted
from tests.support.slow import first_quick

ATTEMPTS = 10
ORDER = ["TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"]
#: Ten attempts, five minutes of the terminal's time, take a third of a second; the 15 minutes are put off.
HASTE = "1000"
#: Ten attempts take ten seconds, and the 15 minutes are over after thirty.
CALM = "30"


class Killed(Restarted):
    """A terminal with one payment, and a receiver that takes none of its events."""

    options = ("--speed", HASTE)

    def __init__(self, tmp: Path, receiver: Receiver, client: httpx2.AsyncClient) -> None:
        super().__init__(tmp, receiver, client)
        receiver.answer = lambda _: 503
        self.queue = self.state / "queue.jsonl"
        self.transaction = str(uuid4())

    async def pay(self) -> None:
        fields = {"client_transaction_id": self.transaction, "metadata": {"scenario": "cancel-by-cardholder"}}
        assert (await self.start("charge", **fields)).status_code == 200

    def numbers(self, status: str) -> list[int]:
        """Return the attempts of an event as the ledger numbers them; one that the kill came into is not there."""
        return [line["attempt"] for line in lines_of(self.ledger, "attempt", status=status)]


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncIterator[Killed]:
    async with Killed.opened(tmp_path) as killed:
        yield killed


async def die(process: asyncio.subprocess.Process) -> None:
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -signal.SIGKILL


#: Where it dies, at the first event's attempt of that number, and how many of its attempts the receiver sees in all.
POINTS: list[tuple[str, int, int]] = [
    ("return:delivery.Queue.attempted", 3, 9),  # counted, and never made
    ("call:delivery.decide", 3, 10),  # made, and its outcome forgotten
    ("return:delivery.Queue.attempted", 10, 9),
    ("call:delivery.decide", 10, 10),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("point", "number", "seen"), first_quick(POINTS, 2, [f"{row[0]}-{row[1]}" for row in POINTS]))
async def test_killed_at_an_attempt_there_are_ten_and_not_one_more(
    killed: Killed, point: str, number: int, seen: int
) -> None:
    async with killed.terminal("--speed", CALM, kill_at=(point, number)) as process:
        await killed.pay()
        await die(process)
    put_back(killed.queue, -A_WHILE)
    async with killed.terminal() as process:
        await until(process, "dropped", status=ORDER[0], reason="attempts_exhausted")
    assert killed.receiver.statuses.count(ORDER[0]) == seen
    numbers = killed.numbers(ORDER[0])
    assert numbers == [attempt for attempt in range(1, ATTEMPTS + 1) if attempt != number]
    first = [item.raw for item in killed.receiver.deliveries if item.event["status"] == ORDER[0]]
    assert len(set(first)) == 1
    assert killed.receiver.statuses == sorted(killed.receiver.statuses, key=ORDER.index)


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "tried"), [(14, True), (16, False)])
async def test_killed_the_fifteen_minutes_go_on(killed: Killed, minutes: int, tried: bool) -> None:
    """In real time: the journal is put so many minutes back."""
    async with killed.terminal("--speed", "1", kill_at=("call:delivery.decide", 1)) as process:
        await killed.pay()
        await die(process)
    put_back(killed.queue, minutes * 60)
    killed.receiver.answer = lambda _: 200
    async with killed.terminal("--speed", "1") as process:
        if tried:
            line = await until(process, "attempt", status=ORDER[0], result=200)
            assert line["attempt"] == 2
        else:
            await until(process, "dropped", status=ORDER[0], reason="window_exhausted")
    assert killed.receiver.statuses.count(ORDER[0]) == 1 + tried


@pytest.mark.slow  # four processes
async def test_killed_again_and_again_there_are_ten_attempts_in_all(killed: Killed) -> None:
    """Three times after its second attempt."""
    for run in range(3):
        async with killed.terminal("--speed", CALM, kill_at=("call:delivery.decide", 2)) as process:
            if run == 0:
                await killed.pay()
            await die(process)
        put_back(killed.queue, -A_WHILE)
    async with killed.terminal() as process:
        await until(process, "dropped", status=ORDER[0], reason="attempts_exhausted")
    assert killed.receiver.statuses[:ATTEMPTS] == ORDER[:1] * ATTEMPTS
    assert ORDER[0] not in killed.receiver.statuses[ATTEMPTS:]
    assert killed.numbers(ORDER[0]) == [1, 3, 5, 7, 8, 9, 10]
