"""One call to a terminal. The call has its own connection and no state from the previous call.

The call reports exactly whether bytes were sent.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.terminals.attempt import Replied
from posd.terminals.client import TerminalAccess
from tests.rig.access import access
from tests.rig.shop import answering
from tests.rig.terminal import Request, ScriptedTerminal, http, scripted_terminal


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path) as terminal:
        yield terminal


@pytest.fixture
def device(terminal: ScriptedTerminal) -> TerminalAccess:
    return access(terminal)


async def test_no_state_of_a_call_reaches_the_next_call(terminal: ScriptedTerminal, device: TerminalAccess) -> None:
    async def remember(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, b"{}").replace(b"content-type", b"set-cookie: last=payment\r\ncontent-type"))

    terminal.start = remember
    for _ in range(2):
        assert await device.call("POST", f"{terminal.base_url}/x", b"{}") == Replied(200, b"{}")
    assert ["cookie" in request.headers for request in terminal.requests] == [False, False]
    assert [request.headers["connection"] for request in terminal.requests] == ["close", "close"]


async def test_an_environment_proxy_is_not_used(terminal: ScriptedTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    device = access(terminal)
    terminal.start = answering(200, b"{}")
    assert await device.call("POST", f"{terminal.base_url}/x", b"{}") == Replied(200, b"{}")
    assert len(terminal.requests) == 1
