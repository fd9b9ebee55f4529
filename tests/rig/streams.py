"""The local API at the level of connections. Each call has its own connection. A test can close the connection at any
time. Also event streams.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.rig.https import read_head

#: Limit of a wait in seconds.
PATIENCE_SECONDS = 30.0
#: Characters that need no escape in a path with a query.
IN_PATH = "!$&'()*+,;=:/?@%[]~"


@dataclass(frozen=True)
class Reply:
    """One response. Header names are in lower case. `json` has exact decimals."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_float=Decimal)


@dataclass
class Connection:
    """One request in progress on its own connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: Whether the response has a body.
    body: bool = True

    def send(self, method: str, path: str, headers: str = "", content: bytes | None = None) -> None:
        """Send a request without waiting for the response. Each line of `headers` ends with CRLF."""
        length = "" if content is None else f"content-length: {len(content)}\r\n"
        head = f"{method} {quote(path, IN_PATH)} HTTP/1.1\r\nhost: posd\r\n{headers}{length}\r\n"
        self.writer.write(head.encode("latin-1") + (content or b""))

    async def reply(self) -> tuple[int, Any]:
        """Wait for the response. Return the status and the JSON body."""
        answer = await self.answer()
        return answer.status, answer.json

    async def answer(self, seconds: float = PATIENCE_SECONDS) -> Reply:
        """Wait for the complete response. Raise OSError if the response is incomplete."""
        try:
            async with asyncio.timeout(seconds):
                first, headers = read_head(await self.reader.readuntil(b"\r\n\r\n"))
                if self.body and "transfer-encoding" in headers:
                    body = b"".join([piece async for piece in pieces(self.reader)])
                else:
                    body = await self.reader.readexactly(int(headers["content-length"]) if self.body else 0)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError(f"no whole answer came: {error.partial!r}") from error
        return Reply(int(first[1]), headers, body)

    def hang_up(self) -> None:
        """Close the connection."""
        self.writer.transport.abort()


async def ask(
    socket: Path, path: str, headers: str = "", *, base: str = "/v1", method: str = "GET", content: bytes | None = None
) -> Connection:
    """Send a request for a path below `base` on a new connection, without waiting for the response."""
    connection = Connection(*await asyncio.open_unix_connection(str(socket)), method != "HEAD")
    connection.send(method, f"{base}{path}", headers, content)
    return connection


#: Limit of a call in seconds. A fault can delay the daemon.
CALL_SECONDS = 90.0


async def call(
    socket: Path,
    method: str,
    path: str,
    body: Any = None,
    *,
    base: str = "/v1",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Send a call on a new connection. A body that is not bytes is sent as JSON. Raise OSError if there is no
    response."""
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    sent = ({"content-type": "application/json"} if content is not None else {}) | dict(headers or {})
    fields = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    connection = await ask(socket, path, fields, base=base, method=method, content=content)
    try:
        return await connection.answer(CALL_SECONDS)
    finally:
        connection.hang_up()


@dataclass
class Message:
    """One server-sent event. `json` is the data with exact decimals. An id that is not a number is returned as text."""

    id: int | str | None
    event: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data, parse_float=Decimal)


@asynccontextmanager
async def stream(
    socket: Path, path: str, last_event_id: int | str | None = None, headers: str = ""
) -> AsyncIterator[AsyncIterator[Message]]:
    """Open an event stream with further header lines. The messages end when the daemon ends the stream."""
    resume = "" if last_event_id is None else f"last-event-id: {last_event_id}\r\n"
    connection = await ask(socket, path, f"accept: text/event-stream\r\n{resume}{headers}")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await connection.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert b"text/event-stream" in head
        yield messages(connection.reader)
    finally:
        connection.hang_up()


async def pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the chunks of a chunked body."""
    while True:
        async with asyncio.timeout(PATIENCE_SECONDS):
            size = int(await reader.readline() or b"0", 16)
            if size == 0:
                return
            piece = await reader.readexactly(size)
            await reader.readline()
        yield piece


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    """Read chunked server-sent events. Data lines are joined by line feeds, as in the standard."""
    text = ""
    async for piece in pieces(reader):
        *whole, text = (text + piece.decode()).split("\n\n")
        for block in whole:
            fields: dict[str, list[str]] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                fields.setdefault(name, []).append(value.removeprefix(" "))
            if "data" in fields:
                text_of_id = fields.get("id", [""])[0]
                identity = int(text_of_id) if text_of_id.isdigit() else text_of_id or None
                yield Message(identity, fields["event"][0], "\n".join(fields["data"]))


async def told(source: AsyncIterator[Message]) -> AsyncIterator[Message]:
    """Yield all messages except those with the payment's state."""
    async for message in source:
        if message.event != "state":
            yield message


async def collect(source: AsyncIterator[Message], until: Callable[[Message], bool]) -> list[Message]:
    """Read messages up to the first matching message. Return all messages read."""
    read = []
    async for message in source:
        read.append(message)
        if until(message):
            return read
    raise AssertionError(f"the stream ended before it came: {read}")
