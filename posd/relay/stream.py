"""Subject of a lane in head office's stream (NATS JetStream): read the last message, and publish after it."""

import asyncio
import base64
import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from posd.base import tls_contexts
from posd.config.schema import NatsConfig
from posd.relay.messages import OperatorNeeded

# Login with a NATS credentials file. It has a user's JWT, and the seed of the key that signs the server's nonce.
#
# The package `nkeys` is not used, because it needs a second, compiled implementation of Ed25519, which is as large as
# the relay.

#: Pattern of one part of the file, between two lines with dashes (NATS, Decentralized JWT).
_PARTS = re.compile(r"-{3,} *BEGIN ([A-Z ]+?) *-{3,}\s*(\S+)\s*-{3,} *END \1 *-{3,}")
#: A seed is base32 without padding: two bytes with the kind of key, the key, and two bytes of a checksum.
_KIND_BYTES, _CHECKSUM_BYTES = 2, 2


def read_credentials(path: Path) -> tuple[str, Callable[[str], bytes]]:
    """Read a credentials file.

    Return the user's token, and a function that signs the server's nonce in base64.
    """
    try:
        parts = dict(_PARTS.findall(path.read_text(encoding="ascii")))
        jwt, seed = parts["NATS USER JWT"], parts["USER NKEY SEED"]
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        key = Ed25519PrivateKey.from_private_bytes(raw[_KIND_BYTES:-_CHECKSUM_BYTES])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is not a file of NATS credentials: it needs a user's JWT and the seed of its key, as `nsc "
            "generate creds` writes them"
        ) from error
    return jwt, lambda nonce: base64.b64encode(key.sign(nonce.encode()))


#: Time-outs in seconds: of a connect, of one response, and of the close.
CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 2.0
#: Options for a connection to one server. The client retries once. All other retries are the relay's.
ONCE: Mapping[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "connect_timeout": 10,
    "ping_interval": 20,
}
#: Header with the fence. The server stores a message only if the value is the number of the subject's last message.
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
#: Maximum size of a message's headers, in bytes: the fence, and the stream's name.
HEADER_BYTES = 256
#: JetStream's errors if the fence does not match: because of another message, or of another publish that still runs.
WRONG_LAST = frozenset({10071, 10164})
#: JetStream's error if the stream is full and drops no old messages.
FULL = 10077
#: The fence works from this version of the server on. In earlier versions, a stream with several replicas can store two
#: messages with the same fence.
FENCE_HOLDS = (2, 9, 21)

T = TypeVar("T")

#: Harmless warning of asyncio at the end of each connection, because the client upgrades a plain connection to TLS.
_NOISE = "returning true from eof_received() has no effect when using ssl"
logging.getLogger("asyncio").addFilter(lambda record: record.getMessage() != _NOISE)


class StreamAway(Exception):
    """Error if the stream is unreachable or did not reply.

    It is unknown whether the stream has stored the message. `todo`: what to do.
    """

    def __init__(self, detail: str, todo: str = "") -> None:
        super().__init__(detail)
        self.todo = todo


class SubjectMoved(Exception):
    """Error if another message has become the last one. Nothing was stored."""


class NatsClient(Client):
    """Connection to one NATS server. A broken connection is not restored.

    If the address begins with `tls://`, this class refuses a server without TLS. The library's class would send the
    password unencrypted.
    """

    def __init__(self) -> None:
        super().__init__()
        #: First error that the server sends outside of a response, such as a missing permission. A call that causes
        #: such an error gets no response.
        self.server_error: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def record(self, error: Exception) -> None:
        """Record an error of the server."""
        if not self.server_error.done():
            self.server_error.set_result(str(error))

    def words_of(self, error: Exception) -> str:
        """Return the server's error if there is one, else the given error."""
        said = self.server_error.result() if self.server_error.done() else ""
        return said or str(error) or type(error).__name__

    def away(self, what: str, error: Exception, todo: str) -> StreamAway:
        """Return the error for a failed request.

        `what`: the failure, in words. `todo`: what to do if the server refuses the request.
        """
        if isinstance(error, APIError):
            full = "Make room in the stream, or raise its limit; the lane keeps its changes until then"
            words = f"{error.description or error} ({error.err_code})"
            return StreamAway(f"{what}: {words}", full if error.err_code == FULL else "")
        return StreamAway(f"{what}: {self.words_of(error)}", todo if self.is_connected else "")

    @property
    def address(self) -> str:
        """Address of the server."""
        url = self.connected_url
        return f"{url.hostname}:{url.port}" if url is not None else ""

    @property
    def old_version(self) -> str | None:
        """Version of the server if it is older than `FENCE_HOLDS`, else None.

        On such a server the fence works only with a single replica and without a power loss.
        """
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", str(self._server_info.get("version", "")))
        found = tuple(int(part) for part in match.groups()) if match else (0,)
        return ".".join(map(str, found)) if found < FENCE_HOLDS else None

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server is not None and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise NatsError("the server offers no TLS")
        return super()._connect_command()


