"""The local API: one table of routes, and the app that serves it on the Unix sockets."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from posd.core.problems import Problem
from posd.core.transactions import encode
from posd.crashpoints import crash_point
from posd.web import bodies, parameters
from posd.web.waiting import HungUp

#: A start request is at most 16 KiB of free form and a few small fields.
MAX_BODY_BYTES = 256 * 1024
#: A till on the same machine sends its body at once. Seconds.
BODY_SECONDS = 10.0

log = structlog.get_logger("posd.local")

Handler = Callable[[Request], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """One call: method, path, handler, query parameters, and whether it is for admins only.

    One that starts something `judges_refusal` itself: an id that is known is answered before any other check.
    """

    method: str
    path: str
    handler: Handler
    query: frozenset[str] = frozenset()
    metadata_query: bool = False
    admin: bool = False
    judges_refusal: bool = False


def json_response(document: Any, status: int = 200) -> Response:
    """Return a JSON response with exact decimals."""
    return Response(encode(document), status, media_type="application/json")


def problem_response(problem: Problem) -> Response:
    """Return a problem response (RFC 9457)."""
    headers = {"retry-after": "1"} if problem.status == 503 else None
    return Response(encode(problem.document()), problem.status, headers, media_type="application/problem+json")


class LocalApp:
    """ASGI app of the local API."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        self._router = Router(
            [StarletteRoute(path, _endpoint(methods), methods=None) for path, methods in by_path.items()],
            redirect_slashes=False,
            default=_nowhere,
        )

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request; every failure becomes a problem response."""
        if scope["type"] != "http":
            return
        body, refusal = b"", None
        try:
            body = await bodies.read(receive, dict(scope["headers"]), MAX_BODY_BYTES, BODY_SECONDS)
        except bodies.Gone:
            return
        except bodies.TooSlow:
            refusal = Problem("request_timeout", f"the body was not complete within {BODY_SECONDS:g} s; send it again")
        except bodies.TooLarge:
            detail = f"the body is larger than {MAX_BODY_BYTES} bytes; make it smaller"
            refusal = Problem("payload_too_large", detail, limit_bytes=MAX_BODY_BYTES)
        scope["state"] |= {"body": body, "refusal": refusal or _wrong_type(scope, body)}
        if refusal is None:
            await self._dispatch(scope, receive, send)
        else:
            await _answer_early(self._dispatch, scope, receive, send)

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            return await self._router(scope, receive, watched)
        except HungUp:
            return None
        except Problem as problem:
            response = problem_response(problem)
        except HTTPException:
            response = problem_response(Problem("not_found", f"there is nothing at {scope['path']}"))
        except Exception:
            error_id = secrets.token_hex(8)
            log.exception("posd.internal_error", error_id=error_id, method=scope["method"])
            detail = (
                "posd failed in a way that it should not; the log has it under this error_id. If this call started "
                "something, repeat the same call with the same id"
            )
            response = problem_response(Problem("internal_error", detail, error_id=error_id))
        if not started:
            await response(scope, receive, send)
        return None


def _endpoint(methods: dict[str, Route]) -> Any:
    """Return the ASGI endpoint of one path: method, access, query, then the handler."""

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive, send)
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            answer = problem_response(
                Problem("method_not_allowed", f"{request.method} is not possible here; possible: {allowed}")
            )
            answer.headers["allow"] = allowed
            await answer(scope, receive, send)
            return
        if route.admin and not request.state.admin:
            raise Problem("forbidden", "this call is for operators: use the admin socket (group posd-admin)")
        refusal: Problem | None = request.state.refusal
        try:
            parameters.check_query(request, route.query, metadata=route.metadata_query)
        except Problem as problem:
            refusal = refusal or problem
        if refusal is not None and not route.judges_refusal:
            raise refusal
        request.state.refusal = refusal
        response = await route.handler(request)
        crash_point("till.before_answer")
        await response(scope, receive, send)
        crash_point("till.answered")

    return _AsgiEndpoint(endpoint)


class _AsgiEndpoint:
    """Starlette wraps functions; an object is taken as an ASGI app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


async def _nowhere(scope: Any, _receive: Any, _send: Any) -> None:
    raise Problem("not_found", f"there is nothing at {scope['path']}; the calls are listed in the documentation")


def _wrong_type(scope: Any, body: bytes) -> Problem | None:
    """Return the problem of a body that says that it is something else than JSON; one that says nothing is taken."""
    essence = dict(scope["headers"]).get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if not body or not essence or essence == b"application/json" or essence.endswith(b"+json"):
        return None
    return Problem("unsupported_media_type", "the body must be JSON; send it with content-type: application/json")


async def _answer_early(dispatch: Any, scope: Any, receive: Any, send: Any) -> None:
    """Answer a request whose body was not read to its end."""
    messages: list[Any] = []

    async def collect(message: Any) -> None:
        messages.append(message)

    await dispatch(scope, receive, collect)
    start, *rest = messages
    headers = tuple((name, value) for name, value in start["headers"] if name != b"content-length")
    body = b"".join(message.get("body", b"") for message in rest)
    await bodies.answer_early(receive, send, start["status"], body, headers)
