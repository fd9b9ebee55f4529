"""Server-sent events: what is there, then live; resumable by `Last-Event-ID`; nothing is buffered beyond one read."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from posd.core.transactions import encode
from posd.store.changes import Hub
from posd.web import parameters

MEDIA_TYPE = "text/event-stream"
#: A comment this often keeps the connection visibly alive, in seconds.
HEARTBEAT_SECONDS = 15.0


class Message(msgspec.Struct, frozen=True):
    """One message: its id (to resume after), its name (one line), its data, and whether it ends the stream."""

    event: str
    data: object
    id: int | None = None
    last: bool = False

    def encode(self) -> bytes:
        """Return the message on the wire; data may span lines."""
        data = encode(self.data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = [] if self.id is None else [b"id: %d" % self.id]
        lines.append(b"event: " + self.event.encode())
        lines += [b"data: " + line for line in data.split(b"\n")]
        return b"\n".join(lines) + b"\n\n"


def wanted(request: Request) -> bool:
    """Whether the client asks for a stream."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def resume_after(request: Request) -> int | None:
    """Return the id of the last message that the client has. Raise Problem where it is none of ours."""
    text = request.headers.get("last-event-id")
    if text is None:
        return None
    try:
        return int(parameters.LAST_EVENT_ID.kind.read(text))
    except ValueError as error:
        raise parameters.invalid(parameters.LAST_EVENT_ID.name, str(error)) from error


def stream(
    hub: Hub, subject: str, after: int, more: Callable[[int], Awaitable[Sequence[Message]]]
) -> StreamingResponse:
    """Stream what `more(after)` gives, again after each change of the subject, until a message ends it."""

    async def lines() -> AsyncIterator[bytes]:
        place = after
        with hub.subscribe(subject) as woken:
            while True:
                woken.clear()
                messages = await more(place)
                for message in messages:
                    yield message.encode()
                    place = place if message.id is None else message.id
                    if message.last:
                        return
                if messages:
                    continue
                if hub.draining:
                    return
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await woken.wait()
                except TimeoutError:
                    yield b":\n\n"

    return StreamingResponse(lines(), media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})
