"""A real NATS server with JetStream, and the contents of the stream of all lanes."""

import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StreamConfig
from nats.js.errors import NotFoundError

from posd.relay.stream import ONCE
from tests.rig.needs import find
from tests.rig.ports import reserve
from tests.rig.program import PATIENCE_SECONDS, Server

STREAM = "POSD"


@dataclass
class NatsServer(Server):
    """A server with a port of its own."""

    more: str = ""
    port: int = field(default_factory=reserve)
    #: Login of the tests themselves.
    options: dict[str, Any] = field(default_factory=dict)
    scheme: str = "nats"
    #: The server's configuration, if another module makes this configuration.
    config: Path | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        config = self.config or self.directory / "nats.conf"
        if self.config is None:
            config.write_text(
                f"listen: 127.0.0.1:{self.port}\n"
                f'jetstream {{ store_dir: "{self.directory}/jetstream", max_file_store: 20GB }}\n{self.more}'
            )
        await self.run(str(find("nats-server")), "-c", str(config), ready="Server is ready")

    def reload(self) -> None:
        """Make the server reload its configuration."""
        self.send(signal.SIGHUP)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect as head office does."""
        client = Client()
        try:
            await client.connect(self.url, error_cb=_silent, **ONCE, **self.options)
            yield client
        finally:
            await client.close()

    async def make_stream(self) -> None:
        """Create the stream as `posd collect --init` does."""
        async with self.client() as client:
            config = StreamConfig(name=STREAM, subjects=["posd.*.*"], discard=DiscardPolicy.NEW, allow_direct=True)
            await client.jetstream().add_stream(config)

    async def messages(self, subject: str) -> list[dict[str, Any]]:
        """Return the stream's messages on a subject in order. `sequence` is the stream's number."""
        found: list[dict[str, Any]] = []
        async with self.client() as client:
            jetstream, sequence = client.jetstream(), 1
            while True:
                try:
                    message = await jetstream.get_msg(STREAM, seq=sequence, subject=subject, next=True)
                except NotFoundError:
                    return found
                found.append(json.loads(message.data) | {"sequence": message.seq})
                sequence = message.seq + 1

    async def until(self, subject: str, what: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until a message on a subject meets a condition. Check the last message first, then each new message."""
        async with self.client() as client:
            news = await client.subscribe(subject)
            await client.flush()
            last: Any = None
            with suppress(NotFoundError, TimeoutError):  # a cluster sometimes has no leader
                last = (await client.jetstream().get_last_msg(STREAM, subject)).data
            while last is None or not what(json.loads(last)):
                last = (await news.next_msg(timeout=PATIENCE_SECONDS)).data

    async def forget(self, *sequences: int) -> None:
        """Delete messages of the stream."""
        async with self.client() as client:
            for sequence in sequences:
                await client.jetstream().delete_msg(STREAM, sequence)

    async def put(self, subject: str, data: bytes) -> None:
        """Publish data on a subject."""
        async with self.client() as client:
            await client.jetstream().publish(subject, data)


def version() -> tuple[int, ...]:
    """Return the version of the program."""
    said = subprocess.run([str(find("nats-server")), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    assert found is not None, said
    return tuple(map(int, found.groups()))


async def _silent(_error: Exception) -> None:
    """Ignore an error, because the tests check for errors themselves."""
