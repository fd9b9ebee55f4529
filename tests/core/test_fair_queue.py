"""Turns of work by owner. The wait of one owner does not depend on the queue of another owner."""

import asyncio
from collections.abc import Sequence

import pytest

from posd.base.fair_queue import FairQueue, end_turn


async def _run(queue: FairQueue, owners: Sequence[str]) -> list[str]:
    """Queue one task for each name, in this order. Return the names in the order in which the tasks ran."""
    ran: list[str] = []

    async def work(owner: str) -> None:
        async with queue.turn(owner):
            ran.append(owner)
            await asyncio.sleep(0)

    await asyncio.gather(*map(work, owners))
    return ran


@pytest.mark.parametrize(
    ("owners", "expected"),
    [("aaa", "aaa"), ("abc", "abc"), ("aaaab", "abaaa"), ("aaaabb", "ababaa"), ("aaabbbccc", "abcabcabc")],
)
async def test_owners_take_turns(owners: str, expected: str) -> None:
    assert "".join(await _run(FairQueue(1), owners)) == expected


async def test_no_more_tasks_run_at_once_than_permitted() -> None:
    queue, running, most = FairQueue(3), 0, 0

    async def work(owner: int) -> None:
        nonlocal running, most
        async with queue.turn(owner % 4):
            running += 1
            most = max(most, running)
            for _ in range(owner % 3):
                await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*map(work, range(50)))
    assert most == 3


async def test_a_task_that_waits_for_another_task_lets_the_next_task_run() -> None:
    queue, answered = FairQueue(1), asyncio.Event()

    async def waiting() -> None:
        async with queue.turn("waiting"):
            end_turn()
            await answered.wait()

    first = asyncio.create_task(waiting())
    assert await _run(queue, "bb") == ["b", "b"]
    answered.set()
    await first
    assert await _run(queue, "cc") == ["c", "c"], "the task returns its turn once"


async def test_a_turn_ends_when_its_time_is_up_even_if_its_task_continues() -> None:
    queue, disk = FairQueue(1, seconds=0.001), asyncio.Event()

    async def waiting() -> None:
        async with queue.turn("waiting"):
            await disk.wait()

    first = asyncio.create_task(waiting())
    assert await _run(queue, "b") == ["b"]
    assert not first.done()
    disk.set()
    await first


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "in the step that gives it the turn"])
async def test_a_cancelled_task_keeps_no_turn(given: bool) -> None:
    queue = FairQueue(1)

    async def work() -> None:
        async with queue.turn("a"):
            await asyncio.sleep(0)

    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    if given:
        await first
    second.cancel()
    await asyncio.wait({first, second})
    assert second.cancelled()
    assert await _run(queue, "bb") == ["b", "b"]


async def test_a_failed_task_returns_its_turn() -> None:
    queue = FairQueue(1)
    with pytest.raises(ZeroDivisionError):
        async with queue.turn("a"):
            raise ZeroDivisionError
    assert await _run(queue, "b") == ["b"]
