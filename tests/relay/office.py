"""Head office. The server of head office has the configuration of packaging/nats/lanes. The lanes have the files from
this folder.
"""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from posd.collect.collector import StreamConsumer, connected
from posd.config.schema import CollectConfig
from posd.relay.stream import EXPECTED, ONCE
from tests.relay.lane import Lane
from tests.relay.nats_server import STREAM, NatsServer
from tests.support.certificates import issued

LANES = Path(__file__).parents[2] / "packaging" / "nats" / "lanes"
#: Maximum wait for a reply of the server, in seconds.
PATIENCE_SECONDS = 30.0
SETTINGS = ("--server", "tls://nats.example.org:4222", "--certificate", "/x.pem", "--private-key", "/x.key")


def lanes(output: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([LANES, "--output", output, *arguments], input=text, capture_output=True, text=True)


def made(output: Path, *arguments: str, text: str = "") -> Path:
    done = lanes(output, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return output


@dataclass
class Office:
    """The server of head office, with its files from packaging/nats/lanes."""

    directory: Path
    server: NatsServer
    tls: ssl.SSLContext

    def password(self, user: str) -> str:
        file = f"lanes/{user}/relay.password" if "." in user else f"{user}.password"
        return (self.directory / file).read_text().strip()

    @asynccontextmanager
    async def visit(self, user: str, password: str = "") -> AsyncIterator["Visitor"]:
        """Log in as a user."""
        visitor = Visitor(Client())
        login = {"user": user, "password": password or self.password(user), "tls": self.tls, "error_cb": visitor.heard}
        login["closed_cb"] = visitor.ended
        try:
            await visitor.client.connect(self.server.url, inbox_prefix=f"_I.{user}", **ONCE, **login)
            yield visitor
        finally:
            await visitor.client.close()

    @asynccontextmanager
    async def queue(self, user: str) -> AsyncIterator[StreamConsumer]:
        """Connect as `posd collect` does."""
        config = CollectConfig(
            servers=(self.server.url,), stream=STREAM, credentials_file=None, user=user,
            password_file=self.directory / f"{user}.password", certificate=None, private_key=None,
            ca_file=self.directory / "ca.pem", metrics_listen=None, dsn="",
        )  # fmt: skip
        async with connected(config) as queue:
            yield queue

    async def stored(self) -> dict[str, int]:
        """Return the number of messages of each subject."""
        async with self.server.client() as client:
            info = await client.jetstream().stream_info(STREAM, subjects_filter=">")
        return dict(info.state.subjects or {})


@dataclass
class Visitor:
    """A connection, with the server's errors."""

    client: Client
    errors: list[str] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def heard(self, error: Exception) -> None:
        self.errors.append(str(error))

    async def refused(self, attempt: Callable[[Client], Awaitable[Any]], answered: Awaitable[Any]) -> bool:
        """Try an operation. Return whether the server reported an error before it replied to the next request."""
        self.errors.clear()
        await attempt(self.client)
        await answered
        return ["permissions violation" in error for error in self.errors] == [True]

    async def ended(self) -> None:
        self.closed.set()

    async def last(self, subject: str) -> int:
        """Return the number of the last message of a subject."""
        try:
            found = await self.client.jetstream().get_last_msg(STREAM, subject, direct=True)
        except NotFoundError:
            return 0
        assert found.seq is not None
        return found.seq

    async def publish(self, subject: str, expected: int | None = None) -> None:
        """Publish a message if the last message has this number, as the relay does."""
        headers = None if expected is None else {EXPECTED: str(expected)}
        await self.client.jetstream().publish(subject, b"{}", headers=headers, stream=STREAM)


@asynccontextmanager
async def open_office(directory: Path, *names: str) -> AsyncIterator[Office]:
    """Run a server for the block, with some lanes, a stream and a consumer."""
    authority = trustme.CA()
    leaf = issued(directory, authority, "127.0.0.1")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    tls = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    server = NatsServer(directory, scheme="tls", config=directory / "nats.conf")
    arguments = ["--server", server.url, "--listen", f"127.0.0.1:{server.port}", "--store-dir", f"{directory}/stored"]
    arguments += ["--certificate", str(leaf.certificate), "--private-key", str(leaf.private_key)]
    made(directory, *arguments, "--ca-file", f"{directory}/ca.pem", *names)
    office = Office(directory, server, tls)
    server.options = {"user": "admin", "password": office.password("admin"), "tls": tls}
    async with server:
        async with office.queue("admin") as queue:
            await queue.make(replicas=1)
        yield office


@dataclass
class Delivered(Lane):
    """A lane with its files from head office instead of a test's configuration."""

    office: Path = Path()

    @property
    def config(self) -> Path:
        return self.office / "etc" / self.name / "config.toml"

    def configure(self) -> None:
        own, given = self.config.parent, self.office / "lanes" / f"m1.{self.name}"
        (own / "config.d").mkdir(parents=True, exist_ok=True)
        self.config.write_text(f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{self.daemon.directory}/run"\n')
        text = (given / "relay.toml").read_text()
        (own / "config.d" / "relay.toml").write_text(text.replace("/etc/posd", str(own)))
        for name in ("relay.password", "relay-ca.pem"):
            (own / name).write_bytes((given / name).read_bytes())
