"""Waiting without polling: a change is never missed, not even one that comes while the state is being read."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request

from posd.store.changes import Hub
from posd.store.writer import Change
from posd.web.streams import Message, stream
from posd.web.waiting import until

CHANGE = Change(1, "2026-11-20T10:42:03.000Z", "transaction", "one", "event", "active", None, None, ())


async def nobody_hangs_up() -> dict[str, str]:
    """The client's side of a connection on which nothing more comes."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_wait_sees_a_change_that_comes_while_it_looks() -> None:
    hub, looks = Hub(), 0

    async def look() -> str | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            hub.publish([CHANGE])  # after the state was read, before the look is back
            return None
        return "found"

    async with asyncio.timeout(30):
        assert await until(Request({"type": "http"}, nobody_hangs_up), hub, "one", look, None) == "found"


async def test_a_stream_sees_a_change_that_comes_while_it_reads() -> None:
    hub, reads = Hub(), 0

    async def more(_after: int) -> Sequence[Message]:
        nonlocal reads
        reads += 1
        if reads == 1:
            hub.publish([CHANGE])
            return []
        return [Message(event="outcome", data={}, last=True)]

    async with asyncio.timeout(30):
        lines = [line async for line in stream(hub, "one", 0, more).body_iterator]
    assert lines == [b"event: outcome\ndata: {}\n\n"]
