"""The terminal's HTTP surface: the local-network paths of the profile, and what tests may look at."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from posd.simulator import wire
from posd.simulator.ledger import Ledger
from posd.simulator.terminal import Answer, Terminal

#: Bytes of a request body that are read. A charge with the till's 16 KiB of metadata is far below; a terminal is small.
MAX_BODY_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: how it is called, and the function that answers it."""

    method: str
    path: str
    answer: Callable[[Terminal, bytes], Answer]


#: Local network mode (spec 4.1 and the terminal profile). An operation that the terminal learns is one more row.
ROUTES = (
    Route("POST", "/terminal/v1/async/charge", lambda terminal, body: terminal.start(body)),
    Route("GET", "/terminal/v1/abort", lambda terminal, _: terminal.abort()),
)


def make_app(terminal: Terminal, ledger: Ledger, requests: list[str]) -> Starlette:
    """Make the ASGI app. The body of every POST is appended to `requests`, as text, before it is judged.

    `GET /simulator/ledger` answers the ledger as a JSON list, `GET /simulator/requests` that list of bodies: they are
    for tests and people, no terminal has them.
    """

    async def show_ledger(_: Request) -> Response:
        return _json(200, list(ledger))

    async def show_requests(_: Request) -> Response:
        return _json(200, requests)

    return Starlette(
        routes=[
            *(StarletteRoute(row.path, _endpoint(row, terminal, requests), methods=[row.method]) for row in ROUTES),
            StarletteRoute("/simulator/ledger", show_ledger),
            StarletteRoute("/simulator/requests", show_requests),
        ],
        exception_handlers={HTTPException: _http_error},
    )


def _endpoint(row: Route, terminal: Terminal, requests: list[str]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        body = await _read(request)
        if row.method == "POST":
            requests.append(body.decode("utf-8", "replace"))
        return _json(*row.answer(terminal, body))

    return endpoint


async def _read(request: Request) -> bytes:
    """Read the body; what is over the limit is read too, but not kept, so that the answer reaches its caller."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            body += chunk
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type alone
    return _json(error.status_code, {"code": f"HTTP_{error.status_code}", "message": error.detail}, error.headers)


def _json(status: int, body: object, headers: object = None) -> Response:
    extra = dict(headers) if isinstance(headers, dict) else None
    return Response(wire.encode(body), status, media_type="application/json", headers=extra)
