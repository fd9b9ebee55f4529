"""Terminals and tills of a daemon with a failing disk, and a record of posd's promises."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from posd.tls import issue
from tests.power.promises import Promises
from tests.rig.daemon import Daemon, toml
from tests.rig.events import APPROVED, RESULTS, body
from tests.rig.shop import AMOUNT, acknowledging, answering
from tests.rig.streams import Reply
from tests.rig.terminal import Request, Script, ScriptedTerminal
from tests.rig.webhooks import deliver

DECLINED = (*APPROVED[:3], ("DECLINED", "APPROVAL_REQUESTED"))

#: Function that adds a promise to the record.
Promise = Callable[[Promises], object]


@dataclass
class Street:
    """A daemon, its terminals, and a record of posd's promises. One scripted terminal plays all terminals."""

    posd: Daemon
    terminal: ScriptedTerminal
    serials: Sequence[str]
    note: Callable[[Promise], object]
    #: Serial -> script of the terminal for a start. A terminal without a script accepts every start.
    scripts: dict[str, Script] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.terminal.start = self._started
        hosts = (url.removeprefix("https://") for url in self.terminal.base_urls)
        self._serial_at: Mapping[str, str] = dict(zip(hosts, self.serials, strict=True))

    async def _started(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Reply to a start as the called terminal. The call proves that posd has recorded the transaction."""
        if request.method != "POST":
            await answering(404)(request, writer)
            return
        identity = request.json["client_transaction_id"]
        self.callbacks[identity] = request.callback
        self.note(lambda promises: promises.phase(identity, "starting"))
        serial = self._serial_at[request.headers["host"]]
        await self.scripts.get(serial, acknowledging(serial))(request, writer)

    async def put(self, identity: str, serial: str) -> Reply:
        """Start a payment or repeat the call."""
        reply = await self.posd.call("PUT", f"/transactions/{identity}", {"terminal": serial, "amount": AMOUNT})
        if reply.status in (200, 201):
            self.note(lambda promises: promises.phase(identity, reply.json["phase"]))
        return reply

    async def started(self, serial: str) -> str:
        """Start a payment. Return the id."""
        identity = str(uuid4())
        reply = await self.put(identity, serial)
        assert reply.status == 201, reply.body
        return identity

    async def deliver(self, identity: str, content: bytes) -> Reply:
        """Deliver a callback."""
        answer = await deliver(self.posd, self.callbacks[identity], content)
        if answer.status == 200:
            self.note(lambda promises: promises.events.add((identity, content)))
        elif answer.status < 500:
            self.note(lambda promises: promises.refused.add((identity, content)))
        return answer

    async def delivered(self, identity: str, content: bytes) -> None:
        """Deliver an event. Check that posd accepts the call."""
        answer = await self.deliver(identity, content)
        assert answer.status == 200, answer

    async def outcome(self, identity: str) -> str:
        """Wait for the outcome as a till. Return the result."""
        outcome = await self.posd.outcome(identity)
        self.note(lambda promises: promises.result(identity, outcome["result"]))
        return str(outcome["result"])


def bodies(identity: str, serial: str, statuses: Any = APPROVED, echo_bytes: int = 0) -> list[bytes]:
    """Return the bodies of a payment's events. The final event echoes `echo_bytes` of metadata."""
    echo = {"operation": {"type": "CHARGE", "metadata": {"echo": "m" * echo_bytes}}}
    return [
        body(identity, status, previous, serial, **(echo if status in RESULTS else {})) for status, previous in statuses
    ]


def names(count: int) -> list[str]:
    """Return this many serials."""
    return [f"SN-{number}" for number in range(count)]


def make_daemon(home: Path, terminal: ScriptedTerminal, environment: Mapping[str, str]) -> Daemon:
    """Return a daemon with a certificate. The daemon is not started. The daemon's terminals are at the ports of the
    scripted terminal.
    """
    serials = names(len(terminal.base_urls))
    entries = (terminal.entry(serial, url) for serial, url in zip(serials, terminal.base_urls, strict=True))
    issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    return Daemon(home, toml(home, "".join(entries)), environment)
