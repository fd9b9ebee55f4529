"""The app that serves the local API on the Unix sockets, as `posd.api.routes` has it."""

import secrets
from collections.abc import Awaitable
from typing import Any

import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from posd.base.crashpoints import crash_point
from posd.base.negotiation import Language
from posd.base.problems import Problem
from posd.calls import encoding, parameters
from posd.calls.encoding import encode
from posd.calls.long_poll import HungUp
from posd.calls.route import Call
from posd.httpd import bodies

#: A start request is at most 16 KiB of free form and a few small fields.
MAX_BODY_BYTES = 256 * 1024
#: The method of the calls that start something, and of no other.
STARTS = "PUT"
#: A till on the same machine sends its body at once. Seconds.
BODY_SECONDS = 10.0

log = structlog.get_logger("posd.local")


def json_response(document: Any, status: int = 200, language: Language | None = None) -> Response:
    """Return a JSON response; `language`, where it has texts for cashiers."""
    headers = {"content-language": language} if language else None
    return Response(encode(document), status, headers, media_type="application/json")


class NotAllowed(Problem):
    """A method that a path does not have; `allowed` are those that it has."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__("method_not_allowed", f"{method} is not possible here; possible: {allowed}")
        self.allowed = allowed


def problem_response(problem: Problem, *, starts: bool = False) -> Response:
    """Return a problem response (RFC 9457); `starts`: of a call that starts something."""
    headers = {"retry-after": "1"} if problem.status == 503 else {}
    if (seconds := problem.extra.get("retry_after_seconds")) is not None:
        headers["retry-after"] = str(seconds)
    if isinstance(problem, NotAllowed):
        headers["allow"] = problem.allowed
    return Response(
        encode(problem.document(starts=starts)), problem.status, headers, media_type="application/problem+json"
    )


def connection_refused(problem: Problem) -> bytes:
    """Return a problem response on the wire, for a connection that is closed after it.

    Its call was not read: it may be one that starts something.
    """
    response = problem_response(problem, starts=True)
    head = b"".join(b"%s: %s\r\n" % pair for pair in (*response.raw_headers, (b"connection", b"close")))
    return b"HTTP/1.1 %d \r\n%s\r\n%s" % (response.status_code, head, response.body)


class LocalApp:
    """ASGI app of the local API.

    It finds the call for a request by Starlette's path patterns, and stays out of the way of it: a till waits inside of
    everything between the connection and the call, for minutes, and there may be a thousand of them.
    """

    def __init__(self, calls: tuple[Call, ...], others: str = "the calls are listed in the documentation") -> None:
        """`others`: where what is not served here is to be found, in words."""
        self._others = others
        by_path: dict[str, dict[str, Call]] = {}
        for call in calls:
            by_path.setdefault(call.route.path, {})[call.route.method] = call
        self._calls = tuple((compile_path(path)[0], methods) for path, methods in by_path.items())

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request; every failure becomes a problem response."""
        if scope["type"] != "http":
            return
        body, refusal = b"", None
        try:
            body = await bodies.read(receive, scope, MAX_BODY_BYTES, BODY_SECONDS)
        except bodies.Gone:
            return
        except bodies.TooSlow:
            refusal = Problem("request_timeout", f"the body was not complete within {BODY_SECONDS:g} s; send it again")
        except bodies.TooLarge:
            detail = f"the body is larger than {MAX_BODY_BYTES} bytes; make it smaller"
            refusal = Problem("payload_too_large", detail, limit_bytes=MAX_BODY_BYTES)
        early = refusal is not None
        scope["state"] |= {"body": body, "refusal": refusal or _wrong_type(scope, body)}
        try:
            response = await self._call(scope)
            crash_point("till.before_answer")
        except HungUp:
            return
        except Problem as problem:
            await _answer(_refused(problem, scope), scope, receive, send, early=early)
        except Exception:  # noqa: BLE001 - the till needs an answer
            await _answer(_refused(_fault(scope), scope), scope, receive, send, early=early)
        else:
            await _answer(response, scope, receive, send, early=early)
            crash_point("till.answered")

    def _call(self, scope: Any) -> Awaitable[Response]:
        """Begin the call that a request asks for: method, access, query, then the handler. Raise Problem."""
        methods = self._methods(scope)
        method = scope["method"]
        call = methods.get("GET" if method == "HEAD" else method)
        if call is None:
            raise NotAllowed(method, ", ".join(sorted(methods)))
        state, route = scope["state"], call.route
        if route.admin and not state["admin"]:
            raise Problem("forbidden", "this call is for operators: use the admin socket (group posd-admin)")
        request = Request(scope)
        refusal: Problem | None = state["refusal"]
        texts = False
        try:
            state["query"] = query = parameters.read(request, (*route.query, parameters.AMOUNTS))
            texts = query.pop(parameters.AMOUNTS.name)
        except Problem as problem:
            refusal = refusal or problem
        encoding.choose(texts=texts, subjects=tuple(scope["path_params"].values()))
        if refusal is not None and not route.judges_refusal:
            raise refusal
        state["refusal"] = refusal
        return call.handler(request)

    def _methods(self, scope: Any) -> dict[str, Call]:
        """Return what can be called at the path of a request, and leave its parameters in the scope. Raise Problem."""
        for pattern, methods in self._calls:
            if (found := pattern.match(scope["path"])) is not None:
                scope["path_params"] = found.groupdict()
                return methods
        raise Problem("not_found", f"there is nothing at {scope['path']}; {self._others}")


def _refused(problem: Problem, scope: Any) -> Response:
    """Return the problem response to a request. Another method in place of PUT was meant to start something too."""
    wrong_method = isinstance(problem, NotAllowed) and STARTS in problem.allowed.split(", ")
    return problem_response(problem, starts=scope["method"] == STARTS or wrong_method)


def _wrong_type(scope: Any, body: bytes) -> Problem | None:
    """Return the problem of a body that says that it is something else than JSON; one that says nothing is taken."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        return Problem("unsupported_media_type", "the body must not be compressed; leave content-encoding out")
    essence = headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if not body or not essence or essence == b"application/json" or essence.endswith(b"+json"):
        return None
    return Problem("unsupported_media_type", "the body must be JSON; send it with content-type: application/json")


def _fault(scope: Any) -> Problem:
    """Log the fault that is being handled, and return what the till is told of it."""
    error_id = secrets.token_hex(8)
    log.exception("posd.internal_error", error_id=error_id, method=scope["method"])
    detail = (
        "posd failed in a way that it should not; the log has it under this error_id. If this call started "
        "something, repeat the same call with the same id"
    )
    return Problem("internal_error", detail, error_id=error_id)


async def _answer(response: Response, scope: Any, receive: Any, send: Any, *, early: bool) -> None:
    """Send a response, and tell who asked to know that the client was handed it; `early` before the body was read."""
    if early:
        await _answer_early(response, scope, receive, send)
        return
    state = scope["state"]
    try:
        await response(scope, receive, send)
        if (handed_over := state.get("handed_over")) and state["pieces"].delivered and scope["method"] != "HEAD":
            handed_over()
    except Exception:  # noqa: BLE001 - a stream that has begun: the client asks again, and it is told in the log
        _fault(scope)


async def _answer_early(response: Response, scope: Any, receive: Any, send: Any) -> None:
    messages: list[Any] = []

    async def collect(message: Any) -> None:
        messages.append(message)

    await response(scope, receive, collect)
    start, *rest = messages
    headers = tuple((name, value) for name, value in start["headers"] if name != b"content-length")
    body = b"".join(message.get("body", b"") for message in rest)
    await bodies.answer_early(receive, send, start["status"], body, headers)
