"""The terminal's HTTP surface: the paths of both access modes, and what tests may look at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from posd.simulator import wire
from posd.simulator.ledger import Ledger
from posd.simulator.operations import OPERATIONS, AccessMode, Operation
from posd.simulator.terminal import Answer, Terminal

#: Bytes of a request body that are read. A charge with the till's 16 KiB of metadata is far below; a terminal is small.
MAX_BODY_BYTES = 1_048_576
#: What each path stands below. A serial can have any character, a slash too, that the path of a URL brings encoded.
PREFIXES: Mapping[AccessMode, str] = {"local": "/terminal/v1/", "cloud": "/terminal/v1/{terminal_serial:path}/"}


@dataclass(frozen=True, slots=True)
class Call:
    """Something that the terminal answers.

    `ways` is method and path (below the prefix) in each access mode, `kept_in` the list that keeps the bodies.
    """

    ways: Mapping[AccessMode, tuple[str, str]]
    answer: Callable[[Terminal, bytes, AccessMode], Answer]
    kept_in: str | None = None


def _start(operation: Operation) -> Call:
    def answer(terminal: Terminal, body: bytes, access_mode: AccessMode) -> Answer:
        return terminal.start(body, operation, access_mode)

    way = ("POST", operation.path)
    return Call({"local": way, "cloud": way}, answer, "requests")


#: The operations, abort and search (spec 4.1 and the terminal profile).
CALLS = (
    *(_start(operation) for operation in OPERATIONS),
    Call({"local": ("GET", "abort"), "cloud": ("POST", "sync/abort")}, lambda terminal, _body, _mode: terminal.abort()),
    Call(
        {"local": ("POST", "transaction_search_online"), "cloud": ("POST", "sync/transaction_search_online")},
        lambda terminal, body, _mode: terminal.search(body),
        "searches",
    ),
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
            *(
                StarletteRoute(PREFIXES[mode] + path, _endpoint(call, mode, terminal, bodies), methods=[method])
                for call in CALLS
                for mode, (method, path) in call.ways.items()
            ),
            StarletteRoute("/simulator/ledger", show_ledger),
            StarletteRoute("/simulator/{name}", show_bodies),
        ],
        exception_handlers={HTTPException: _http_error},
    )


def _endpoint(
    call: Call, access_mode: AccessMode, terminal: Terminal, bodies: Mapping[str, list[str]]
) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        body = await _read(request)
        serial = request.path_params.get("terminal_serial", terminal.serial)
        if serial != terminal.serial:  # it never reaches this terminal, and leaves nothing in its books
            return _json(
                HTTPStatus.NOT_FOUND, {"code": "UNKNOWN_TERMINAL", "message": f"there is no terminal {serial}"}
            )
        if call.kept_in is not None:
            bodies[call.kept_in].append(body.decode("utf-8", "replace"))
        return _json(*call.answer(terminal, body, access_mode))

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
