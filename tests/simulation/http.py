"""HTTP/1.1 for terminals and tills. The code is small, so that most processor time goes to the daemon.

This module shares no code with the daemon. A response that is not HTTP is a fault of the daemon.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from ssl import SSLContext
from typing import Any

from tests.rig.https import read_head
from tests.rig.streams import Reply
from tests.simulation.network import End

#: Kind, id and data of a message of a stream.
Take = Callable[[str, str, bytes], None]


class _Protocol(asyncio.StreamReaderProtocol):
    """Protocol that closes the connection at the end of the peer's data."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        super().__init__(self.reader)

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def _message(reader: asyncio.StreamReader) -> tuple[list[str], bytes]:
    """Read a message with a fixed length. Return the words of the first line, and the body. Raise EOFError, OSError."""
    first, headers = read_head(await reader.readuntil(b"\r\n\r\n"))
    return first, await reader.readexactly(int(headers.get("content-length", 0)))


class Client:
    """One connection for several requests, one after the other. A request that is not bytes is sent as JSON."""

    def __init__(self, end: End) -> None:
        self.end, protocol = end, _Protocol()
        self._reader = protocol.reader
        end.attach(protocol)

    async def call(self, method: str, target: str, body: Any = b"", content_type: str = "application/json") -> Reply:
        """Send a request and return the response. Raise ConnectionResetError if it does not arrive completely."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = f"content-length: {len(body)}\r\ncontent-type: {content_type}\r\n" if body else ""
        self.end.write(f"{method} {target} HTTP/1.1\r\nhost: posd\r\n{length}\r\n".encode() + body)
        try:
            first, body = await _message(self._reader)
        except EOFError as error:
            raise ConnectionResetError("closed") from error
        return Reply(int(first[1]), {}, body)


async def call_once(connect: Awaitable[End], seconds: float, *request: Any) -> Reply | None:
    """Call on a new connection. Return None if no reply arrives within the seconds. `request`: arguments of a call."""
    try:
        async with asyncio.timeout(seconds):
            with closing(await connect) as end:
                return await Client(end).call(*request)
    except OSError:
        return None


class Stream(Client):
    """Reader of server-sent events from the pieces of an HTTP response. It stops at the outcome."""

    def __init__(self, end: End, take: Take) -> None:
        super().__init__(end)
        #: Status of the response, and kind of the last message.
        self._take, self.status, self.last = take, 0, ""
        #: Time at which the stream began, in seconds of the loop.
        self.since = math.inf

    async def run(self, target: str, headers: str = "") -> None:
        """Request a stream, and read until it ends or breaks."""
        head = f"GET {target} HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n{headers}\r\n"
        self.end.write(head.encode())
        with suppress(EOFError, OSError):
            self.status, text = int((await self._reader.readuntil(b"\r\n\r\n")).split(b" ")[1]), b""
            self.since = asyncio.get_running_loop().time()
            while self.status == 200 and self.last != "outcome":
                if not (size := int(await self._reader.readline() or b"0", 16)):
                    return
                *messages, text = (text + (await self._reader.readexactly(size + 2))[:-2]).split(b"\n\n")
                for message in messages:
                    said = dict(line.partition(b": ")[::2] for line in message.split(b"\n"))
                    if b"event" in said:
                        self.last = said[b"event"].decode()
                        self._take(self.last, said.get(b"id", b"").decode(), said[b"data"])


#: Function that gets the method, the target and the body of a request.
Handler = Callable[[str, str, bytes, "Server"], Coroutine[Any, Any, None]]


class Server:
    """Connection of a client to a host of the simulation. The host gets one request."""

    def __init__(self, end: End) -> None:
        self._accepted, self.protocol = end, _Protocol()
        self.end: asyncio.Transport = end

    async def serve(self, handler: Handler, tls: SSLContext | None = None) -> None:
        """Read the request and handle it."""
        try:
            if tls is None:
                self._accepted.attach(self.protocol)
            else:
                self.end, _ = await self._accepted.serve(lambda: self.protocol, ssl=tls)
            first, body = await _message(self.protocol.reader)
        except (EOFError, OSError):
            return
        await handler(first[0], first[1], body, self)

    def answer(self, status: int, body: bytes = b"", content_type: str = "application/json") -> None:
        """Send a response, and close."""
        kind = f"content-type: {content_type}\r\n" if body else ""
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{kind}connection: close\r\n\r\n"
        self.end.write(head.encode() + body)
        self.end.close()
