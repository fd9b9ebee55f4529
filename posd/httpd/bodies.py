"""Reading of complete request bodies within limits of size and time, and sending of responses.

After an early response posd reads and drops the rest of the body, and then closes the connection.
"""

import asyncio
from collections.abc import Callable

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

#: Key of the body in the state of a request. The key is set if the whole body arrived before the app started.
WHOLE = "whole"
#: After an early response, posd reads and drops the rest of the body for at most this time (s).
DRAIN_SECONDS = 2.0


class BodyTooLarge(Exception):
    """Error for a body that is larger than its limit."""


async def read(
    receive: ASGIReceiveCallable,
    scope: HTTPScope,
    limit: int,
    seconds: float,
    take: Callable[[int], None] = lambda _count: None,
) -> bytes:
    """Return the whole body of at most `limit` bytes, if it arrives within `seconds`.

    Raise BodyTooLarge, TimeoutError, or ConnectionAbortedError if the client disconnects.

    `take` is called with the size of each piece before it is stored. An exception of `take` ends the read.
    """
    whole: bytes | None = scope["state"].get(WHOLE)
    if whole is not None:
        if len(whole) > limit:
            raise BodyTooLarge
        take(len(whole))
        return whole
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge
    body = bytearray()
    async with asyncio.timeout(seconds):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ConnectionAbortedError
            piece = message.get("body", b"")
            if len(body) + len(piece) > limit:
                raise BodyTooLarge
            take(len(piece))
            body += piece
            if not message.get("more_body", False):
                return bytes(body)


async def answer(
    send: ASGISendCallable, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers], "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def answer_early(
    receive: ASGIReceiveCallable,
    send: ASGISendCallable,
    status: int,
    body: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Send a response before the body is read to its end. Then the connection closes.

    The close waits until the client has read the response. Otherwise a client that still sends would receive a reset
    instead of the response.
    """
    draining = asyncio.create_task(_drain(receive))
    length = (b"content-length", str(len(body)).encode())
    close = (b"connection", b"close")
    start_headers = [length, *headers, close]
    try:
        await send({"type": "http.response.start", "status": status, "headers": start_headers, "trailers": False})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.wait({draining}, timeout=DRAIN_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        draining.cancel()


async def refuse(
    receive: ASGIReceiveCallable, send: ASGISendCallable, status: int, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a response without a body to an unknown sender, drop further data from it, and close the connection."""
    draining = asyncio.create_task(_drain(receive))
    try:
        await answer(send, status, headers=(*headers, (b"connection", b"close")))
    finally:
        draining.cancel()


async def _drain(receive: ASGIReceiveCallable) -> None:
    """Read and drop the body until it ends or the client disconnects."""
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
