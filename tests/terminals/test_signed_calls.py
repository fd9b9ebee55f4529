"""Signed and encrypted calls.

The replies are in plain text, encrypted, encrypted with another key, or refusals because of the clock.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from posd.config.schema import HashEncryptConfig
from posd.terminals.attempt import NotSent, Replied
from posd.terminals.client import TerminalAccess
from posd.terminals.hash_encrypt import SigningMoment, hash_encrypt
from tests.rig.access import access
from tests.rig.tables import every
from tests.rig.terminal import Request, Script, ScriptedTerminal, scripted_terminal

CODE, SERIAL = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135", "SN-TEST"
CHOICES = HashEncryptConfig("___", "s", 300, "last", 0)
SAYS = b'{"status":"TERMINAL_ACKNOWLEDGED"}'

#: A terminal's reply to a request. The reply uses the key that encrypted the request.
Answer = Callable[[SigningMoment], bytes]


@asynccontextmanager
async def called(directory: Path) -> AsyncIterator[tuple[ScriptedTerminal, TerminalAccess]]:
    async with scripted_terminal(directory) as terminal:
        scheme = hash_encrypt(CODE, SERIAL, CHOICES, time.time)
        device = access(terminal, scheme, auth="hash-encrypt")
        yield terminal, device


def key_of(request: Request) -> SigningMoment:
    return SigningMoment.of(CODE, SERIAL, float(request.headers["timestamp"]), CHOICES)


def answering(status: int, answer: Answer, date: Callable[[], str | None] = lambda: None) -> Script:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        body, when = answer(key_of(request)), date()
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n" + (f"date: {when}\r\n" if when else "")
        writer.write(f"{head}\r\n".encode() + body)

    return script


async def test_the_terminal_can_decrypt_a_call_and_posd_its_reply(tmp_path: Path) -> None:
    async with called(tmp_path) as (terminal, device):
        url = f"{terminal.base_url}/terminal/v1/async/charge"
        terminal.start = answering(200, lambda key: key.encrypted(SAYS, bytes(16)))
        assert await device.call("POST", url, b'{"amount":{"iva":1.20,"subtotal_iva0":10.00}}') == Replied(200, SAYS)
        terminal.start = answering(200, lambda _key: SAYS)
        assert await device.call("POST", url, b"{}") == Replied(200, SAYS)
        assert await device.call("GET", url) == Replied(200, SAYS)
        first, _second, got = terminal.requests
        assert key_of(first).opened(first.body) == b'{"amount":{"iva":1.2,"subtotal_iva0":10}}'
        assert set(json.loads(first.body)) == {"data"}
        assert got.body == b""
        assert got.headers["authorization"] == f"Basic {key_of(got).signature(b'{}')}"
        assert len({request.body for request in terminal.requests[:2]}) == 2


async def test_a_reply_with_another_key_is_reported_as_unreadable(tmp_path: Path) -> None:
    async with called(tmp_path) as (terminal, device):
        other = SigningMoment.of(CODE, SERIAL, 0, HashEncryptConfig("_", "s", 300, "last", 0))
        sealed = other.encrypted(SAYS, bytes(16))
        terminal.start = answering(200, lambda _key: sealed)
        reply = await device.call("POST", f"{terminal.base_url}/x", b"{}")
        words = "the reply is encrypted with another key than the request"
        assert reply == Replied(200, sealed, remark=words, sealed=True)


@every(
    ("status", "minutes", "words"),
    [
        (401, 6, "the clock of this machine is 6 min"),
        (401, -6, "behind that of the terminal"),
        (400, 6, "ahead of that of the terminal"),
        (401, 4, "it refused the authentication; the clocks differ by"),
        (401, None, "its reply does not give its time"),
        (409, 4, ""),
        (200, 6, ""),
    ],
    ids=str,
)
def test_a_refused_call_says_if_the_clocks_differ(tmp_path: Path, status: int, minutes: int | None, words: str) -> None:
    def date() -> str | None:
        return None if minutes is None else format_datetime(datetime.now(UTC) - timedelta(minutes=minutes), usegmt=True)

    async def call() -> Replied:
        async with called(tmp_path) as (terminal, device):
            terminal.start = answering(status, lambda _key: b"{}", date)
            reply = await device.call("POST", f"{terminal.base_url}/x", b"{}")
            assert isinstance(reply, Replied)
            return reply

    reply = asyncio.run(call())
    assert words in reply.remark
    assert bool(reply.remark) == bool(words)


async def test_a_body_that_cannot_be_signed_is_not_sent(tmp_path: Path) -> None:
    async with called(tmp_path) as (terminal, device):
        attempt = await device.call("POST", f"{terminal.base_url}/x", b'{"amount":9007199254740993}')
        assert attempt == NotSent("the request could not be authenticated (NotCanonical)")
        assert terminal.requests == []
