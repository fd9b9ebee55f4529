"""What the control API answers whom: programs of this machine, and no page in a browser.

It answers only calls to a loopback name (a foreign name that was made to point here is refused), none that a page has
sent, and a POST only with the content type that no form can send.
"""

import ipaddress
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from posd.simulator import wire


class Problem(Exception):
    """What a caller is told: HTTP status, code and words."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        """Say it."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Guard:
    """Lets calls through that a developer's program can have made, and no page in a browser."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        problem = _why_not(scope.get("method", "GET"), Headers(scope=scope))  # a WebSocket has none; none is served
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await told(problem)(scope, receive, send)


def _why_not(method: str, headers: Headers) -> Problem | None:
    if not _names_loopback(headers.get("host", "")):
        return Problem(HTTPStatus.MISDIRECTED_REQUEST, "FOREIGN_HOST", "call it by 127.0.0.1, [::1] or localhost")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        return Problem(HTTPStatus.FORBIDDEN, "FOREIGN_PAGE", "no web page may call this: use a program, such as curl")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media_type != "application/json":
        return Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "NOT_JSON",
            "a POST needs content-type: application/json, also where its body is empty (curl --json '{}')",
        )
    return None


def _names_loopback(host: str) -> bool:
    """Whether the Host header of a call is a loopback address or localhost, with or without a port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(text: str) -> bool:
    """Whether a text is a loopback address."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def json_answer(value: object, status: int = 200) -> Response:
    """Answer JSON."""
    return Response(wire.encode(value), status, media_type="application/json")


def told(problem: Problem) -> Response:
    """Answer a problem: `code` and `message`."""
    return json_answer({"code": problem.code, "message": problem.message}, problem.status)
