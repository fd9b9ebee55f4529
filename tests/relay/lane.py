"""A lane's relay as a process, beside a real daemon."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.relay.nats_server import NatsServer
from tests.rig.daemon import Daemon
from tests.rig.program import Command

#: Configuration that gives `feed.sock` to the daemon's own group.
OWN_GROUP = '[local_api]\nfeed_group = ""\n'

_numbers = itertools.count(1)


def with_feed(directory: Path) -> None:
    """Make the daemon of a directory create its feed.sock."""
    (directory / "config.d").mkdir(exist_ok=True)
    (directory / "config.d" / "feed.toml").write_text(OWN_GROUP)


@dataclass
class Lane:
    """One lane with its own name on the stream, because a daemon may have several relays."""

    daemon: Daemon
    server: NatsServer
    settings: str = ""
    name: str = field(default_factory=lambda: f"lane{next(_numbers)}")
    #: The servers in the lane's configuration, by default the one server.
    urls: Sequence[str] = ()

    @property
    def subject(self) -> str:
        return f"posd.m1.{self.name}"

    @property
    def config(self) -> Path:
        return self.daemon.directory / f"{self.name}.toml"

    def configure(self) -> None:
        """Write the lane's configuration."""
        servers = ", ".join(f'"{url}"' for url in self.urls or [self.server.url])
        self.config.write_text(
            f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{self.daemon.directory}/run"\n'
            f'[relay]\nservers = [{servers}]\nlane = "{self.name}"\nstate_seconds = 1\n{self.settings}\n'
        )

    async def start(self, *arguments: str) -> Command:
        """Start `posd relay`."""
        self.configure()
        return await Command.start(self.config, "relay", *arguments)

    async def once(self, *arguments: str) -> Command:
        """Send all pending changes. Check that the process succeeds. Return the process."""
        process = await self.start("--once", *arguments)
        assert await process.ended() == 0, process.lines
        return process

    async def messages(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the messages on the lane's subject, either of all kinds or of the given kinds."""
        return [
            message for message in await self.server.messages(self.subject) if not kinds or message["kind"] in kinds
        ]

    async def feed(self) -> list[dict[str, Any]]:
        """Return the daemon's complete feed, with outcomes."""
        return await self.daemon.feed("&with=outcome")

    async def until_complete(self) -> list[dict[str, Any]]:
        """Wait until a state on the stream says that the whole feed was sent. Return the messages."""
        newest = max((change["seq"] for change in await self.feed()), default=0)
        await self.server.until(self.subject, lambda last: last["kind"] == "state" and last["last_seq"] >= newest)
        return await self.messages()


def once_each(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of messages by number, as in head office. Check that a repeated message is equal."""
    found: dict[int, dict[str, Any]] = {}
    for change in sent(messages):
        assert found.setdefault(change["seq"], change) == change
    return [found[seq] for seq in sorted(found)]


def sent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of messages in order. Check that each message has changes with consecutive numbers."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["kind"] == "changes":
            numbers = [change["seq"] for change in message["changes"]]
            assert numbers == list(range(message["first_seq"], message["last_seq"] + 1))
            found += message["changes"]
    return found