class LaneStream:
    """Subject of one lane in the stream, over one connection."""

    def __init__(self, client: NatsClient, stream: str, subject: str) -> None:
        self.client = client
        self._jetstream = client.jetstream(timeout=ANSWER_SECONDS)
        self._stream = stream
        self._subject = subject
        self._todo = (
            f"Check whether the stream {stream} exists and takes {subject} (at head office: posd collect --init), and "
            "whether this lane's credentials allow it (docs/guides/fleet.md)"
        )

    async def last(self) -> tuple[int, bytes | None]:
        """Return the number and the data of the last message. Without a message return 0 and None.

        Raise StreamAway.
        """
        try:
            found = await self._answer(self._jetstream.get_last_msg(self._stream, self._subject, direct=True))
        except NotFoundError:
            return 0, None
        except (NatsError, TimeoutError, OSError) as error:
            raise self.client.away("the last message cannot be read", error, self._todo) from error
        return found.seq or 0, found.data or b""

    def fits(self, data: bytes) -> bool:
        """Return whether the server accepts a message of that size.

        The client's own check does not count the headers.
        """
        return len(data) + HEADER_BYTES <= self.client.max_payload

    async def publish(self, data: bytes, expected: int) -> int:
        """Publish a message if `expected` is the number of the last one. Return the new number.

        Raise SubjectMoved, StreamAway.
        """
        headers = {EXPECTED: str(expected)}
        try:
            stored = await self._answer(
                self._jetstream.publish(self._subject, data, headers=headers, stream=self._stream)
            )
        except APIError as error:
            if error.err_code in WRONG_LAST:
                raise SubjectMoved(error.description) from error
            raise self.client.away("a message was not stored", error, self._todo) from error
        except (NatsError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
            raise self.client.away("a message was not acknowledged", error, self._todo) from error
        return stored.seq

    async def _answer(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the response to a request.

        Raise NatsError at an error of the server, after which no response follows.
        """
        answer = asyncio.ensure_future(request)
        ends: set[asyncio.Future[Any]] = {answer, self.client.server_error}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise NatsError
            return answer.result()
        finally:
            answer.cancel()


@asynccontextmanager
async def connected(config: NatsConfig, subject: str, inbox: str) -> AsyncIterator[LaneStream]:
    """Connect to one of the servers during the block, and yield the lane's subject.

    Raise StreamAway, OperatorNeeded.
    """
    async with client_of(config, subject, inbox) as client:
        yield LaneStream(client, config.stream, subject)


@asynccontextmanager
async def client_of(config: NatsConfig, name: str, inbox: str) -> AsyncIterator[NatsClient]:
    """Connect to one of the servers during the block. Raise StreamAway.

    Raise OperatorNeeded if the server is in a cluster and older than `FENCE_HOLDS`. A broken connection is not
    restored, because the client could then send an old message late.
    """
    try:
        options = login(config)  # read the files for each connection, because certificates are renewed
    except (OSError, ValueError) as error:
        raise StreamAway(f"cannot log in: {error}") from error
    errors: list[str] = []
    for url in random.sample(config.servers, len(config.servers)):
        client = NatsClient()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(url, error_cb=client.record, inbox_prefix=inbox, name=name, **ONCE, **options)
            break
        except (NatsError, TimeoutError, OSError, ValueError) as error:
            await _end(client)
            errors.append(f"{url}: {client.words_of(error)}")
    else:
        raise StreamAway("; ".join(errors))
    try:
        if client.old_version is not None and client._server_info.get("cluster"):
            raise OperatorNeeded(
                f"the NATS server is {client.old_version} and part of a cluster: before 2.9.21 a stream of several "
                "replicas can store two messages for one place",
                "Upgrade the servers, or use a single server",
                is_setup=True,
            )
        yield client
    finally:
        await _end(client)


async def _end(client: Client) -> None:
    """Close a connection, with a time-out.

    Without it, the client would wait without limit after a failed TLS handshake.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()


def login(config: NatsConfig) -> dict[str, Any]:
    """Return the client's options for login and TLS. Raise OSError or ValueError for missing or wrong files."""
    options: dict[str, Any] = {}
    if config.credentials_file is not None:
        jwt, sign = read_credentials(config.credentials_file)
        options = {"user_jwt_cb": jwt.encode, "signature_cb": sign}
    elif config.user and config.password_file is not None:
        options = {"user": config.user, "password": config.password_file.read_text(encoding="utf-8").strip()}
    if config.ca_file is not None or config.certificate is not None or any("tls:" in url for url in config.servers):
        context = tls_contexts.client(config.ca_file, system=config.ca_file is None)
        if config.certificate is not None:
            context.load_cert_chain(config.certificate, config.private_key)
        options["tls"] = context
    return options
