"""ASGI app that serves the calls of the table `posd.api.routes` on the Unix sockets."""

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Self

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path

from posd.base.crashpoints import crash_point
from posd.base.fair_queue import FairQueue
from posd.base.json_types import ENCODER
from posd.base.problems import Problem
from posd.base.redaction import REDACTOR
from posd.base.text import Language
from posd.calls import parameters
from posd.calls.parameters import BoundRoute, Handler, Route
from posd.httpd import bodies
from posd.httpd.admission import SocketPeer
from posd.httpd.server import TRIM_SECONDS, give_memory_back
from posd.records.quotas import SenderQuotas

#: Maximum size of a body, in bytes. A start request has at most 16 KiB of metadata and options, and a few small fields.
MAX_BODY_BYTES = 256 * 1024
#: A body and a response up to these sizes (bytes) are allowed even if the budget of the sender is used up. A start with
#: a few fields is that small, and so are all responses except long pages.
SMALL_BODY_BYTES = 4 * 1024
SMALL_ANSWER_BYTES = 64 * 1024
CANNOT_ANSWER = "cannot answer this call"
#: Bytes of bodies and responses after which freed memory is returned to the system. That takes milliseconds.
TRIM_BYTES = 8 * 1024 * 1024
#: Maximum number of calls that run at a time. Calls that wait for a terminal or a change are not counted.
CALLS_AT_ONCE = 8
#: Seconds after which a running call is not counted. So a call that waits for the disk does not delay others for long.
TURN_SECONDS = 0.1
#: Maximum number of long pages that are read and encoded at a time. With two, one slow page does not stop the pages of
#: all other clients.
PAGES_AT_ONCE = 2
#: Bytes reserved for a page until its size is known. A page of 500 small payments needs three quarters of that.
PAGE_BYTES = 1024 * 1024
#: Number of bytes of a response that are written at a time.
PIECE_BYTES = 64 * 1024
#: Bytes reserved for a list that is sent in pieces: one batch, and the event that exceeds the size of a batch.
LIST_PIECE_BYTES = 128 * 1024
#: Method of all calls that start something, and of no other calls.
STARTS = "PUT"
#: Time limit for receiving a body, in seconds. A till on the same machine sends the body at once.
BODY_SECONDS = 10.0

log = structlog.get_logger("posd.local")


# Encoding of a response: without callback tokens, and with amounts as JSON numbers, or as texts (`amounts=text`).
#
# Each call is a task with its own encoding, in a context variable. So the thread that reads the database for a call
# uses the same encoding. Stored bytes, such as metadata and events, stay unchanged except for tokens.

_TEXTS = msgspec.json.Encoder(decimal_format="string")

#: Encoder of the present call's response, and ids whose callback tokens may be in the response.
_chosen: ContextVar[tuple[msgspec.json.Encoder, tuple[str, ...]]] = ContextVar("encoding", default=(ENCODER, ()))


def choose_encoding(*, texts: bool, subjects: tuple[str, ...] = ()) -> None:
    """Set the encoding of the present call's response. `subjects`: ids whose callback tokens may be in the response."""
    _chosen.set((_TEXTS if texts else ENCODER, subjects))


def encode(document: Any) -> bytes:
    """Encode a document of a response, with exact decimals and without callback tokens."""
    return redacted(_encode_whole(document))


def redacted(body: bytes, *subjects: str) -> bytes:
    """Return `body` without callback tokens. `subjects`: further ids whose tokens may be in `body`.

    Call this for parts in which `encode` finds no token, such as text that is then encoded as base64.
    """
    return REDACTOR.body(body, *_chosen.get()[1], *subjects)


def _encode_whole(document: Any) -> bytes:
    """Encode a document. The result may contain callback tokens, which `_finished` removes."""
    return _chosen.get()[0].encode(document)


# Responses.

#: Lock that is held while a thread encodes a long response. Several such threads at a time would block the event loop
#: too long.
_ENCODING = threading.Lock()


