"""The terminal profile of the configuration is what goes over the wire."""

import asyncio
from pathlib import Path

from tests.e2e.conftest import CHARGE
from tests.support.daemon import running
from tests.support.terminal import Request, ScriptedTerminal, http


async def test_replaced_paths_are_used_with_the_serial_in_its_place(
    home: Path, terminal: ScriptedTerminal, identity: str
) -> None:
    profile = """
[profile.charge]
path = "/v2/{terminal_serial}/charge"
[profile.abort]
method = "POST"
path = "/v2/{terminal_serial}/abort"
"""

    async def take(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, b"{}"))

    terminal.abort = take
    async with running(home, terminal.toml + profile) as posd:
        assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).json["phase"] == "active"
        assert (await posd.call("POST", f"/transactions/{identity}/abort")).status == 202
    assert [(request.method, request.path) for request in terminal.requests] == [
        ("POST", "/v2/SN-TEST/charge"),
        ("POST", "/v2/SN-TEST/abort"),
    ]
