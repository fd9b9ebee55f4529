"""The terminal's time: real, faster, and virtual."""

import asyncio

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