def json_response(document: Any, status: int = 200, language: Language | None = None) -> Response:
    """Return a JSON response, which is redacted when it is sent. `language`: language of the texts for cashiers."""
    return _json(_encode_whole(document), status, language)


async def page_response(document: Any, language: Language | None = None) -> Response:
    """Return a JSON response with a page or a report. The encoding of such a document can take a tenth of a second."""
    return _json(await asyncio.to_thread(_encode_alone, document), 200, language)


def _encode_alone(document: Any) -> bytes:
    with _ENCODING:
        return _encode_whole(document)


def _json(content: bytes, status: int, language: Language | None) -> Response:
    headers = {"content-language": language} if language else None
    return Response(content, status, headers, media_type="application/json")


class ClientGone(Exception):
    """Error if the client has disconnected, so that no response is needed."""


class NotAllowed(Problem):
    """Error for a method that a path does not have. `allowed`: the methods of the path."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__("method_not_allowed", f"{method} is not possible here; possible: {allowed}")
        self.allowed = allowed


def problem_response(problem: Problem, *, starts: bool = False) -> Response:
    """Return a problem response (RFC 9457). `starts`: whether the call starts something."""
    headers = {"retry-after": "1"} if problem.status == 503 else {}
    if (seconds := problem.extra.get("retry_after_seconds")) is not None:
        headers["retry-after"] = str(seconds)
    if isinstance(problem, NotAllowed):
        headers["allow"] = problem.allowed
    return Response(
        encode(problem.document(starts=starts)), problem.status, headers, media_type="application/problem+json"
    )


def connection_refused(problem: Problem) -> bytes:
    """Return a problem response in wire format, for a connection that is then closed.

    The call was not read, so it may have been a start.
    """
    response = problem_response(problem, starts=True)
    head = b"".join(b"%s: %s\r\n" % pair for pair in (*response.raw_headers, (b"connection", b"close")))
    return b"HTTP/1.1 %d \r\n%s\r\n%s" % (response.status_code, head, response.body)


class InFlight(msgspec.Struct, eq=False):
    """Part of a sender's budget that one request uses for its body and its unread response.

    The budget is returned at the end of the request. A small body and a small response are allowed even if the budget
    is used up.
    """

    budget: SenderQuotas
    sender: SocketPeer | None
    count: int = 0
    _free: int = SMALL_BODY_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.budget.give_back(self.sender, self.count)

    def take_body(self, count: int) -> None:
        """Reserve budget for a piece of the body. Raise Problem if the budget is used up."""
        free = min(count, self._free)
        self._free -= free
        if count > free:
            self.budget.require(self.sender, count - free, "the body of this call is not accepted")
            self._take(count - free)

    @contextmanager
    def page(self) -> Iterator[None]:
        """Reserve budget for a page while it is built. Raise Problem if the process has no budget left."""
        self.budget.require(self.sender, PAGE_BYTES, CANNOT_ANSWER, process_alone=True)
        self.budget.take(self.sender, PAGE_BYTES, process_alone=True)
        try:
            yield
        finally:
            self.budget.give_back(self.sender, PAGE_BYTES, process_alone=True)

    def take_answer(self, count: int) -> None:
        """Reserve budget for a response. Raise Problem if the budget is used up."""
        if count > SMALL_ANSWER_BYTES:
            self.budget.require(self.sender, count, CANNOT_ANSWER)
        self._take(count)

    def _take(self, count: int) -> None:
        self.budget.take(self.sender, count)
        self.count += count


class LocalApp:
    """ASGI app of the local API.

    The app finds the call by Starlette's path patterns. The app has no middleware, because a thousand tills may wait
    for minutes inside each layer.
    """

    def __init__(
        self,
        calls: tuple[BoundRoute, ...],
        in_flight: SenderQuotas,
        others: str = "the calls are listed in the documentation",
    ) -> None:
        """`others`: text for the problem of an unknown path, about where other calls are served."""
        self._in_flight = in_flight
        self._turns = FairQueue(CALLS_AT_ONCE, TURN_SECONDS)
        self._turns_of_pages = FairQueue(PAGES_AT_ONCE)  # without a time limit, so at most two pages are in memory
        self._passed = 0  # bytes of bodies and responses since memory was last returned
        self._others = others
        by_path: dict[str, dict[str, BoundRoute]] = {}
        for call in calls:
            by_path.setdefault(call[0].path, {})[call[0].method] = call
        self._calls = tuple((compile_path(path)[0], methods) for path, methods in by_path.items())

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Handle one request. Every failure becomes a problem response."""
        if scope["type"] != "http":
            return
        with InFlight(self._in_flight, scope["state"].get("sender")) as held:
            await self._serve(scope, receive, send, held)
        self._passed += held.count
        if self._passed >= TRIM_BYTES:
            self._passed = 0
            asyncio.get_running_loop().call_later(TRIM_SECONDS, give_memory_back)

    async def _serve(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable, held: InFlight
    ) -> None:
        body, refusal = b"", None
        try:
            body = await bodies.read(receive, scope, MAX_BODY_BYTES, BODY_SECONDS, held.take_body)
        except ConnectionAbortedError:
            return
        except Problem as problem:
            refusal = problem.with_traceback(None)
        except TimeoutError:
            refusal = Problem("request_timeout", f"the body was not complete within {BODY_SECONDS:g} s; send it again")
        except bodies.BodyTooLarge:
            detail = f"the body is larger than {MAX_BODY_BYTES} bytes; make it smaller"
            refusal = Problem("payload_too_large", detail, limit_bytes=MAX_BODY_BYTES)
        # If the budget is used up, the rest of the body is not read. Otherwise a till that sends incomplete bodies
        # would keep the event loop busy.
        early = refusal is not None and refusal.code != "limit_reached"
        scope["state"] |= {"body": body, "refusal": refusal or _wrong_type(scope, body)}
        try:
            response = await self._call(scope, held)
            crash_point("till.before_answer")
        except ClientGone:
            return
        # The traceback of a refusal is dropped, because a client may read the response late, or never.
        except Problem as problem:
            response = _refused(problem.with_traceback(None), scope)
        except Exception:  # noqa: BLE001 - the till needs a response
            response = _refused(_fault(scope), scope)
        await _answer(response, scope, receive, send, early=early)
        crash_point("till.answered")

    async def _call(self, scope: Any, held: InFlight) -> Response:
        """Run the call of a request. Raise Problem; raise ClientGone if the client of a start or a page has left.

        While posd does not run, a start can wait in the queue of the socket. Hours later it would ask another customer
        to pay. Client processes take turns. If a process has too many unread bytes, no page is read or encoded for it.
        """
        route, handler, request = self._find(scope)
        async with (self._turns_of_pages if route.pages else self._turns).turn(scope["state"].get("sender")):
            if (route.starts or route.pages) and scope["state"]["hung_up"]():
                if route.starts:
                    log.info("start.dropped", detail=scope["path"])
                raise ClientGone
            with held.page() if route.pages else nullcontext():
                response = await handler(request)
            return await _finished(response, held)

    def _find(self, scope: Any) -> tuple[Route, Handler, Request]:
        """Return the call of a request, after a check of its method, access and query. Raise Problem."""
        methods = self._methods(scope)
        method = scope["method"]
        call = methods.get("GET" if method == "HEAD" else method)
        if call is None:
            raise NotAllowed(method, ", ".join(sorted(methods)))
        (route, handler), state = call, scope["state"]
        if route.admin and not state["admin"]:
            raise Problem("forbidden", "this call is for operators: use the admin socket (group posd-admin)")
        request = Request(scope)
        state["headers"] = {parameter.name: request.headers.getlist(parameter.name) for parameter in route.headers}
        refusal: Problem | None = state["refusal"]
        texts = False
        try:
            state["query"] = query = parameters.read(request, route.parameters)
            texts = bool(query.pop(parameters.AMOUNTS.name))
        except Problem as problem:
            refusal = refusal or problem
        choose_encoding(texts=texts, subjects=tuple(scope["path_params"].values()))
        if refusal is not None and not route.starts:
            raise refusal
        state["refusal"] = refusal
        return route, handler, request

    def _methods(self, scope: Any) -> dict[str, BoundRoute]:
        """Return the calls at the path of a request, by method. Store the parameters of the path. Raise Problem."""
        for pattern, methods in self._calls:
            if (found := pattern.match(scope["path"])) is not None:
                scope["path_params"] = found.groupdict()
                return methods
        raise Problem("not_found", f"there is nothing at {scope['path']}; {self._others}")


