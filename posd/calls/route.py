"""A row of the table: one call of the local API."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.calls.parameters import Parameter
from posd.calls.streams import CutOff, Ended

Handler = Callable[[Request], Awaitable[Response]]

JSON = "application/json"

#: Codes that every call can answer.
ALWAYS = (
    "invalid_request",
    "request_timeout",
    "payload_too_large",
    "unsupported_media_type",
    "limit_reached",
    "internal_error",
)


class Message(msgspec.Struct, frozen=True):
    """A kind of message in a stream of server-sent events: its `event`, the type of its data, what it says."""

    event: str
    data: Any
    words: str


#: How any stream can end, told by a message without an id (docs/streams.md).
ENDS = (
    Message("cut_off", CutOff, "nothing of it was taken for too long: connect again with the last id"),
    Message("draining", Ended, "posd stops: connect again with the last id"),
    Message("problem", Ended, "it cannot go on: connect again with the last id, and hear why where it still cannot"),
)


class Answer(msgspec.Struct, frozen=True):
    """What is answered: what it says, the type of its document, and its media type.

    `also`: another media type, of bytes. `stream`: what is in a stream, where the call offers one to who accepts
    `text/event-stream`.
    """

    words: str
    type: Any = None
    media: str = JSON
    also: str | None = None
    stream: tuple[Message, ...] = ()


class Route(msgspec.Struct, frozen=True):
    """One call: its method and path, its name (a method of the handlers has it), what it is for, and what it answers.

    `codes` are the problems that it can answer beside `ALWAYS`. A call for admins is served on the admin socket alone,
    one that is marked `feed` on the feed socket too.
    One that starts something `judges_refusal` itself: an id that is known is answered before any other check.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    codes: tuple[str, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = True
    admin: bool = False
    feed: bool = False
    judges_refusal: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """All codes that it can answer."""
        return (*ALWAYS, *(("forbidden",) if self.admin else ()), *self.codes)


class Call(msgspec.Struct, frozen=True):
    """A row and who handles it."""

    route: Route
    handler: Handler


def served(routes: Iterable[Route], *handlers: object) -> tuple[Call, ...]:
    """Return each row with the one method of the handlers that has its name."""
    calls = []
    for route in routes:
        (handler,) = (getattr(item, route.name) for item in handlers if hasattr(item, route.name))
        calls.append(Call(route, handler))
    return tuple(calls)
