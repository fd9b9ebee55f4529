"""A lane's relay as a process, beside a real daemon."""

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.relay.nats_server import NatsServer
from tests.support import forks
from tests.support.daemon import Daemon
from tests.support.leftovers import OWNER, owner

#: Longest that anything may take that is waited for, in seconds.
PATIENCE_SECONDS = 60.0
#: `feed.sock` is of the daemon's own group.
OWN_GROUP = '[local_api]\nfeed_group = ""\n'

_numbers = itertools.count(1)


def with_feed(directory: Path) -> None:
    """Make the daemon of a directory create its feed.sock."""
    (directory / "config.d").mkdir(exist_ok=True)
    (directory / "config.d" / "feed.toml").write_text(OWN_GROUP)


@dataclass
class Process:
    """A running relay."""

    process: Any
    lines: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    def read(self) -> None:
        """Begin to read its log."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        left = b""
        while piece := await self.process.stdout.read(65536):  # a report is one line, longer than a stream's limit
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                try:
                    self.lines.append(json.loads(line))
                except ValueError:
                    self.text += f"{line.decode()}\n"
            self._news.set()
        self.text += left.decode()
        self._news.set()

    async def said(self, event: str) -> dict[str, Any]:
        """Wait for a line of its log."""
        assert self._reading is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self._news.clear()
                for line in self.lines:
                    if line["event"] == event:
                        return line
                assert not self._reading.done(), (event, self.lines, self.text)
                await self._news.wait()

    async def ended(self) -> int:
        """Wait for its end; return the exit code."""
        assert self._reading is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            code: int = await self.process.wait()
            await self._reading
        assert "Traceback" not in self.text, self.text
        return code

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it with a signal; return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()


@dataclass
class Lane:
    """A name of its own on the stream, because a daemon may have other relays too."""

    daemon: Daemon
    server: NatsServer
    settings: str = ""
    name: str = field(default_factory=lambda: f"lane{next(_numbers)}")
    #: The servers in its configuration; by default the one server.
    urls: Sequence[str] = ()

    @property
    def subject(self) -> str:
        return f"posd.m1.{self.name}"

    @property
    def config(self) -> Path:
        return self.daemon.directory / f"{self.name}.toml"

    def configure(self) -> None:
        """Write its configuration."""
        servers = ", ".join(f'"{url}"' for url in self.urls or [self.server.url])
        self.config.write_text(
            f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{self.daemon.directory}/run"\n'
            f'[relay]\nservers = [{servers}]\nlane = "{self.name}"\nstate_seconds = 1\n{self.settings}\n'
        )

    async def start(self, *arguments: str) -> Process:
        """Start `posd relay`."""
        self.configure()
        process = await forks.start(
            "--config",
            str(self.config),
            "relay",
            *arguments,
            env=os.environ | {OWNER: owner()},
            stderr=asyncio.subprocess.STDOUT,
        )
        found = Process(process)
        found.read()
        return found

    async def once(self, *arguments: str) -> Process:
        """Send what there is; return the process, which has ended well."""
        process = await self.start("--once", *arguments)
        assert await process.ended() == 0, (process.lines, process.text)
        return process

    async def messages(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the messages on the subject, of all kinds or of some."""
        return [
            message for message in await self.server.messages(self.subject) if not kinds or message["kind"] in kinds
        ]

    async def feed(self) -> list[dict[str, Any]]:
        """Return the whole feed of the daemon, with outcomes."""
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            page = json.loads((await self.daemon.call("GET", f"/feed?after={after}&limit=500&with=outcome")).body)
            if not page["changes"]:
                return found
            found += page["changes"]
            after = page["next_after"]

    async def until_complete(self) -> list[dict[str, Any]]:
        """Wait until a state says that the whole feed was sent; return the messages."""
        newest = max((change["seq"] for change in await self.feed()), default=0)
        await self.server.until(self.subject, lambda last: last["kind"] == "state" and last["last_seq"] >= newest)
        return await self.messages()


def once_each(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of messages by number, as head office keeps them. A repeated message must be equal."""
    found: dict[int, dict[str, Any]] = {}
    for change in sent(messages):
        assert found.setdefault(change["seq"], change) == change
    return [found[seq] for seq in sorted(found)]


def sent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of messages, one after the other; each message is one contiguous run."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["kind"] == "changes":
            numbers = [change["seq"] for change in message["changes"]]
            assert numbers == list(range(message["first_seq"], message["last_seq"] + 1))
            found += message["changes"]
    return found
