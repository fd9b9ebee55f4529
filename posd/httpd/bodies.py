"""Request bodies, read whole within a size and a time limit; and answers that are sent before a body was read.

Hypercorn leaks a connection where an answer is sent while more than a few chunks of the body wait unread, and never
closes a stalled body. So whoever answers early keeps taking chunks while the answer goes out, and closes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Self

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable

#: How long a refused sender is listened to while the answer goes out, in seconds.
DRAIN_SECONDS = 2.0


#: Of each body this much needs no room, in bytes: events have a few thousand, and with the till's metadata 20,000.
SMALL_BYTES = 24 * 1024

#: Bodies of one subject at one time that have such a share: one, and those whose terminal has given up waiting and come
#: again. Whatever more of them there are needs room for all of it.
FREE_BODIES_OF_SUBJECT = 8


class TooLarge(Exception):
    """The body is over the limit."""


class TooSlow(Exception):
    """The body did not come in time."""


class Gone(Exception):
    """The client hung up before the body was whole."""


class Full(Exception):
    """There is no room for more bodies now."""


class Room:
    """Bytes of bodies that are held at one time: in total, and of one subject.

    A terminal sends one event of a transaction at a time: who has got hold of one callback address cannot take the room
    of the others. The beginning of a subject's first bodies always has room.
    """

    def __init__(self, size: int, of_subject: int) -> None:
        self._size = size
        self._of_subject = of_subject
        self._held: Counter[str] = Counter()
        self._bodies: Counter[str] = Counter()

    def enter(self, subject: str) -> int:
        """Begin a body; return how many bytes of it need no room."""
        self._bodies[subject] += 1
        return SMALL_BYTES if self._bodies[subject] <= FREE_BODIES_OF_SUBJECT else 0

    def take(self, subject: str, count: int) -> None:
        """Take room for so many bytes. Raise Full."""
        if self._held.total() + count > self._size or self._held[subject] + count > self._of_subject:
            raise Full
        self._held[subject] += count

    def leave(self, subject: str, count: int) -> None:
        """End a body, and give its room back."""
        self._held[subject] -= count
        self._bodies[subject] -= 1
        if not self._bodies[subject]:
            del self._held[subject], self._bodies[subject]


class Held:
    """What one body holds of the room, as a context manager: it gives it back at the end."""

    def __init__(self, room: Room, subject: str) -> None:
        self._room = room
        self._subject = subject
        self._free = 0
        self._count = 0

    def take(self, count: int) -> None:
        """Take room for one more piece. Raise Full."""
        free = min(count, self._free)
        self._room.take(self._subject, count - free)
        self._free -= free
        self._count += count - free

    def __enter__(self) -> Self:
        self._free = self._room.enter(self._subject)
        return self

    def __exit__(self, *_: object) -> None:
        self._room.leave(self._subject, self._count)


async def read(
    receive: ASGIReceiveCallable,
    headers: Mapping[bytes, bytes],
    limit: int,
    seconds: float | None,
    take: Callable[[int], None] = lambda _count: None,
) -> bytes:
    """Return the whole body, at most `limit` bytes, within `seconds`, None where it is there.

    Raise TooLarge, TooSlow, Gone.

    `take` is called with the size of each piece before it is kept; what it raises ends the reading.
    """
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge
    body = bytearray()
    try:
        async with nullcontext() if seconds is None else asyncio.timeout(seconds):
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
    """Send an answer to a stranger; nothing more is read of what he sends, and the connection closes."""
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
