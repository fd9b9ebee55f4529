"""Connection to posd's socket.

Both connections, sync and async, use the functions above the class `Connection`: for the socket, for the parsing of
responses, and for the HTTP client's errors.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from posd.client import documents
from posd.client.documents import ForeignAnswer, PosdError, Problem, Unreachable, problem_of
from posd.client.plans import RETRY_SECONDS, Call, Place, Plan, R, Reply

if TYPE_CHECKING:
    import httpx2

DEFAULT_SOCKET = "/run/posd/till.sock"
#: Environment variable that replaces the default socket.
SOCKET_VARIABLE = "POSD_SOCKET"

BASE_URL = "http://posd/v1"
PROBLEM_TYPE = "application/problem+json"  # RFC 9457
STREAM_TYPE = "text/event-stream"

#: Time-out of a connect, in seconds. A Unix socket connects at once, unless its backlog is full.
CONNECT_SECONDS = 5.0
#: Maximum size of a stream's item, in bytes. A terminal's event has at most 1 MiB (posd's own limit), and JSON escapes
#: can enlarge it.
MAX_STREAM_ITEM_BYTES = 8 * 1_048_576
#: Maximum number of characters of a foreign response that an error's message quotes.
FOREIGN_ANSWER_CHARACTERS = 200

#: errno of a failed connect -> text with the cause and what to do.
REASONS: Mapping[int, str] = {
    errno.ENOENT: "there is no such socket: is posd running (posd run)?",
    errno.ECONNREFUSED: "no process listens on it: posd is not running (posd run)",
    errno.EACCES: "this user may not open it: join the socket's group, or run the command as a user who is in it",
    errno.ENAMETOOLONG: "the path is too long for a Unix socket (107 bytes at most)",
}
#: Errors of a connect that seldom go away by waiting.
LASTING = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTSOCK, errno.EPROTOTYPE, errno.ENOTDIR})


def socket_path(given: "str | os.PathLike[str] | None") -> str:
    """Return the path of the socket: `given`, else POSD_SOCKET, else the default."""
    return os.fspath(given) if given is not None else os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


def probe(path: str) -> int:
    """Return the id of the listening process, or 0 if unknown. Raise Unreachable if no process listens. The call never
    blocks.

    The sync client probes before each call, because httpcore2 (2.16) leaks a Unix socket after a failed connect of its
    sync side. The leak would end a program that treats warnings as errors. A probe takes only microseconds.
    """
    with socket.socket(socket.AF_UNIX) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(path)
        except BlockingIOError:
            pass  # a process listens, but its backlog is full
        except OSError as error:
            # Python itself refuses a path that is too long, without an errno.
            number = error.errno or errno.ENAMETOOLONG
            reason = REASONS.get(number, error.strerror or str(error))
            raise Unreachable(path, reason, sent=False, lasting=number in LASTING) from error
        return int(struct.unpack("iII", attempt.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def transport_options(path: str, kept: int = 0) -> dict[str, Any]:
    """Return the options of the HTTP client's transport.

    By default each call has its own connection, without a limit on their number. So a call never uses a stale
    connection, an abandoned wait leaves no connection open, and forked processes share no connection.
    """
    import ssl

    import httpx2

    return {
        "uds": path,
        # An empty TLS context: a Unix socket has no TLS, and loading the system's CAs would take 20 ms.
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "trust_env": False,
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=kept),
    }


def client_options(language: str | None) -> dict[str, Any]:
    """Return the options of the HTTP client other than those of its transport.

    `language`: language of the texts for the cashier; None: posd's default.
    """
    headers = {} if language is None else {"Accept-Language": language}
    return {"base_url": BASE_URL, "trust_env": False, "follow_redirects": False, "headers": headers}


def request_options(call: Call) -> dict[str, Any]:
    """Return the HTTP client's arguments for a call."""
    import httpx2

    headers = {} if call.body is None else {"Content-Type": "application/json"}
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params) or None,
        "content": call.body,
        "headers": headers,
        "timeout": httpx2.Timeout(call.seconds, connect=CONNECT_SECONDS),
    }


def stream_options(path: str, after: int | str) -> dict[str, Any]:
    """Return the HTTP client's arguments for an event stream that begins after the number or id `after`."""
    import httpx2

    return {
        "url": path,
        "headers": {"Last-Event-ID": str(after)} if after else {},
        "timeout": httpx2.Timeout(CONNECT_SECONDS, read=None),
        "max_event_size": MAX_STREAM_ITEM_BYTES,
    }


def reply_of(socket: str, call: Call, response: "httpx2.Response") -> Reply:
    """Return the reply in a response. Raise Problem or ForeignAnswer."""
    status, raw = response.status_code, response.content
    is_problem = response.headers.get("content-type", "").startswith(PROBLEM_TYPE)
    if is_problem or (status >= 400 and status not in call.also):
        raise problem_in(socket, status, raw)
    try:
        return Reply(status, documents.decode(raw), raw)
    except ValueError as error:
        raise foreign(socket, status, raw) from error


def is_stream(response: "httpx2.Response") -> bool:
    """Return whether a response is an event stream."""
    return response.status_code < 400 and response.headers.get("content-type", "").startswith(STREAM_TYPE)


def problem_in(socket: str, status: int, raw: bytes) -> Problem | ForeignAnswer:
    """Return the error for a response that is a refusal, from its status and body."""
    try:
        problem = problem_of(status, documents.decode(raw), raw)
    except ValueError:
        problem = None
    return problem or foreign(socket, status, raw)


