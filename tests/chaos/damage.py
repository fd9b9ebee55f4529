"""Events that are damaged on their way: between the terminal's TLS and the daemon's, as a broken device would.

It ends the TLS of a terminal with the daemon's own certificate, changes one thing, and sends it on. What it did is
known, and the terminal's ledger says what was meant.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.books import Damaged
from tests.chaos.listener import Listener

#: Longest that one exchange may take, in seconds.
EXCHANGE_SECONDS = 10.0
#: Members that every event has and without which posd can do: whose it is, the callback address says too. That one of
#: them cannot be read has to be told.
TOLD = ("occurred_at", "merchant_id", "event_id")
#: Members that some events have, and that are shown only.
SHOWN = ("reading_type", "previous_status", "failure_reason")
#: What leaves nothing that can be read: it may be refused.
UNREADABLE = "truncated"
#: Values that are of no type that these members have.
NONSENSE = (17, True, [], {"value": {}}, None)

#: Returns what was done, in words, and the body.
Change = Callable[[dict[str, Any], bytes, Random], tuple[str, bytes]]


def bad_utf8(event: dict[str, Any], body: bytes, _rng: Random) -> tuple[str, bytes]:
    """A byte in a name that is no UTF-8; of a terminal of another maker, which has no brand, in the merchant's."""
    name = b"brand" if event["terminal"].get("brand") else b"merchant_id"
    text = rb'("%s"\s*:\s*"[^"]{2})[^"]' % name
    return "bad UTF-8", re.sub(text, lambda found: found[1] + b"\xff", body, count=1)


def wrong_type(event: dict[str, Any], _body: bytes, rng: Random) -> tuple[str, bytes]:
    """A member without which posd can do, of another type."""
    name = rng.choice([name for name in (*TOLD, *SHOWN) if name in event])
    return f"{name} of another type", json.dumps(event | {name: rng.choice(NONSENSE)}).encode()


def member_lost(event: dict[str, Any], _body: bytes, rng: Random) -> tuple[str, bytes]:
    """A member without which posd can do is not there."""
    name = rng.choice([name for name in (*TOLD, *SHOWN) if name in event])
    return f"no {name}", json.dumps({key: value for key, value in event.items() if key != name}).encode()


def truncated(_event: dict[str, Any], body: bytes, rng: Random) -> tuple[str, bytes]:
    """The end is missing: it cannot be read."""
    return UNREADABLE, body[: int(len(body) * rng.uniform(0.2, 0.9))]


#: What is done, and how often.
CHANGES: Mapping[Change, int] = {bad_utf8: 3, wrong_type: 3, member_lost: 2, truncated: 2}
#: Damage of which posd has to tell, as the changes call it.
TOLD_DAMAGE = frozenset({"bad UTF-8", *(f"no {name}" for name in TOLD)})


class Damager(Listener):
    """A listener that damages each event that it carries."""

    def __init__(self, seed: int, certificate: Path, private_key: Path) -> None:
        super().__init__()
        #: Where the daemon listens.
        self.upstream: tuple[str, int] | None = None
        self.damaged: list[Damaged] = []
        self._rng = Random(f"damage/{seed}")
        self._files = (certificate, private_key)

    async def start(self) -> None:
        """Listen."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        await self.listen("127.0.0.1", context=context)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                await self._carry(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # by `stop`
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request and its answer."""
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
        named = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        body = await reader.readexactly(int(named["content-length"]))
        kind, changed, event = self._change(body, line)
        if self.upstream is None:
            raise ConnectionRefusedError
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        far, onward = await asyncio.open_connection(*self.upstream, ssl=context)
        answer = b""
        try:
            named |= {"content-length": str(len(changed)), "connection": "close"}
            head = "\r\n".join([line, *(f"{name}: {value}" for name, value in named.items())])
            onward.write(f"{head}\r\n\r\n".encode("latin-1") + changed)
            answer = await far.read()
        finally:
            onward.transport.abort()
            if event is not None:
                status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
                identity = event["client_transaction_id"].lower()
                self.damaged.append(Damaged(identity, event["status"], kind, status))
        writer.write(answer)
        with suppress(OSError):
            await writer.drain()

    def _change(self, body: bytes, request_line: str) -> tuple[str, bytes, dict[str, Any] | None]:
        """Change one thing; what the terminal's bad day has made useless, or about another payment, stays as it is."""
        change = self._rng.choices(list(CHANGES), list(CHANGES.values()))[0]
        rng = Random(self._rng.getrandbits(64))
        try:
            event = json.loads(body)
            named = all(isinstance(event[name], str) for name in ("client_transaction_id", "event_id", "status"))
            if not named or event["client_transaction_id"].lower() not in request_line.lower():
                return "", body, None
            return *change(event, body, rng), event
        except (ValueError, TypeError, KeyError, IndexError):
            return "", body, None
