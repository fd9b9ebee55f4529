"""What an app takes of one request: its pieces in order, one at a time, and that the client has gone."""

import asyncio
from typing import Any

import pytest

from posd.httpd.bodies import BodyChannel

FIRST: Any = {"type": "http.request", "body": b"1", "more_body": True}
SECOND: Any = {"type": "http.request", "body": b"2", "more_body": False}
GONE: Any = {"type": "http.disconnect"}


@pytest.fixture
async def pieces() -> BodyChannel:
    return BodyChannel(FIRST)


async def begun(work: Any) -> "asyncio.Task[Any]":
    """Return a task that has run until it waits."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


async def test_a_piece_waits_until_the_one_before_is_taken(pieces: BodyChannel) -> None:
    second = await begun(pieces.bring(SECOND))
    assert not second.done()
    assert await pieces.take() == FIRST
    await second
    assert await pieces.take() == SECOND


async def test_who_takes_waits_for_a_piece(pieces: BodyChannel) -> None:
    assert await pieces.take() == FIRST
    taking = await begun(pieces.take())
    assert not taking.done()
    await pieces.bring(SECOND)
    assert await taking == SECOND


async def test_that_the_client_has_gone_is_heard_after_what_it_sent_and_however_often_one_asks(
    pieces: BodyChannel,
) -> None:
    pieces.end()
    assert [await pieces.take() for _ in range(3)] == [FIRST, GONE, GONE]


async def test_who_takes_hears_that_the_client_goes(pieces: BodyChannel) -> None:
    await pieces.take()
    taking = await begun(pieces.take())
    pieces.end()
    assert await taking == GONE


async def test_nobody_waits_to_bring_something_of_a_client_that_has_gone(pieces: BodyChannel) -> None:
    stuck = await begun(pieces.bring(SECOND))
    pieces.end()
    async with asyncio.timeout(30):
        await stuck
        await pieces.bring(SECOND)
    assert [await pieces.take() for _ in range(2)] == [FIRST, GONE]


async def test_who_stopped_waiting_has_taken_nothing(pieces: BodyChannel) -> None:
    await pieces.take()
    taking = await begun(pieces.take())
    taking.cancel()
    await pieces.bring(SECOND)
    await asyncio.wait({taking})
    assert await pieces.take() == SECOND


async def test_that_the_client_goes_is_told_at_once(pieces: BodyChannel) -> None:
    told = []
    pieces.on_gone = lambda: told.append(pieces.gone)
    await pieces.take()
    assert told == []
    pieces.end()
    assert told == [True]
