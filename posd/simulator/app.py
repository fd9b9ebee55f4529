"""The terminal's HTTP surface: the local-network paths of the profile, and what tests may look at."""

from collections.abc import Callable, Mapping
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
    """One operation: how it is called, the function that answers it, and the list that keeps its bodies."""

    method: str
    path: str
    answer: Callable[[Terminal, bytes], Answer]
    kept_in: str | None = None


#: Local network mode (spec 4.1 and the terminal profile). An operation that the terminal learns is one more row.
ROUTES = (
    Route("POST", "/terminal/v1/async/charge", lambda terminal, body: terminal.start(body), "requests"),
    Route("GET", "/terminal/v1/abort", lambda terminal, _: terminal.abort()),
    Route("POST", "/terminal/v1/transaction_search_online", lambda terminal, body: terminal.search(body), "searches"),
)


def make_app(terminal: Terminal, ledger: Ledger, bodies: Mapping[str, list[str]]) -> Starlette:
    """Make the ASGI app. Bodies are appended to the list that their route names, as text, before they are judged.

    `GET /simulator/ledger` answers the ledger as a JSON list, `GET /simulator/requests` the bodies of the starts and
    `GET /simulator/searches` those of the searches: they are for tests and people, no terminal has them.
    """

    async def show_ledger(_: Request) -> Response:
        return _json(200, list(ledger))

    async def show_bodies(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in bodies:
            raise HTTPException(404)
        return _json(200, bodies[name])

    return Starlette(
        routes=[
            *(StarletteRoute(row.path, _endpoint(row, terminal, bodies), methods=[row.method]) for row in ROUTES),
            StarletteRoute("/simulator/ledger", show_ledger),
            StarletteRoute("/simulator/{name}", show_bodies),
        ],
        exception_handlers={HTTPException: _http_error},
    )


def _endpoint(row: Route, terminal: Terminal, bodies: Mapping[str, list[str]]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        body = await _read(request)
        if row.kept_in is not None:
            bodies[row.kept_in].append(body.decode("utf-8", "replace"))
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
