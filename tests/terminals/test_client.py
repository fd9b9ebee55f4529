"""One call to a terminal. The call has its own connection and no state from the previous call.

The call reports exactly whether bytes were sent.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.terminals.attempt import NotSent, Replied, ReplyLost
from posd.terminals.client import TerminalAccess
from tests.support.access import access
from tests.support.shop import answering
from tests.support.terminal import Request, ScriptedTerminal, http, scripted_terminal

#: Number of bytes that exceeds the buffers of the sockets.
MUCH = 32 * 1024 * 1024


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path) as terminal:
        yield terminal


@pytest.fixture
def device(terminal: ScriptedTerminal) -> TerminalAccess:
    return access(terminal)


async def test_a_call_keeps_nothing_for_the_next_one(terminal: ScriptedTerminal, device: TerminalAccess) -> None:
    async def remember(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, b"{}").replace(b"content-type", b"set-cookie: last=payment\r\ncontent-type"))

    terminal.start = remember
    for _ in range(2):
        assert await device.call("POST", f"{terminal.base_url}/x", b"{}") == Replied(200, b"{}")
    assert ["cookie" in request.headers for request in terminal.requests] == [False, False]
    assert [request.headers["connection"] for request in terminal.requests] == ["close", "close"]


async def test_a_proxy_in_the_environment_is_not_used(
    terminal: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    device = access(terminal)
    terminal.start = answering(200, b"{}")
    assert await device.call("POST", f"{terminal.base_url}/x", b"{}") == Replied(200, b"{}")
    assert len(terminal.requests) == 1


async def test_a_partly_written_request_may_have_arrived(terminal: ScriptedTerminal) -> None:
    device = access(terminal, reply_timeout_seconds=0.3)
    enough = asyncio.Event()

    async def read_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await enough.wait()
        writer.transport.abort()

    terminal.instead = read_nothing
    attempt = await device.call("POST", f"{terminal.base_url}/x", b" " * MUCH)
    enough.set()
    assert isinstance(attempt, ReplyLost)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(b"", "it closed the connection without an answer"), (b"SECRET\r\n\r\n", "the reply is not HTTP")],
    ids=["nothing", "garbage"],
)
async def test_an_invalid_reply_is_described_in_words(
    terminal: ScriptedTerminal, device: TerminalAccess, reply: bytes, reason: str
) -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    terminal.start = answer
    assert await device.call("POST", f"{terminal.base_url}/x", b"{}") == ReplyLost(reason)


async def test_a_stopping_posd_sends_nothing_more(terminal: ScriptedTerminal, device: TerminalAccess) -> None:
    device.cancel_calls()
    attempt = await device.call("POST", f"{terminal.base_url}/x", b"{}")
    assert isinstance(attempt, NotSent)
    assert terminal.requests == []
