"""A row of the table: one call of the local API."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.calls.parameters import AMOUNTS, LIMIT, Parameter

Handler = Callable[[Request], Awaitable[Response]]

JSON = "application/json"

#: Codes that every call can return.
ALWAYS = (
    "invalid_request",
    "request_timeout",
    "payload_too_large",
    "unsupported_media_type",
    "limit_reached",
    "internal_error",
)


class StreamMessage(msgspec.Struct, frozen=True):
    """Kind of message in a stream of server-sent events: its `event`, the type of its data, its meaning."""

    event: str
    data: Any
    words: str


class AnswerSpec(msgspec.Struct, frozen=True):
    """A response: its meaning, the type of its document, and its media type.

    `also`: another media type, of bytes. `stream`: messages of a stream, if the call offers one for
    `text/event-stream`.
    """

    words: str
    type: Any = None
    media: str = JSON
    also: str | None = None
    stream: tuple[StreamMessage, ...] = ()


class Route(msgspec.Struct, frozen=True, dict=True):
    """One call: method and path, name (that of the handler's method), purpose, and responses.

    `codes`: its problems besides `ALWAYS`. A call for admins is served only on the admin socket, one marked `feed` on
    the feed socket too. A call that starts something `judges_refusal` itself: a known id gets its reply before any
    other check.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: Mapping[int, AnswerSpec]
    codes: tuple[str, ...] = ()
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = True
    admin: bool = False
    feed: bool = False
    judges_refusal: bool = False

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its query parameters, with those of every call."""
        return (*self.query, AMOUNTS)

    @cached_property
    def pages(self) -> bool:
        """Whether its response can be long: pages of lists, and reports."""
        return LIMIT in self.query or self.path.endswith("/report")

    @property
    def problems(self) -> tuple[str, ...]:
        """All its codes."""
        return (*ALWAYS, *(("forbidden",) if self.admin else ()), *self.codes)


class BoundRoute(msgspec.Struct, frozen=True):
    """A row and its handler."""

    route: Route
    handler: Handler


def served(routes: Iterable[Route], *handlers: object) -> tuple[BoundRoute, ...]:
    """Return each row with the handler's method of its name."""
    calls = []
    for route in routes:
        (handler,) = (getattr(item, route.name) for item in handlers if hasattr(item, route.name))
        calls.append(BoundRoute(route, handler))
    return tuple(calls)