def text_of(socket: str, response: "httpx2.Response") -> str:
    """Return the plain text of a response. Raise Problem or ForeignAnswer."""
    if response.status_code >= 400:
        raise problem_in(socket, response.status_code, response.content)
    if not response.headers.get("content-type", "").startswith("text/plain"):
        raise foreign(socket, response.status_code, response.content)
    return response.text


def not_a_stream(socket: str, status: int, raw: bytes) -> Problem | ForeignAnswer:
    """Return the error for a response that is not an event stream."""
    return problem_in(socket, status, raw) if status >= 400 else foreign(socket, status, raw)


def foreign(socket: str, status: int, raw: bytes) -> ForeignAnswer:
    """Return the error for a response that is not in posd's format. Another program may listen on the socket."""
    text = raw.decode("utf-8", "replace")[:FOREIGN_ANSWER_CHARACTERS]
    reason = f"the answer (HTTP {status}) is not posd's: {text!r}; check which program listens on the socket"
    return ForeignAnswer(socket, reason, status=status, raw=raw)


def misread(socket: str, error: ValueError, reply: Reply) -> ForeignAnswer:
    """Return the error for a reply whose JSON does not follow the API."""
    reason = f"the answer (HTTP {reply.status}) is not as this client knows it: {error}; check the version of posd"
    return ForeignAnswer(socket, reason, status=reply.status, raw=reply.raw)


def lost(path: str, error: "httpx2.TransportError", seconds: float | None = None) -> Unreachable:
    """Return Unreachable for an error of the HTTP client.

    The member `sent` of the Unreachable says whether posd may have read the call.
    """
    import httpx2

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        _close_unconnected(error)
    unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    timed_out = isinstance(error, httpx2.ReadTimeout) and seconds is not None
    reason = f"it did not answer within {seconds:g} s" if timed_out else str(error) or "the connection was lost"
    return Unreachable(path, reason, sent=not unsent)


def _close_unconnected(error: BaseException) -> None:
    """Close the Unix socket that httpcore2 (2.16) leaves open after a failed connect of its sync side.

    `probe` detects nearly all failures, but posd can end between the probe and the call. Only the frames of the error's
    traceback reference the socket. Otherwise the garbage collector would close it later, with a ResourceWarning.
    """
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            held = trace.tb_frame.f_locals.get("sock")
            if isinstance(held, socket.socket):
                held.close()
            trace = trace.tb_next
        cause = cause.__cause__


T = TypeVar("T")


class Connection:
    """Connection to the local API behind one Unix socket.

    It makes the calls of plans. Threads may share it.
    """

    def __init__(self, socket: str | os.PathLike[str], language: str | None = None) -> None:
        import httpx2

        self.socket = os.fspath(socket)
        transport = httpx2.HTTPTransport(**transport_options(self.socket))
        self._http = httpx2.Client(transport=transport, **client_options(language))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP client."""
        self._http.close()

    def reach(self) -> None:
        """Raise Unreachable if the socket cannot be connected. It runs before each call. A subclass may check more."""
        probe(self.socket)

    def call(self, call: Call) -> Reply:
        """Make one call. Raise Problem or Unreachable."""
        return reply_of(self.socket, call, self._request(call))

    def text(self, call: Call) -> str:
        """Make a call that returns plain text. Raise Problem or Unreachable."""
        return text_of(self.socket, self._request(call))

    def pieces(self, call: Call) -> Iterator[bytes]:
        """Make a call, and yield the bytes of its response as they arrive.

        Raise Problem or Unreachable after an early end.
        """
        import httpx2

        self.reach()
        try:
            with self._http.stream(**request_options(call)) as response:
                if response.status_code >= 400:
                    raise problem_in(self.socket, response.status_code, response.read())
                yield from response.iter_raw()
        except httpx2.TransportError as error:
            raise lost(self.socket, error, call.seconds) from error

    def _request(self, call: Call) -> "httpx2.Response":
        import httpx2

        if call.pause:
            time.sleep(call.pause)
        self.reach()
        try:
            return self._http.request(**request_options(call))
        except httpx2.TransportError as error:
            raise lost(self.socket, error, call.seconds) from error

    def run(self, plan: Plan[T]) -> T:
        """Run a plan: make its calls, and return its result."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = self.call(call)
                except PosdError as error:
                    reply = None  # a ValueError from here on comes from the till's own on_away, not from a reply
                    call = plan.throw(error)
                else:
                    call = plan.send(reply)
        except StopIteration as done:
            value: T = done.value
            return value
        except ValueError as error:
            if reply is None:
                raise
            raise misread(self.socket, error, reply) from error

    def stream(self, path: str, after: int | str = 0) -> Iterator["httpx2.ServerSentEvent"]:
        """Yield the server-sent events of `path` that follow the number or id `after`, until posd ends the stream.

        Raise Problem or Unreachable. A broken stream also raises Unreachable.
        """
        import httpx2

        self.reach()
        try:
            with self._http.sse(**stream_options(path, after)) as source:
                if not is_stream(source.response):
                    raise not_a_stream(self.socket, source.response.status_code, source.response.read())
                yield from source
        except httpx2.TransportError as error:
            raise lost(self.socket, error) from error

    def follow(
        self, place: Place[R], before: Callable[[], None] | None = None
    ) -> Iterator[tuple["httpx2.ServerSentEvent", R | None]]:
        """Yield the items of a stream without end, across restarts of posd.

        For each item, yield its content if the content is new, else None.

        `before` is called each time before the stream is opened. A PosdError of `before` is handled like one of the
        stream.
        """
        while True:
            pause = RETRY_SECONDS  # posd ended the stream because it is stopping
            try:
                if before is not None:
                    before()
                for item in self.stream(place.path, place.resume):
                    yield item, place.take(item)
            except PosdError as error:
                pause = place.broken(error)
            time.sleep(pause)
