"""Readers of bodies. The readers return the same bytes for any pieces, and never more than the limit."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posd.api import webhooks
from posd.base.replies import RefusedBody
from posd.httpd import bodies

LIMIT = 100
SECONDS = 5.0


def pieces_then(pieces: list[bytes], end: dict[str, Any] | None) -> Callable[[], Awaitable[Any]]:
    """Return the `receive` of a client that sends pieces and then an end. With None the client sends nothing more."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        if end is None:
            await asyncio.Event().wait()
        return end

    return receive


def of(headers: dict[bytes, bytes], whole: bytes | None = None) -> Any:
    """Return the scope of a request. `whole`: its complete body, if it has arrived."""
    return {"headers": list(headers.items()), "state": {} if whole is None else {bodies.WHOLE: whole}}


END = {"type": "http.request", "body": b"", "more_body": False}
HUNG_UP = {"type": "http.disconnect"}


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
@example([b"x" * 60, b"x" * 40], True)
@example([b"x" * 60, b"x" * 40], False)
async def test_a_body_within_the_limit_is_read_from_its_pieces(pieces: list[bytes], announced: bool) -> None:
    whole = b"".join(pieces)
    headers = {b"content-length": str(len(whole)).encode()} if announced else {}
    reading = bodies.read(pieces_then(pieces, END), of(headers), LIMIT, SECONDS)
    if len(whole) <= LIMIT:
        assert await reading == whole
    else:
        with pytest.raises(bodies.BodyTooLarge):
            await reading


async def test_an_announced_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    with pytest.raises(bodies.BodyTooLarge):
        await bodies.read(pieces_then([], None), of({b"content-length": b"101"}), LIMIT, SECONDS)


async def test_a_complete_body_is_not_requested_again() -> None:
    taken: list[int] = []
    assert await bodies.read(pieces_then([], None), of({}, b"x" * 100), LIMIT, SECONDS, taken.append) == b"x" * 100
    assert taken == [100]
    with pytest.raises(bodies.BodyTooLarge):
        await bodies.read(pieces_then([], None), of({}, b"x" * 101), LIMIT, SECONDS)


async def test_a_false_content_length_does_not_raise_the_limit() -> None:
    with pytest.raises(bodies.BodyTooLarge):
        await bodies.read(pieces_then([b"x" * 101], None), of({b"content-length": b"1"}), LIMIT, SECONDS)


@pytest.mark.parametrize("end", [END, HUNG_UP], ids=["end", "hung up"])
async def test_an_early_response_is_sent_before_the_rest_of_the_body_is_discarded(end: dict[str, Any]) -> None:
    sent: list[Any] = []
    taken: list[int] = []  # each number is the count of sent messages when a piece was read
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


async def test_an_early_response_waits_for_the_body_only_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.01)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await bodies.answer_early(pieces_then([], None), send, 408)
    assert sent[-1]["more_body"] is False


def test_the_memory_for_bodies_is_limited_in_total_and_for_each_subject() -> None:
    room, free = webhooks.BodyBudget(100, 60), webhooks.SMALL_BYTES
    with ExitStack() as stack:
        of_first, of_again = ExitStack(), ExitStack()
        first, again = of_first.enter_context(room.reserve("a")), of_again.enter_context(room.reserve("a"))
        b, c = (stack.enter_context(room.reserve(subject)) for subject in "bc")
        first(free + 60)
        with pytest.raises(RefusedBody):
            again(free + 1)
        b(free + 40)
        c(free)
        with pytest.raises(RefusedBody):
            c(1)
        of_again.close()
        with pytest.raises(RefusedBody):
            c(1)
        of_first.close()
        c(60)


def test_a_small_body_always_has_room_and_a_large_body_returns_its_room() -> None:
    room = webhooks.BodyBudget(100, 100)
    with room.reserve("large") as large:
        large(webhooks.SMALL_BYTES + 100)
        with room.reserve("small") as small:
            small(webhooks.SMALL_BYTES // 2)
            small(webhooks.SMALL_BYTES // 2)
            with pytest.raises(RefusedBody):
                small(1)
    with room.reserve("another") as another:
        another(webhooks.SMALL_BYTES + 100)


def test_each_subject_has_a_limited_number_of_small_bodies_outside_the_budget() -> None:
    room = webhooks.BodyBudget(100, 50)
    with ExitStack() as stack:
        for _ in range(webhooks.FREE_BODIES_OF_SUBJECT):
            stack.enter_context(room.reserve("a"))(webhooks.SMALL_BYTES)
        one_more = stack.enter_context(room.reserve("a"))
        one_more(50)
        with pytest.raises(RefusedBody):
            one_more(1)
        stack.enter_context(room.reserve("b"))(webhooks.SMALL_BYTES)
    with room.reserve("a") as again:
        again(webhooks.SMALL_BYTES)
