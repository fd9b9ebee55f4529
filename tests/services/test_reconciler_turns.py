"""The order of searches. Each terminal has one search at a time. Searches with a waiting operator or till are first."""

import asyncio

from posd.payments.reconcile import CallTurns, always


async def some_turns(count: int) -> None:
    """Run the loop for this many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


class Line:
    """Turns, and the order in which searches got a turn."""

    def __init__(self, places: int) -> None:
        self.turns = CallTurns(places)
        self.had: list[str] = []
        self.waited_for: set[str] = set()
        self.ends: dict[str, asyncio.Event] = {}

    def join(self, name: str) -> "asyncio.Task[None]":
        """Wait for a turn. The urgency of the search is read when a place is free."""
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._have(name))

    async def _have(self, name: str) -> None:
        async with self.turns.turn(lambda: name in self.waited_for):
            self.had.append(name)
            await self.ends[name].wait()

    async def end(self, *names: str) -> None:
        """End these turns, one after the other."""
        for name in names:
            self.ends[name].set()
            await some_turns(5)


async def test_an_urgent_search_goes_first_and_other_searches_keep_their_order() -> None:
    line = Line(2)
    tasks = [line.join(name) for name in "abcdef"]
    await some_turns(5)
    assert line.had == ["a", "b"]
    assert not line.turns.pressed
    line.waited_for |= {"d", "f"}
    assert line.turns.pressed
    await line.end("a")
    line.waited_for -= {"f"}
    assert not line.turns.pressed
    await line.end("b", "d", "c", "e", "f")
    assert line.had == ["a", "b", "d", "c", "e", "f"]
    tasks += [line.join(name) for name in "ghi"]
    await some_turns(5)
    assert line.had[6:] == ["g", "h"]
    await line.end("g", "h", "i")
    await asyncio.gather(*tasks)


async def test_a_cancelled_search_leaves_its_turn_to_the_next() -> None:
    """One search is cancelled while it waits.

    The other search is cancelled after it got a place and before it used the place.
    """
    line = Line(1)
    async with line.turns.turn(always):
        waiting, given, last = [line.join(name) for name in "abc"]
        await some_turns(5)
        waiting.cancel()
        await some_turns(5)
    given.cancel()  # `given` got the turn at the end of the block, but has not run yet
    await some_turns(5)
    assert line.had == ["c"]
    await line.end("c")
    await asyncio.wait({waiting, given, last})
    async with asyncio.timeout(20), line.turns.turn(always):
        pass


async def test_a_search_cancelled_when_a_place_becomes_free_takes_no_turn() -> None:
    line = Line(1)
    async with line.turns.turn(always):
        waiting, last = line.join("a"), line.join("b")
        await some_turns(5)
        waiting.cancel()  # the task has not processed the cancellation when the block ends
    await some_turns(5)
    assert line.had == ["b"]
    await line.end("b")
    await asyncio.wait({waiting, last})
    async with asyncio.timeout(20), line.turns.turn(always):
        alone = line.join("c")
        await some_turns(5)
        alone.cancel()
    await asyncio.wait({alone})
    async with asyncio.timeout(20), line.turns.turn(always):
        pass
