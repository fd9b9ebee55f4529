"""A lane's subject in head office's stream: its last message, and publishing behind it (NATS JetStream)."""

import asyncio
import logging
import random
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from posd.config.schema import NatsConfig
from posd.relay import credentials

#: Seconds for the whole of a connection, for one answer, and for the end.
CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 2.0
#: One server, tried once and once more: what the client would do by itself after that is done here.
ONCE: Mapping[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "connect_timeout": 10,
    "ping_interval": 20,
}
#: The fence: where this is not the number of the subject's last message, nothing is stored.
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
#: What the headers of a message take at most, in bytes: the fence, and the stream's name.
HEADER_BYTES = 256
#: JetStream's errors: another message is the last one; so it is, and the publish that made it is under way.
WRONG_LAST = frozenset({10071, 10164})
#: JetStream's error: the stream is full, and keeps what it has.
FULL = 10077
#: Before it, a stream of several replicas can store two messages with the same fence.
FENCE_HOLDS = (2, 9, 21)

T = TypeVar("T")

#: The client turns a plain connection into one with TLS, and asyncio complains of that at each end; nothing is wrong.
_NOISE = "returning true from eof_received() has no effect when using ssl"
logging.getLogger("asyncio").addFilter(lambda record: record.getMessage() != _NOISE)


class StreamAway(Exception):
    """The stream cannot be reached, or did not answer: whether a message was stored is not known. `todo` for people."""

    def __init__(self, detail: str, todo: str = "") -> None:
        super().__init__(detail)
        self.todo = todo


class NotLast(Exception):
    """Another message is the last one: nothing was stored."""


class TooLarge(Exception):
    """The server takes no message of that size: nothing was stored."""


class ServerTooOld(Exception):
    """The server is one on which the fence does not hold."""


class Stored(NamedTuple):
    """A message of the subject, None where there is none, and its number in the stream: what a publish expects."""

    sequence: int
    data: bytes | None


class Complaints:
    """What the server says beside its answers: that a permission is missing, for one, which no answer follows."""

    def __init__(self) -> None:
        self.first = ""
        self.come = asyncio.Event()

    async def hear(self, error: Exception) -> None:
        """Keep the first one."""
        self.first = self.first or str(error)
        self.come.set()


class _Client(Client):
    """The library's client takes a server's word that there is no TLS, and then sends the password as it is."""

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server is not None and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise NatsError("the server offers no TLS")
        return super()._connect_command()


