"""The terminal's time: real, faster, and virtual."""

import asyncio
import time

import pytest

from posd.simulator.clock import Clock, VirtualClock


async def note(clock: Clock, seconds: float, name: str, seen: list[tuple[float, str]]) -> None:
    await clock.sleep(seconds)
    seen.append((clock.now(), name))


async def test_sleepers_are_woken_in_the_order_of_their_moments_and_at_them() -> None:
    clock, seen = VirtualClock(100.0), list[tuple[float, str]]()
    lengths = {"c": 3.5, "a": 1.0, "b": 1.0, "late": 10.25, "never": 11.0}
    tasks = [asyncio.create_task(note(clock, seconds, name, seen)) for name, seconds in lengths.items()]
    await asyncio.sleep(0)
    assert seen == []
    await clock.advance(10.25)
    assert seen == [(101.0, "a"), (101.0, "b"), (103.5, "c"), (110.25, "late")]
    assert clock.now() == 110.25
    tasks[-1].cancel()
    await clock.advance(5)
    assert (clock.now(), len(seen)) == (115.25, 4)


async def test_what_sleeps_again_when_it_is_woken_is_woken_again_in_the_same_advance() -> None:
    clock, seen = VirtualClock(), list[float]()

    async def tick() -> None:
        for _ in range(5):
            await clock.sleep(2)
            seen.append(clock.now())

    task = asyncio.create_task(tick())
    await clock.advance(9)
    assert seen == [2, 4, 6, 8]
    await clock.advance(1)
    assert seen == [2, 4, 6, 8, 10]
    await task


async def test_time_stands_still_while_something_is_done_in_real_time() -> None:
    clock, seen = VirtualClock(), list[tuple[float, str]]()
    go = asyncio.Event()

    async def work() -> None:
        await clock.sleep(1)
        with clock.held():
            await go.wait()
            seen.append((clock.now(), "done"))
        await note(clock, 1, "after", seen)

    tasks = [asyncio.create_task(work()), asyncio.create_task(note(clock, 1.5, "other", seen))]
    advance = asyncio.create_task(clock.advance(10))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert (clock.now(), seen) == (1.0, [])
    go.set()
    await advance
    assert seen == [(1.0, "done"), (1.5, "other"), (2.0, "after")]
    await asyncio.gather(*tasks)


async def test_waiting_for_an_event_ends_with_it_or_at_its_limit() -> None:
    clock, event, never = VirtualClock(), asyncio.Event(), asyncio.Event()
    waits = [
        asyncio.create_task(clock.wait(event, 5)),
        asyncio.create_task(clock.wait(never, 5)),
        asyncio.create_task(clock.wait(event, None)),
    ]
    await clock.advance(4.999)
    assert not any(task.done() for task in waits)
    event.set()
    await clock.advance(0.001)
    assert [await task for task in waits] == [True, False, True]
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(clock.wait(never, 5), 0.01)  # cut off: it leaves nothing behind
    await clock.advance(100)


async def test_what_the_network_took_passes_afterwards_on_a_virtual_clock_alone() -> None:
    clock = VirtualClock(speed=20)
    task = asyncio.create_task(clock.make_up(2))
    await clock.advance(39.9)
    assert not task.done()
    await clock.advance(0.1)
    assert task.done()
    began = time.monotonic()
    await Clock().make_up(3600)
    assert time.monotonic() - began < 60


async def test_two_who_advance_do_it_one_after_the_other() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(7))
    await asyncio.gather(clock.advance(3), clock.advance(4))
    assert (clock.now(), task.done()) == (7, True)
    with pytest.raises(ValueError, match="back"):
        await clock.advance(-1)


def test_moments_of_a_fast_clock_are_the_wall_clocks() -> None:
    clock = Clock(speed=100)
    assert abs(clock.now() - time.time()) < 30
    hour_ago = time.time() - 3600
    assert 360_000 <= clock.since(hour_ago) < 363_000
    assert (clock.since(time.time() + 1000), clock.until(hour_ago)) == (0, 0)
    assert 290 < clock.until(clock.after(300)) <= 300
    virtual = VirtualClock(50.0)
    assert (virtual.after(2.5), virtual.since(20.0), virtual.until(53.0)) == (52.5, 30.0, 3.0)