def _refused(problem: Problem, scope: Any) -> Response:
    """Return the problem response to a request.

    A request with a wrong method may have been intended to start something.
    """
    wrong_method = isinstance(problem, NotAllowed) and STARTS in problem.allowed.split(", ")
    return problem_response(problem, starts=scope["method"] == STARTS or wrong_method)


def _wrong_type(scope: Any, body: bytes) -> Problem | None:
    """Return the problem for a body with a content type other than JSON. A body without a type is accepted."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        return Problem("unsupported_media_type", "the body must not be compressed; omit content-encoding")
    essence = headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if not body or not essence or essence == b"application/json" or essence.endswith(b"+json"):
        return None
    return Problem("unsupported_media_type", "the body must be JSON; send it with content-type: application/json")


def _fault(scope: Any) -> Problem:
    """Log the exception that is being handled, and return the problem for the till."""
    error_id = secrets.token_hex(8)
    log.exception("posd.internal_error", error_id=error_id, method=scope["method"])
    detail = (
        "posd failed; the log has the fault under this error_id. If this call started something, repeat the same "
        "call with the same id"
    )
    return Problem("internal_error", detail, error_id=error_id)


async def _finished(response: Response, held: InFlight) -> Response:
    """Count the bytes of a response as unread. Return the response without callback tokens.

    A list in pieces has no tokens, and counts as one piece. Other responses, such as a backup, are returned unchanged.
    """
    if type(response) is StreamingResponse:
        held.take_answer(LIST_PIECE_BYTES)
    if type(response) is Response:
        held.take_answer(len(response.body))
        response.body = await REDACTOR.body_in_steps(bytes(response.body), *_chosen.get()[1])
        response.headers["content-length"] = str(len(response.body))
    return response


async def _write(response: Response, scope: Any, receive: Any, send: Any) -> None:
    """Send a response in pieces. A piece is sent when the client has read most of the earlier pieces."""
    if type(response) is not Response:  # streamed
        await response(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    body, pieces = memoryview(response.body), scope["state"]["pieces"]
    for begin in range(0, len(body) or 1, PIECE_BYTES):
        if pieces.gone:
            return
        piece, end = body[begin : begin + PIECE_BYTES], begin + PIECE_BYTES
        await send({"type": "http.response.body", "body": piece, "more_body": end < len(body)})


async def _answer(response: Response, scope: Any, receive: Any, send: Any, *, early: bool) -> None:
    """Send a response. Call `handed_over` of the request's state if the client has received the response.

    `early`: whether the body of the request has not been read to its end.
    """
    if early:
        headers = tuple(pair for pair in response.raw_headers if pair[0] != b"content-length")
        await bodies.answer_early(receive, send, response.status_code, bytes(response.body), headers)
        return
    state = scope["state"]
    try:
        await _write(response, scope, receive, send)
        if (handed_over := state.get("handed_over")) and state["pieces"].delivered and scope["method"] != "HEAD":
            handed_over()
    except Exception:  # noqa: BLE001 - a stream that has begun; the client repeats the call, and the error is logged
        _fault(scope)
