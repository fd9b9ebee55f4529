"""Request bodies, read whole within a size and a time limit; and answers that are sent before a body was read.

An app that answers early takes what still comes of the body while the answer goes out, and the connection closes then.
"""

import asyncio
from collections.abc import Callable

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

#: Of the state of a request: the body, where all of it has come before the app starts.
WHOLE = "whole"
#: How long a refused sender is listened to while the answer goes out, in seconds.
DRAIN_SECONDS = 2.0


class TooLarge(Exception):
    """The body is over the limit."""


class TooSlow(Exception):
    """The body did not come in time."""


class Gone(Exception):
    """The client hung up before the body was whole."""


async def read(
    receive: ASGIReceiveCallable,
    scope: HTTPScope,
    limit: int,
    seconds: float,
    take: Callable[[int], None] = lambda _count: None,
) -> bytes:
    """Return the whole body, at most `limit` bytes, within `seconds`.

    Raise TooLarge, TooSlow, Gone.

    `take` is called with the size of each piece before it is kept; what it raises ends the reading.
    """
    whole: bytes | None = scope["state"].get(WHOLE)
    if whole is not None:
        if len(whole) > limit:
            raise TooLarge
        take(len(whole))
        return whole
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Gone
                piece = message.get("body", b"")
                if len(body) + len(piece) > limit:
                    raise TooLarge
                take(len(piece))
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise TooSlow from error


async def answer(
    send: ASGISendCallable, status: int, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a whole answer."""
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
    """Send an answer while the body was not read to its end; the connection closes after it.

    The close waits until the client has heard: one that is still sending would meet a reset instead of the answer.
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
    """Send an answer to a stranger; nothing more is read of what it sends, and the connection closes."""
    draining = asyncio.create_task(_drain(receive))
    try:
        await answer(send, status, headers=(*headers, (b"connection", b"close")))
    finally:
        draining.cancel()


async def _drain(receive: ASGIReceiveCallable) -> None:
    """Take what comes of the body until it ends or the client hangs up."""
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
