"""On head office's server each lane can send only on its own subject. The server refuses other attempts. The server
and the lanes have the files from packaging/nats/lanes.
"""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from posd.collect.collector import StreamConsumer, connected
from posd.config.schema import CollectConfig
from posd.relay.stream import EXPECTED, ONCE
from tests.relay.lane import Lane, sent
from tests.relay.nats_server import STREAM, NatsServer
from tests.relay.office import made
from tests.rig.certificates import issued
from tests.rig.needs import needs
from tests.rig.shop import Shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("nats-server")]

#: Maximum wait for a reply of the server, in seconds.
PATIENCE_SECONDS = 30.0
#: Subject of a request for a last message.
GET = f"$JS.API.DIRECT.GET.{STREAM}"
OWN, OTHER = "posd.m1.greedy", "posd.m1.other"


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
        return found.seq or 0

    async def publish(self, subject: str, expected: int | None = None) -> None:
        """Publish a message if the last message has this number, as the relay does."""
        headers = None if expected is None else {EXPECTED: str(expected)}
        await self.client.jetstream().publish(subject, b"{}", headers=headers, stream=STREAM)


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
    async def visit(self, user: str, password: str = "") -> AsyncIterator[Visitor]:
        """Log in as a user."""
        visitor = Visitor(Client())
        login = {"user": user, "password": password or self.password(user), "tls": self.tls} | ONCE
        try:
            called = {"error_cb": visitor.heard, "closed_cb": visitor.ended}
            await visitor.client.connect(self.server.url, inbox_prefix=f"_I.{user}", **called, **login)
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
class Delivered(Lane):
    """A lane with its files from head office instead of a test's configuration."""

    office: Path = Path()

    @property
    def config(self) -> Path:
        return self.office / "etc" / self.name / "config.toml"

    def configure(self) -> None:
        own, given = self.config.parent, self.office / "lanes" / f"m1.{self.name}"
        shutil.copytree(given, own)
        (own / "config.d").mkdir()
        self.config.write_text(f'[merchant]\nid = "m1"\n[local_api]\ndirectory = "{self.daemon.directory}/run"\n')
        text = (given / "relay.toml").read_text().replace("/etc/posd", str(own))
        (own / "config.d" / "relay.toml").write_text(text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """Run a server with some lanes, a stream and a consumer."""
    directory = tmp_path_factory.mktemp("office")
    authority = trustme.CA()
    leaf = issued(directory, authority, "127.0.0.1")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    tls = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    server = NatsServer(directory, scheme="tls", config=directory / "nats.conf")
    arguments = ["--server", server.url, "--listen", f"127.0.0.1:{server.port}", "--store-dir", f"{directory}/stored"]
    arguments += ["--certificate", str(leaf.certificate), "--private-key", str(leaf.private_key)]
    made(directory, *arguments, "--ca-file", f"{directory}/ca.pem", "m1.a", "m1.b", "m1.other", "m1.greedy")
    office = Office(directory, server, tls)
    server.options = {"user": "admin", "password": office.password("admin"), "tls": tls}
    async with server:
        async with office.queue("admin") as queue:
            await queue.make(replicas=1)
        async with office.visit("m1.other") as other:
            await other.publish(OTHER, 0)
        yield office


@pytest.mark.slow
async def test_relays_send_with_the_files_made_for_their_lanes(office: Office, shop: Shop) -> None:
    for name in ("a", "b"):
        lane = Delivered(shop.daemon, office.server, name=name, office=office.directory)
        await lane.once()
        found = await lane.messages()
        assert sent(found) == await lane.feed()
        assert {message["lane"] for message in found} == {name}


def asked(subject: str, body: bytes = b"") -> Callable[[Client], Awaitable[None]]:
    """Return an attempt to send a request to the server, with a reply to the lane itself."""
    return lambda client: client.publish(subject, body, reply="_I.m1.greedy.answer")


def heard(subject: str) -> Callable[[Client], Awaitable[Any]]:
    """Return an attempt to receive messages on a subject."""
    return lambda client: client.subscribe(subject)


REFUSED = {
    "publish to another's subject": asked(OTHER, b"{}"),
    "publish below its own subject": asked(f"{OWN}.x", b"{}"),
    "publish to another merchant's subject": asked("posd.m2.greedy", b"{}"),
    "read the last message of another lane": asked(f"{GET}.{OTHER}"),
    "read any message by its number": asked(GET, b'{"seq": 1}'),
    "read the last message of another lane by JSON": asked(GET, b'{"last_by_subj": "%s"}' % OTHER.encode()),
    "read a message by the API": asked(f"$JS.API.STREAM.MSG.GET.{STREAM}", b'{"seq": 1}'),
    "list the streams": asked("$JS.API.STREAM.NAMES"),
    "read the account": asked("$JS.API.INFO"),
    "read the stream's data": asked(f"$JS.API.STREAM.INFO.{STREAM}"),
    "purge the stream": asked(f"$JS.API.STREAM.PURGE.{STREAM}"),
    "delete a message": asked(f"$JS.API.STREAM.MSG.DELETE.{STREAM}", b'{"seq": 1}'),
    "delete the stream": asked(f"$JS.API.STREAM.DELETE.{STREAM}"),
    "change the stream": asked(f"$JS.API.STREAM.UPDATE.{STREAM}", b'{"name": "POSD"}'),
    "create a stream": asked("$JS.API.STREAM.CREATE.MINE", b'{"name": "MINE", "subjects": ["posd.>"]}'),
    "create a consumer": asked(f"$JS.API.CONSUMER.CREATE.{STREAM}", b'{"stream_name": "POSD", "config": {}}'),
    "create a durable consumer": asked(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.mine"),
    "delete the consumer of collect": asked(f"$JS.API.CONSUMER.DELETE.{STREAM}.pg"),
    "fetch the messages of collect": asked(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.pg"),
    "acknowledge for collect": asked(f"$JS.ACK.{STREAM}.pg.1.1.1.1.0"),
    "reply to another lane": asked("_I.m1.other.x"),
    "reply to collect": asked("_I.collect.x"),
    "ping the system account": asked("$SYS.REQ.SERVER.PING"),
    "subscribe to everything": heard(">"),
    "subscribe to all lanes": heard("posd.>"),
    "subscribe to another's subject": heard(OTHER),
    "subscribe to its own subject": heard(OWN),
    "subscribe to another's replies": heard("_I.m1.other.>"),
    "subscribe to all lanes' replies": heard("_I.*.*.*"),
    "subscribe to the replies to collect": heard("_I.collect.>"),
    "subscribe to the default inbox": heard("_INBOX.>"),
    "subscribe to the API": heard("$JS.>"),
}


async def fence_of(office: Office) -> int:
    """Return the number of the other lane's last message."""
    async with office.visit("m1.other") as other:
        return await other.last(OTHER)


async def unharmed(office: Office, fence: int, subjects: dict[str, int]) -> None:
    """Check that the other lane can send after its own last message, and that the stream has nothing else."""
    assert await office.stored() | {OWN: 0} == subjects | {OWN: 0}
    async with office.visit("m1.other") as other:
        await other.publish(OTHER, fence)


async def test_a_lane_may_only_send_and_read_its_own_messages(office: Office) -> None:
    fence, subjects = await fence_of(office), await office.stored()
    async with office.visit("m1.greedy") as greedy:
        for name, attempt in REFUSED.items():
            assert await greedy.refused(attempt, greedy.last(OWN)), name
    await unharmed(office, fence, subjects)


#: Reply subjects that a lane can choose, because permissions do not limit them.
ANSWERS = (OTHER, f"{GET}.{OTHER}", f"$JS.API.STREAM.PURGE.{STREAM}", f"$JS.API.STREAM.DELETE.{STREAM}")


@pytest.mark.parametrize("subject", [OWN, f"{GET}.{OWN}"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_reply_directed_to_another_subject_is_stored_nowhere(subject: str, answer: str, office: Office) -> None:
    async with office.visit("m1.greedy") as greedy:
        await greedy.publish(OWN)
        fence, subjects = await fence_of(office), await office.stored()
        await greedy.client.publish(subject, b"" if subject.startswith("$") else b"{}", reply=answer)
        await greedy.publish(OWN)  # the stream has replied to the earlier requests
        assert not greedy.errors
    await unharmed(office, fence, subjects)


#: Further bodies of a request for the lane's last message.
BODIES = (
    {"seq": 1},
    {"last_by_subj": OTHER},
    {"seq": 1, "next_by_subj": OTHER},
    {"seq": 1, "next_by_subj": "posd.>", "batch": 10},
    {"multi_last": ["posd.>"], "batch": 10},
)


@pytest.mark.parametrize("body", BODIES, ids=json.dumps)
async def test_a_request_for_the_last_message_returns_no_foreign_message(body: dict[str, Any], office: Office) -> None:
    async with office.visit("m1.greedy") as greedy:
        await greedy.publish(OWN)
        answers = await greedy.client.subscribe("_I.m1.greedy.*")
        await greedy.client.publish(f"{GET}.{OWN}", json.dumps(body).encode(), reply="_I.m1.greedy.answer")
        await greedy.last(OWN)
        found = await answers.next_msg()
        assert (found.headers or {}).get("Nats-Subject", OWN) == OWN
        assert answers.pending_msgs == 0


HEADERS = (
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-Trace-Dest": OTHER},
    {"Nats-Trace-Dest": OTHER, "Nats-Trace-Only": "true"},
    {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": OTHER},
)


@pytest.mark.parametrize("headers", HEADERS, ids=json.dumps)
async def test_no_header_of_a_lane_reaches_another_lane(headers: dict[str, str], office: Office) -> None:
    async with office.visit("m1.greedy") as greedy:
        fence, subjects = await fence_of(office), await office.stored()
        await greedy.client.publish(OWN, b"{}", headers=headers, reply="_I.m1.greedy.answer")
        await greedy.publish(OWN)
    await unharmed(office, fence, subjects)


async def test_a_password_is_refused_with_the_name_of_another_lane(office: Office) -> None:
    with pytest.raises(NatsError, match="uthorization"):
        async with office.visit("m1.other", password=office.password("m1.greedy")):
            pass


async def read_all(office: Office, queue: StreamConsumer) -> None:
    """Receive and acknowledge every message in the queue."""
    taken = 0
    while messages := await queue.take(seconds=0.2):
        taken += len(messages)
        await queue.done(messages)
    assert taken == sum((await office.stored()).values()) > 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await queue.left():
            await queue.take(seconds=0.1)  # the text of the error names the subject


async def test_collect_reads_and_acknowledges_through_its_consumer(office: Office) -> None:
    async with office.queue("admin") as admin:
        await admin.begin_again()  # another test may have read some of the messages
    async with office.queue("collect") as queue:
        await read_all(office, queue)


async def test_the_administrator_can_make_collect_read_all_messages_again(office: Office) -> None:
    async with office.queue("admin") as queue:
        await queue.begin_again()
        assert await queue.left() == sum((await office.stored()).values())
        await read_all(office, queue)


#: Operations that a lane must not do, and that `posd collect` may do.
COLLECT_MAY = {"fetch the messages of collect", "acknowledge for collect", "subscribe to the replies to collect"}


async def test_collect_may_only_read_and_acknowledge(office: Office) -> None:
    async with office.visit("collect") as collect:
        jetstream = collect.client.jetstream()
        for name in REFUSED.keys() - COLLECT_MAY:
            assert await collect.refused(REFUSED[name], jetstream.consumer_info(STREAM, "pg")), name


async def logged_in(office: Office, user: str) -> None:
    """Wait until a user can log in."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(NatsError, OSError):
                async with office.visit(user):
                    return


async def test_a_reload_adds_and_removes_lanes_and_keeps_the_rest(office: Office) -> None:
    async with office.visit("m1.a") as stays, office.visit("m1.b") as goes:
        made(office.directory, "m1.c")
        made(office.directory, "--remove", "m1.b")
        office.server.reload()
        await logged_in(office, "m1.c")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await goes.closed.wait()
        assert not stays.closed.is_set()
        await stays.publish("posd.m1.a", await stays.last("posd.m1.a"))
        assert not stays.errors