class LaneStream:
    """One lane's subject, over one connection to one server, which is not made anew."""

    def __init__(self, client: Client, stream: str, subject: str, complaints: Complaints) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=ANSWER_SECONDS)
        self._stream = stream
        self._subject = subject
        self._complaints = complaints

    @property
    def server(self) -> str:
        """The server's address."""
        url = self._client.connected_url
        return f"{url.hostname}:{url.port}" if url is not None else ""

    @property
    def old(self) -> str | None:
        """See `old_version`."""
        return old_version(self._client)

    async def last(self) -> Stored:
        """Read the last message. Raise StreamAway."""
        try:
            found = await self._answer(self._jetstream.get_last_msg(self._stream, self._subject, direct=True))
        except NotFoundError:
            return Stored(0, None)
        except (NatsError, TimeoutError, OSError) as error:
            raise self._away("the last message cannot be read", error) from error
        return Stored(found.seq or 0, found.data or b"")

    async def publish(self, data: bytes, expected: int) -> int:
        """Publish behind the message of that number; return the new one's. Raise NotLast, TooLarge, StreamAway."""
        headers = {EXPECTED: str(expected)}
        if len(data) + HEADER_BYTES > self._client.max_payload:  # with the headers, which the client leaves out
            raise TooLarge
        try:
            stored = await self._answer(
                self._jetstream.publish(self._subject, data, headers=headers, stream=self._stream)
            )
        except APIError as error:
            if error.err_code in WRONG_LAST:
                raise NotLast(error.description) from error
            raise self._away("a message was not stored", error) from error
        except (NatsError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
            raise self._away("a message was not acknowledged", error) from error
        return stored.seq

    async def _answer(self, request: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer, no longer than until the server complains: then none comes."""
        answer, heard = asyncio.ensure_future(request), asyncio.ensure_future(self._complaints.come.wait())
        try:
            await asyncio.wait({answer, heard}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise NatsError
            return answer.result()
        finally:
            heard.cancel()
            answer.cancel()

    def _away(self, what: str, error: Exception) -> StreamAway:
        if isinstance(error, APIError):
            words = f"{error.description or error} ({error.err_code})"
            todo = "Make room in the stream, or let it hold more; the lane keeps its changes until then"
            return StreamAway(f"{what}: {words}", todo if error.err_code == FULL else "")
        words = self._complaints.first or str(error) or type(error).__name__
        if not self._client.is_connected:
            return StreamAway(f"{what}: {words}")
        return StreamAway(
            f"{what}: {words}",
            f"Look whether the stream {self._stream} exists and takes {self._subject} (at head office: posd collect "
            "--init), and whether this lane's credentials allow it (docs/fleet.md)",
        )


@asynccontextmanager
async def connected(config: NatsConfig, subject: str, inbox: str) -> AsyncIterator[LaneStream]:
    """Connect a lane to one of the servers for the block. Raise StreamAway, ServerTooOld."""
    async with client_of(config, subject, inbox) as (client, complaints):
        yield LaneStream(client, config.stream, subject, complaints)


@asynccontextmanager
async def client_of(config: NatsConfig, name: str, inbox: str) -> AsyncIterator[tuple[Client, Complaints]]:
    """Connect to one of the servers for the block. Raise StreamAway, ServerTooOld.

    A connection that broke is not made anew: what was written before could be sent after it.
    """
    try:
        options = login(config)  # anew each time: certificates are renewed
    except (OSError, ValueError) as error:
        raise StreamAway(f"cannot log in: {error}") from error
    errors: list[str] = []
    for url in random.sample(config.servers, len(config.servers)):
        client, complaints = _Client(), Complaints()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(url, error_cb=complaints.hear, inbox_prefix=inbox, name=name, **ONCE, **options)
            break
        except (NatsError, TimeoutError, OSError, ValueError) as error:
            await _end(client)
            errors.append(f"{url}: {complaints.first or str(error) or type(error).__name__}")
    else:
        raise StreamAway("; ".join(errors))
    try:
        check_version(client)
        yield client, complaints
    finally:
        await _end(client)


async def _end(client: Client) -> None:
    """Close a connection; after a TLS handshake that failed the client would wait for its end for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()


def login(config: NatsConfig) -> dict[str, Any]:
    """Return how to log in, as options of the client. Raise OSError, ValueError, of files that are missing or wrong."""
    options: dict[str, Any] = {}
    if config.credentials_file is not None:
        found = credentials.read(config.credentials_file)
        options = {"user_jwt_cb": found.jwt.encode, "signature_cb": found.sign}
    elif config.user and config.password_file is not None:
        options = {"user": config.user, "password": config.password_file.read_text(encoding="utf-8").strip()}
    if config.ca_file is not None or config.certificate is not None or any("tls:" in url for url in config.servers):
        context = ssl.create_default_context(cafile=str(config.ca_file) if config.ca_file is not None else None)
        if config.certificate is not None:
            context.load_cert_chain(config.certificate, config.private_key)
        options["tls"] = context
    return options


def check_version(client: Client) -> None:
    """Raise ServerTooOld for a server of a cluster on which the fence does not hold."""
    found = _version(client)
    if found < FENCE_HOLDS and client._server_info.get("cluster"):
        raise ServerTooOld(
            f"the NATS server is {'.'.join(map(str, found))} and part of a cluster: before 2.9.21 a stream of "
            "several replicas can store two messages for one place"
        )


def old_version(client: Client) -> str | None:
    """Return a server's version where it is good for a single replica alone, and for none that loses its power."""
    found = _version(client)
    return ".".join(map(str, found)) if found < FENCE_HOLDS else None


def _version(client: Client) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", str(client._server_info.get("version", "")))
    return tuple(int(part) for part in found.groups()) if found else (0,)
