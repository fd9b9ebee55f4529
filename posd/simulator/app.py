"""HTTP API of the terminal: the paths of both access modes, and records for tests."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from posd.simulator.authentication import VerifiedCall
from posd.simulator.clock import Clock, cancel
from posd.simulator.messages import Answer, Edition, Refused, plain
from posd.simulator.network import HANG_UP
from posd.simulator.payment import Parts
from posd.simulator.printer import Printer
from posd.simulator.terminal import PaymentTerminal
from posd.simulator.wire import OPERATIONS, AccessMode, SimulatedOperation

#: Most bytes of a request body. A charge with the till's 16 KiB of metadata is far below.
MAX_BODY_BYTES = 1_048_576
#: Prefix of each path. A serial can have any character, also a slash, which a URL carries encoded.
PREFIXES: Mapping[AccessMode, str] = {"local": "/terminal/v1/", "cloud": "/terminal/v1/{terminal_serial:path}/"}
#: Path of a search at the acquirer.
SEARCH = "transaction_search_online"
#: Method and path (below the prefix) of a call in each access mode.
Ways = Mapping[AccessMode, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class IncomingCall:
    """Content of a call, and the terminal and the printer that reply to it."""

    terminal: PaymentTerminal
    printer: Printer
    body: bytes
    access_mode: AccessMode
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call of the API; `kept_in` is the list that stores the bodies."""

    ways: Mapping[Edition, Ways]
    answer: Callable[[IncomingCall], Answer]
    kept_in: str | None = None


def _start(operation: SimulatedOperation) -> AnsweredCall:
    ways = (("POST", operation.path),)
    both: Ways = {"local": ways, "cloud": ways}
    return AnsweredCall(
        {"classic": both, "2026": both},
        lambda asked: asked.terminal.start(asked.body, operation, asked.access_mode),
        "requests",
    )


#: Operations, abort, search and printing (terminal API, Calls to a terminal).
CALLS = (
    *(_start(operation) for operation in OPERATIONS),
    AnsweredCall(
        {
            "classic": {"local": (("GET", "abort"),), "cloud": (("POST", "sync/abort"),)},
            "2026": {"local": (("GET", "sync/abort"), ("GET", "async/abort")), "cloud": (("POST", "sync/abort"),)},
        },
        lambda asked: asked.terminal.abort(),
    ),
    AnsweredCall(
        {
            "classic": {"local": (("POST", SEARCH),), "cloud": (("POST", f"sync/{SEARCH}"),)},
            # The sources contradict each other on the prefix, so both are served.
            "2026": {"local": (("POST", SEARCH), ("POST", f"sync/{SEARCH}")), "cloud": (("POST", f"sync/{SEARCH}"),)},
        },
        lambda asked: asked.terminal.search(asked.body),
        "searches",
    ),
    AnsweredCall(
        {
            "classic": {"local": (("POST", "print"),), "cloud": (("POST", "sync/print/job"),)},
            "2026": {"local": (("POST", "print/job"),), "cloud": (("POST", "sync/print/job"),)},
        },
        lambda asked: asked.printer.create(asked.body, asked.access_mode),
        "print_requests",
    ),
    AnsweredCall(
        {
            "classic": {"local": (("GET", "print_job"),), "cloud": (("GET", "print_job"),)},
            "2026": {"local": (("GET", "print_job"),), "cloud": (("GET", "sync/print_job"),)},
        },
        lambda asked: asked.printer.status(asked.query.get("print_job_id")),
    ),
)


