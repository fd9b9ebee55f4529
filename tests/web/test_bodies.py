"""Reading bodies: whatever the pieces, the same bytes, and never more than the limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.web import bodies

LIMIT = 100
SECONDS = 5.0


def pieces_then(pieces: list[bytes], end: dict[str, Any] | None) -> Callable[[], Awaitable[Any]]:
    """Return the `receive` of a client that sends pieces and then an end; None: nothing more comes."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        if end is None:
            await asyncio.Event().wait()
        return end

    return receive


END = {"type": "http.request", "body": b"", "more_body": False}
HUNG_UP = {"type": "http.disconnect"}


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
async def test_a_body_is_its_pieces_up_to_the_limit(pieces: list[bytes], announced: bool) -> None:
    whole = b"".join(pieces)
    headers = {b"content-length": str(len(whole)).encode()} if announced else {}
    reading = bodies.read(pieces_then(pieces, END), headers, LIMIT, SECONDS)
    if len(whole) <= LIMIT:
        assert await reading == whole
    else:
        with pytest.raises(bodies.TooLarge):
            await reading


async def test_an_announced_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    with pytest.raises(bodies.TooLarge):
        await bodies.read(pieces_then([], None), {b"content-length": b"101"}, LIMIT, SECONDS)


async def test_a_lying_length_does_not_help() -> None:
    with pytest.raises(bodies.TooLarge):
        await bodies.read(pieces_then([b"x" * 101], None), {b"content-length": b"1"}, LIMIT, SECONDS)


@pytest.mark.parametrize(
    ("end", "seconds", "error"), [(HUNG_UP, SECONDS, bodies.Gone), (None, 0.01, bodies.TooSlow)], ids=["gone", "slow"]
)
async def test_half_a_body_is_no_body(end: dict[str, Any] | None, seconds: float, error: type[Exception]) -> None:
    with pytest.raises(error):
        await bodies.read(pieces_then([b"half"], end), {}, LIMIT, seconds)


@pytest.mark.parametrize("end", [END, HUNG_UP], ids=["end", "hung up"])
async def test_an_early_answer_is_whole_before_the_rest_of_the_body_is_thrown_away(end: dict[str, Any]) -> None:
    sent: list[Any] = []
    taken: list[int] = []  # how many messages had been sent when each piece was taken
    pieces = pieces_then([b"x"] * 50, end)

    async def receive() -> Any:
        taken.append(len(sent))
        return await pieces()

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await bodies.answer_early(receive, send, 403, b"no")
    assert len(taken) == 51
    assert set(taken) == {2}
    assert [message.get("more_body") for message in sent] == [None, True, False]
    assert (b"connection", b"close") in sent[0]["headers"]
    assert (b"content-length", b"2") in sent[0]["headers"]


async def test_an_early_answer_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.01)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await bodies.answer_early(pieces_then([], None), send, 408)
    assert sent[-1]["more_body"] is False
