"""The order of searches. Each terminal has one search at a time. Searches with a waiting operator or till are first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from posd.payments.reconcile import CallTurns, always
from tests.rig.connections import serving
from tests.services.test_reconciler import asking, some_turns


class Mute:
    """A terminal that accepts a search, records its payment, and closes the connection on request."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.go_on = asyncio.Semaphore(0)
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept one request."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        await self.asked.put((await reader.readexactly(length)).decode())
        await self.go_on.acquire()
        writer.close()


@asynccontextmanager
async def mute() -> AsyncIterator[Mute]:
    """Run the terminal for the block."""
    terminal = Mute()
    async with serving(terminal.serve) as port:
        terminal.url = f"http://127.0.0.1:{port}"
        yield terminal


async def test_a_payment_with_a_waiting_till_or_operator_is_searched_for_first(tmp_path: Path) -> None:
    async with mute() as terminal, asking(tmp_path, f'base_url = "{terminal.url}"\n', payments=4) as house:
        first, second, third, fourth = house.identities
        running = asyncio.create_task(house.reconciler.run())
        order = []
        async with asyncio.timeout(30):
            assert first in await terminal.asked.get()
            with house.store.hub.subscribe(third):  # one till waits for the outcome
                person = asyncio.create_task(house.reconciler.reconcile(fourth))
                await asyncio.sleep(0)
                for _ in range(3):
                    terminal.go_on.release()
                    body = await terminal.asked.get()
                    order.append(next(identity for identity in house.identities if identity in body))
            terminal.go_on.release()
            await person
        assert order == [third, fourth, second]
        running.cancel()
        await asyncio.wait({running})


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
    given.cancel()  # the end of the block gave the turn to this task, which has not run since
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
