"""Each event is parsed once. Large events are parsed outside the loop.

posd parses one large event of a sender at a time.
"""

import asyncio
import threading
import tracemalloc

import pytest

from posd.base.fair_queue import APART_BYTES, read_apart
from posd.payments.inbox import MAX_READINGS, BodyNotParsed, EventReadings
from posd.payments.wire import NotAnEvent, read_event
from tests.core.scenarios import IDENTITY
from tests.rig.events import body

SMALL = body(IDENTITY, "APPROVAL")
LARGE = SMALL + b" " * APART_BYTES
#: Number of bodies that are not events, and the memory allowed for each, in bytes.
COUNT = 20
SMALL_BYTES = 4096


async def test_within_a_commit_only_small_bodies_are_parsed() -> None:
    memory = EventReadings()
    assert memory.within_commit(SMALL.ljust(APART_BYTES)) == read_event(SMALL)
    with pytest.raises(BodyNotParsed) as large:
        memory.within_commit(LARGE)
    await memory.read(large.value.body, "peer")
    assert memory.within_commit(LARGE) == read_event(LARGE)


async def test_the_last_used_large_events_are_parsed_once() -> None:
    memory = EventReadings()
    used = [LARGE + b" " * number for number in range(MAX_READINGS + 1)]
    first = [await memory.read(content, "peer") for content in used[:-1]]
    assert await memory.read(used[0], "peer") is first[0]
    for content in (used[-1], SMALL.ljust(APART_BYTES)):
        await memory.read(content, "peer")
    assert [memory.within_commit(used[number]) is first[number] for number in (0, 2)] == [True] * 2
    with pytest.raises(BodyNotParsed):
        memory.within_commit(used[1])


async def test_the_stored_result_of_an_invalid_body_is_small() -> None:
    memory = EventReadings()
    tracemalloc.start()
    try:
        for number in range(COUNT):
            with pytest.raises(NotAnEvent):
                await memory.read(b'{"number": %d, "x": [' % number + b"{}," * (APART_BYTES // 3), "peer")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < COUNT * SMALL_BYTES


async def test_a_sender_has_at_most_one_large_body_in_the_queue() -> None:
    go, order = threading.Event(), list[bytes]()

    def read(content: bytes) -> None:
        go.wait(30)
        order.append(content[:2])

    def large(word: bytes) -> bytes:
        return word + bytes(APART_BYTES)

    flood = [asyncio.create_task(read_apart(read, large(b"a%d" % number), "flood")) for number in range(5)]
    await asyncio.sleep(0)
    honest = asyncio.create_task(read_apart(read, large(b"b0"), "honest"))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*flood, honest)
    assert order[1] == b"b0"
    assert sorted(order) == [b"a0", b"a1", b"a2", b"a3", b"a4", b"b0"]
