"""HTTP API of the terminal, with the paths of both access modes."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from posd.simulator.authentication import encrypt, verify
from posd.simulator.clock import Clock, cancel
from posd.simulator.messages import Answer, plain, refusal
from posd.simulator.network import HANG_UP
from posd.simulator.terminal import PaymentTerminal
from posd.simulator.wire import OPERATIONS, AccessMode, Edition, Refused, SettingsError, SimulatedOperation

#: Maximum size of a request body, in bytes. A charge with the till's 16 KiB of metadata is much smaller.
MAX_BODY_BYTES = 1_048_576
#: Prefix of each path. A serial can contain any character, even a slash, which is percent-encoded in a URL.
PREFIXES: Mapping[AccessMode, str] = {"local": "/terminal/v1/", "cloud": "/terminal/v1/{terminal_serial:path}/"}
#: Calls other than starts: name, edition, access mode, method, path below the prefix. For a local search of edition
#: 2026 the vendor's documents give two paths, so both are served.
_PATHS = """
abort     classic local GET  abort
abort     classic cloud POST sync/abort
abort     2026    local GET  sync/abort
abort     2026    local GET  async/abort
abort     2026    cloud POST sync/abort
search    classic local POST transaction_search_online
search    classic cloud POST sync/transaction_search_online
search    2026    local POST transaction_search_online
search    2026    local POST sync/transaction_search_online
search    2026    cloud POST sync/transaction_search_online
print     classic local POST print
print     classic cloud POST sync/print/job
print     2026    local POST print/job
print     2026    cloud POST sync/print/job
print_job classic local GET  print_job
print_job classic cloud GET  print_job
print_job 2026    local GET  print_job
print_job 2026    cloud GET  sync/print_job
"""
#: Function that returns the reply to a call, from the body, the access mode and the query of the call.
_Handler = Callable[[bytes, AccessMode, Mapping[str, str]], Answer]


def _paths(edition: Edition) -> Iterator[tuple[str, AccessMode, str, str]]:
    """Yield name, access mode, method and path of each call (terminal API, Calls to a terminal)."""
    for operation in OPERATIONS:
        for mode in PREFIXES:
            yield operation.name, mode, "POST", operation.path
    for line in _PATHS.split("\n")[1:-1]:
        name, of, access, method, path = line.split()
        if of == edition:
            yield name, "local" if access == "local" else "cloud", method, path


def _handlers(terminal: PaymentTerminal) -> Mapping[str, _Handler]:
    """Return the handler of each call."""

    def start(operation: SimulatedOperation) -> _Handler:
        return lambda body, mode, _query: terminal.start(body, operation, mode)

    printer = terminal.switchboard.printer
    return {
        **{operation.name: start(operation) for operation in OPERATIONS},
        "abort": lambda _body, _mode, _query: terminal.abort(),
        "search": lambda body, _mode, _query: terminal.search(body),
        "print": lambda body, mode, _query: printer.create(body, mode),
        "print_job": lambda _body, _mode, query: printer.status(query.get("print_job_id")),
    }


def make_app(terminal: PaymentTerminal) -> Starlette:
    """Make the ASGI app.

    The app refuses unauthenticated calls, and passes the decrypted body of the others to the terminal.
    """
    settings = terminal.settings

    def opened(request: Request, sent: bytes) -> tuple[bytes, bytes | None]:
        try:
            return verify(settings, request.headers, sent, time.time() + settings.clock_offset)
        except Refused as refused:
            terminal.ledger.add(
                "unauthorized",
                method=request.method,
                path=request.url.path,
                http_status=int(refused.status),
                reason=refused.message,
            )
            raise

    def endpoint(handler: _Handler, mode: AccessMode) -> Callable[[Request], object]:
        async def answer(request: Request) -> ASGIApp:
            sent = await read_body(request, MAX_BODY_BYTES, "HTTP_413")
            serial = request.path_params.get("terminal_serial", settings.serial)
            if serial != settings.serial:  # such a call would not reach this terminal, so the ledger omits it
                raise Refused(HTTPStatus.NOT_FOUND, "UNKNOWN_TERMINAL", f"there is no terminal {serial}")
            body, key = opened(request, sent)
            answered = handler(body, mode, request.query_params)
            return await _carry_out(_sealed(answered, key), request, terminal.clock)

        return answer

    handlers = _handlers(terminal)
    routes = [
        Route(PREFIXES[mode] + path, endpoint(handlers[name], mode), methods=[method])
        for name, mode, method, path in _paths(settings.edition)
    ]
    return served(routes, lambda refused: plain(refusal(settings, refused)))


def served(routes: Sequence[Route], refuse: Callable[[Refused], Answer]) -> Starlette:
    """Make an app. `refuse` returns the reply to a refused call, also if no route matches.

    A SettingsError becomes a refusal with status 409.
    """

    async def respond(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            refused = response(refuse(Refused(error.status_code, f"HTTP_{error.status_code}", error.detail)))
            refused.headers.update(error.headers or {})
            return refused
        conflict = Refused(HTTPStatus.CONFLICT, "NOT_POSSIBLE", str(error))
        return response(refuse(error if isinstance(error, Refused) else conflict))

    return Starlette(routes=routes, exception_handlers=dict.fromkeys((Refused, SettingsError, HTTPException), respond))


def _sealed(answer: Answer, key: bytes | None) -> Answer:
    """Return the encrypted reply.

    Only the terminal's firmware encrypts, and its replies are JSON. Any other reply stays unencrypted.
    """
    if key is None or answer.content_type != "application/json" or not answer.body:
        return answer
    return replace(answer, body=encrypt(key, answer.body))


async def _carry_out(answer: Answer, request: Request, clock: Clock) -> ASGIApp:
    """Return the reply when it is due, even if the caller has disconnected."""
    if answer.waits:
        await _hold(answer, request, clock)
    if answer.fault == "lost":
        request.scope["state"][HANG_UP]()
        return Response()
    return _cut(answer) if answer.fault == "cut" else response(answer)


async def _hold(answer: Answer, request: Request, clock: Clock) -> None:
    """Wait until a reply is due or its caller is gone."""
    due = asyncio.create_task(_due(answer, clock))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((due, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel((due, gone))


async def _due(answer: Answer, clock: Clock) -> None:
    """Wait until a reply is due. If there is none, wait without limit."""
    if answer.fault == "silent":
        await asyncio.Event().wait()
    if answer.awaited is not None:
        await answer.awaited
    await clock.sleep(answer.delay)


async def _gone(request: Request) -> None:
    """Wait until the caller has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _cut(answer: Answer) -> ASGIApp:
    """Return a response that sends half of its body and then aborts the connection."""
    whole = response(answer)

    async def send_half(scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": whole.status_code, "headers": whole.raw_headers})
        await send({"type": "http.response.body", "body": whole.body[: len(whole.body) // 2], "more_body": True})
        scope["state"][HANG_UP]()

    return send_half


async def read_body(request: Request, limit: int, code: str) -> bytes:
    """Read a body. Raise Refused (413) with `code` if the body has more than `limit` bytes.

    The bytes over the limit are read and dropped, so that the reply reaches the caller.
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


def response(answer: Answer) -> Response:
    """Return the HTTP response of a reply."""
    return Response(answer.body, answer.status, media_type=answer.content_type)