def make_app(terminal: PaymentTerminal, parts: Parts, bodies: Mapping[str, list[str]]) -> Starlette:
    """Make the ASGI app. Bodies are appended to the list of their route, as text, before they are checked.

    An encrypted body is appended decrypted; an unauthenticated one is not appended.

    For tests and operators only: `GET /simulator/ledger` returns the ledger as a JSON list, `GET /simulator/requests`
    the bodies of the starts, `GET /simulator/searches` those of the searches, `GET /simulator/print_requests` those of
    the print jobs, `GET /simulator/prints` the printed paper; `POST /simulator/paper` adds paper.
    """

    settings = parts.settings
    scheme = settings.scheme

    def verify(request: Request, sent: bytes) -> VerifiedCall:
        try:
            return scheme.verify(request.headers, sent, time.time() + settings.clock_offset)
        except Refused as refused:
            parts.ledger.add(
                "unauthorized",
                method=request.method,
                path=request.url.path,
                http_status=int(refused.status),
                reason=refused.message,
            )
            raise

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)  # noqa: S101 - registered for this type alone
        return response(parts.envelope.answer(error))

    async def refuse_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type alone
        code = f"HTTP_{error.status_code}"
        refused = response(parts.envelope.answer(Refused(error.status_code, code, error.detail)))
        refused.headers.update(error.headers or {})
        return refused

    def endpoint(call: AnsweredCall, access_mode: AccessMode) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            sent = await read_body(request, MAX_BODY_BYTES, "HTTP_413")
            serial = request.path_params.get("terminal_serial", settings.serial)
            if serial != settings.serial:  # it never reaches this terminal, and leaves no record
                raise Refused(HTTPStatus.NOT_FOUND, "UNKNOWN_TERMINAL", f"there is no terminal {serial}")
            verified = verify(request, sent)
            if call.kept_in is not None:
                bodies[call.kept_in].append(verified.body.decode("utf-8", "replace"))
            asked = IncomingCall(terminal, parts.workings.printer, verified.body, access_mode, request.query_params)
            return await _carry_out(verified.seal(call.answer(asked)), request, parts.clock)

        return answer

    async def show_ledger(_: Request) -> Response:
        return json_response(list(parts.ledger))

    async def show_prints(_: Request) -> Response:
        return json_response(parts.workings.printer.prints())

    async def put_paper_in(_: Request) -> Response:
        parts.workings.printer.put_paper_in()
        return Response(status_code=204)

    async def show_bodies(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in bodies:
            raise HTTPException(404)
        return json_response(bodies[name])

    return Starlette(
        routes=[
            *(
                StarletteRoute(PREFIXES[mode] + path, endpoint(call, mode), methods=[method])
                for call in CALLS
                for mode, ways in call.ways[settings.edition].items()
                for method, path in ways
            ),
            StarletteRoute("/simulator/ledger", show_ledger),
            StarletteRoute("/simulator/prints", show_prints),
            StarletteRoute("/simulator/paper", put_paper_in, methods=["POST"]),
            StarletteRoute("/simulator/{name}", show_bodies),
        ],
        exception_handlers={Refused: refuse, HTTPException: refuse_http},
    )


async def _carry_out(answer: Answer, request: Request, clock: Clock) -> Response:
    """Return the reply when it is due, also if the caller has disconnected."""
    if answer.waits:
        await _hold(answer, request, clock)
    if answer.fault == "lost":
        request.scope["state"][HANG_UP]()
        return Response()
    return response(answer, _Cut if answer.fault == "cut" else Response)


async def _hold(answer: Answer, request: Request, clock: Clock) -> None:
    """Wait until a reply is due or its caller is gone."""
    due = asyncio.create_task(_due(answer, clock))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((due, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel((due, gone))


async def _due(answer: Answer, clock: Clock) -> None:
    """Wait until a reply is due; without limit if there is none."""
    if answer.fault == "silent":
        await asyncio.Event().wait()
    if answer.awaited is not None:
        await answer.awaited
    await clock.sleep(answer.delay)


async def _gone(request: Request) -> None:
    """Wait until the caller has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Cut(Response):
    """Reply that breaks off in the middle of its body, with the connection."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body[: len(self.body) // 2], "more_body": True})
        scope["state"][HANG_UP]()


async def read_body(request: Request, limit: int, code: str) -> bytes:
    """Read a body. Raise Refused, with this code, if it exceeds the limit.

    The rest is read and dropped, so that the reply reaches the caller.
    """
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            body += chunk
    if size > limit:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, code, f"the body has more than {limit} bytes")
    return bytes(body)


def json_response(value: object) -> Response:
    """Return a 200 response with JSON."""
    return response(plain((HTTPStatus.OK, value)))


def response(answer: Answer, kind: type[Response] = Response) -> Response:
    """Return the HTTP response of a reply."""
    return kind(answer.body, answer.status, media_type=answer.content_type)


async def answer_refusal(_: Request, error: Exception) -> Response:
    """Return the response to a refused call."""
    assert isinstance(error, Refused)  # noqa: S101 - registered for this type alone
    return response(error.answer)
