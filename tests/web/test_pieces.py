"""The messages that an app reads of one request: the pieces in order, one at a time, and the client's disconnect."""

import asyncio
from typing import Any

import pytest

from posd.httpd.connection import BodyChannel

FIRST: Any = {"type": "http.request", "body": b"1", "more_body": True}
SECOND: Any = {"type": "http.request", "body": b"2", "more_body": False}
GONE: Any = {"type": "http.disconnect"}


@pytest.fixture
async def pieces() -> BodyChannel:
    return BodyChannel(FIRST)


async def begun(work: Any) -> "asyncio.Task[Any]":
    """Return a task that has run to its first wait."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


async def test_a_piece_waits_until_the_app_has_read_the_previous_one(pieces: BodyChannel) -> None:
    second = await begun(pieces.bring(SECOND))
    assert not second.done()
    assert await pieces.take() == FIRST
    await second
    assert await pieces.take() == SECOND


async def test_a_reader_waits_for_a_piece(pieces: BodyChannel) -> None:
    assert await pieces.take() == FIRST
    taking = await begun(pieces.take())
    assert not taking.done()
    await pieces.bring(SECOND)
    assert await taking == SECOND


async def test_the_disconnect_comes_after_the_pieces_and_can_be_read_repeatedly(pieces: BodyChannel) -> None:
    pieces.end()
    assert [await pieces.take() for _ in range(3)] == [FIRST, GONE, GONE]


async def test_a_waiting_reader_is_told_that_the_client_leaves(pieces: BodyChannel) -> None:
    await pieces.take()
    taking = await begun(pieces.take())
    pieces.end()
    assert await taking == GONE


async def test_no_sender_of_pieces_waits_after_the_client_has_left(pieces: BodyChannel) -> None:
    stuck = await begun(pieces.bring(SECOND))
    pieces.end()
    async with asyncio.timeout(30):
        await stuck
        await pieces.bring(SECOND)
    assert [await pieces.take() for _ in range(2)] == [FIRST, GONE]


async def test_a_cancelled_read_takes_no_piece(pieces: BodyChannel) -> None:
    await pieces.take()
    taking = await begun(pieces.take())
    taking.cancel()
    await pieces.bring(SECOND)
    await asyncio.wait({taking})
    assert await pieces.take() == SECOND


async def test_the_callback_for_the_disconnect_is_called_at_once(pieces: BodyChannel) -> None:
    told = []
    pieces.on_gone = lambda: told.append(pieces.gone)
    await pieces.take()
    assert told == []
    pieces.end()
    assert told == [True]
