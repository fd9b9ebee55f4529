"""Waits without polling. A waiting call misses no change, not even a change during the read of the state."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypercorn.typing import ASGIReceiveEvent
from starlette.requests import Request

from posd.calls import streams
from posd.calls.app import ClientGone
from posd.calls.streams import MessageBatch, Streams, wait_until
from posd.httpd.connection import BodyChannel
from posd.records.quotas import LimitCounters
from posd.storage.batch import RecordedChange
from posd.storage.changes import Hub

CHANGE = RecordedChange(1, "2026-11-20T10:42:03.000Z", "transaction", "one", "event", "active", None, None, ())
#: A request without a body.
WHOLE: ASGIReceiveEvent = {"type": "http.request", "body": b"", "more_body": False}


async def test_a_wait_misses_no_change_during_its_read() -> None:
    hub, looks = Hub(), 0

    async def look() -> str | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            hub.publish([CHANGE])  # the change comes after the read of the state and before the return of the result
            return None
        return "found"

    async with asyncio.timeout(30):
        assert await wait_until(BodyChannel(WHOLE), hub.subscribe("one"), hub, look, None) == "found"


async def test_a_wait_for_one_kind_of_change_ignores_other_kinds() -> None:
    hub, pieces, looks = Hub(), BodyChannel(WHOLE), 0

    async def look() -> str | None:
        nonlocal looks
        looks += 1
        return None

    woken = hub.subscribe("one", lambda change: change.result is not None)
    waiting = asyncio.create_task(wait_until(pieces, woken, hub, look, None))
    await asyncio.sleep(0)
    for result in (None, "approved", None):
        hub.publish([msgspec.structs.replace(CHANGE, result=result)])
        await asyncio.sleep(0)
    pieces.end()
    with pytest.raises(ClientGone):
        await waiting
    assert looks == 3  # a read at the start, after the change with a result, and after the disconnection
    assert hub.waiters == {}


async def test_waiters_are_woken_in_order_of_arrival() -> None:
    hub, woken = Hub(), list[int]()

    async def wait(number: int) -> None:
        with hub.subscribe("one") as waiter:
            await waiter.wait()
            woken.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(100)]
    await asyncio.sleep(0)
    hub.publish([CHANGE])
    await asyncio.gather(*waiting)
    assert woken == list(range(100))


BEAT = b":\n\n"


async def followed(
    hub: Hub, read: Callable[[], Awaitable[MessageBatch]], beaten: Callable[[], None] = lambda: None
) -> tuple[bytes, Streams]:
    """Follow a stream to its end and return its text. `beaten` is called after each heartbeat."""
    written = b""

    async def send(message: Any) -> None:
        nonlocal written
        written += message.get("body", b"")
        if message.get("body") == BEAT:
            beaten()

    served = Streams(hub, LimitCounters(), lambda _approvals: None)
    scope = {
        "type": "http",
        "method": "GET",
        "headers": [],
        "state": {"pieces": BodyChannel(WHOLE), "untaken": lambda: 0},
    }
    async with asyncio.timeout(30):
        await served.answer(Request(scope), "events", "one", read)(scope, None, send)
    return written, served


async def test_a_stream_misses_no_change_during_its_read() -> None:
    hub, reads = Hub(), 0

    async def read() -> MessageBatch:
        nonlocal reads
        reads += 1
        if reads == 1:
            hub.publish([CHANGE])
            return MessageBatch()
        return MessageBatch(b"event: outcome\ndata: {}\n\n", last=True)

    written, served = await followed(hub, read)
    assert written == b"retry: 1000\n\nevent: outcome\ndata: {}\n\n"
    assert (+served.ended, served.open.total(), hub.waiters) == ({("events", "outcome"): 1}, 0, {})


@pytest.mark.parametrize("again", [0.001, 3600.0, None])
async def test_a_stream_is_read_again_only_at_its_time_or_after_a_change(
    monkeypatch: pytest.MonkeyPatch, again: float | None
) -> None:
    """A heartbeat also wakes the stream, so the stream reads the state at the next heartbeat at the latest."""
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.01)
    hub, reads, beats = Hub(), 0, 0

    async def read() -> MessageBatch:
        nonlocal reads
        reads += 1
        return MessageBatch(again=again) if beats < 3 else MessageBatch(b"end", last=True)

    def beaten() -> None:
        nonlocal beats
        beats += 1
        if beats == 3 and again is None:
            hub.publish([CHANGE])

    await followed(hub, read, beaten)
    assert (reads, beats) == (4 if again is not None else 2, 3)
