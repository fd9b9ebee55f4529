"""A connection to posd's socket, and what the sync and the async one share.

That is the socket, how an answer is read, and what an error of the HTTP client means.
"""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from posd.client import documents
from posd.client.calls import Call, Reply, StreamItem
from posd.client.errors import ForeignAnswer, PosdError, Problem, Unreachable, problem_of
from posd.client.plans import RETRY_SECONDS, Place, Plan, R

if TYPE_CHECKING:
    import httpx2

DEFAULT_SOCKET = "/run/posd/till.sock"
#: Variable of the environment that names another one.
SOCKET_VARIABLE = "POSD_SOCKET"

BASE_URL = "http://posd/v1"
PROBLEM_TYPE = "application/problem+json"  # RFC 9457
STREAM_TYPE = "text/event-stream"

#: seconds: a Unix socket connects at once; only a full backlog makes it wait.
CONNECT_SECONDS = 5.0
#: bytes: an event is at most 1 MiB on the wire (posd's own limit); JSON escapes can grow it.
MAX_STREAM_ITEM_BYTES = 8 * 1_048_576
#: characters of an answer that is not posd's, shown to a person.
FOREIGN_ANSWER_CHARACTERS = 200

#: why a socket cannot be connected to -> what a person can do about it.
REASONS: Mapping[int, str] = {
    errno.ENOENT: "there is no such socket: is posd running (posd run)?",
    errno.ECONNREFUSED: "nobody listens on it: posd is not running (posd run)",
    errno.EACCES: "this user may not open it: join the socket's group, or run the command as a user who is in it",
    errno.ENAMETOOLONG: "the path is too long for a Unix socket (107 bytes at most)",
}
#: Of these the next moment is no better.
LASTING = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTSOCK, errno.EPROTOTYPE, errno.ENOTDIR})


def socket_path(given: "str | os.PathLike[str] | None") -> str:
    """Return the socket that is meant: the one given, else POSD_SOCKET, else the default."""
    return os.fspath(given) if given is not None else os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


def probe(path: str) -> None:
    """Raise Unreachable where the socket cannot be connected to; never wait.

    Before each call: httpcore2 (2.16) leaks a Unix socket that its sync side could not connect, which a program that
    takes warnings for errors sees; a connection of our own costs microseconds.
    """
    with socket.socket(socket.AF_UNIX) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(path)
        except BlockingIOError:
            pass  # a process listens, and its backlog is full
        except OSError as error:
            # Python refuses a long path itself, without a number.
            number = error.errno or errno.ENAMETOOLONG
            reason = REASONS.get(number, error.strerror or str(error))
            raise Unreachable(path, reason, sent=False, lasting=number in LASTING) from error


def transport_options(path: str) -> dict[str, Any]:
    """Return the options of the HTTP client's transport.

    Each call has a connection of its own: none that is stale makes it doubtful whether a call was read, none is left
    behind by a wait that is given up, and a forked process shares none. As many at once as the till has waits.
    """
    import ssl

    import httpx2

    return {
        "uds": path,
        # An empty TLS context: no TLS is spoken on a Unix socket, and loading the system's CAs would cost 20 ms.
        "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "trust_env": False,
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    }


def accepting(language: str | None) -> dict[str, str]:
    """Return the headers that ask for what cashiers see in a language."""
    return {} if language is None else {"Accept-Language": language}


def request_options(call: Call) -> dict[str, Any]:
    """Return how the HTTP client is to make a call."""
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
    """Return how the HTTP client is to open an event stream, behind the item of that number or id."""
    import httpx2

    return {
        "url": path,
        "headers": {"Last-Event-ID": str(after)} if after else {},
        "timeout": httpx2.Timeout(CONNECT_SECONDS, read=None),
        "max_event_size": MAX_STREAM_ITEM_BYTES,
    }


def reply_of(socket: str, call: Call, response: "httpx2.Response") -> Reply:
    """Read an answer. Raise Problem or ForeignAnswer."""
    status, raw = response.status_code, response.content
    is_problem = response.headers.get("content-type", "").startswith(PROBLEM_TYPE)
    if is_problem or (status >= 400 and status not in call.also):
        raise problem_in(socket, status, raw)
    try:
        return Reply(status, documents.decode(raw), raw)
    except ValueError as error:
        raise foreign(socket, status, raw) from error


def is_stream(response: "httpx2.Response") -> bool:
    """Whether an answer is an event stream."""
    return response.status_code < 400 and response.headers.get("content-type", "").startswith(STREAM_TYPE)


def problem_in(socket: str, status: int, raw: bytes) -> Problem | ForeignAnswer:
    """Return what an answer that refuses says."""
    try:
        problem = problem_of(status, documents.decode(raw), raw)
    except ValueError:
        problem = None
    return problem or foreign(socket, status, raw)


def text_of(socket: str, response: "httpx2.Response") -> str:
    """Read an answer that is plain text. Raise Problem or ForeignAnswer."""
    if response.status_code >= 400:
        raise problem_in(socket, response.status_code, response.content)
    if not response.headers.get("content-type", "").startswith("text/plain"):
        raise foreign(socket, response.status_code, response.content)
    return response.text


def not_a_stream(socket: str, status: int, raw: bytes) -> Problem | ForeignAnswer:
    """Return what an answer that is no event stream says."""
    return problem_in(socket, status, raw) if status >= 400 else foreign(socket, status, raw)


def foreign(socket: str, status: int, raw: bytes) -> ForeignAnswer:
    """Return the error of an answer that is not in posd's words: something else may listen on the socket."""
    text = raw.decode("utf-8", "replace")[:FOREIGN_ANSWER_CHARACTERS]
    reason = f"the answer (HTTP {status}) is not posd's: {text!r}; check which program listens on the socket"
    return ForeignAnswer(socket, reason, status=status, raw=raw)


def misread(socket: str, error: ValueError, reply: Reply) -> ForeignAnswer:
    """Return the error of an answer that is JSON and not what the contract says."""
    reason = f"the answer (HTTP {reply.status}) is not as this client knows it: {error}; is it posd, and how new?"
    return ForeignAnswer(socket, reason, status=reply.status, raw=reply.raw)


def lost(path: str, error: "httpx2.TransportError", seconds: float | None = None) -> Unreachable:
    """Return what an error of the HTTP client means: whether the call can have been read."""
    import httpx2

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        _close_unconnected(error)
    unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    timed_out = isinstance(error, httpx2.ReadTimeout) and seconds is not None
    reason = f"it did not answer within {seconds:g} s" if timed_out else str(error) or "the connection was lost"
    return Unreachable(path, reason, sent=not unsent)


def _close_unconnected(error: BaseException) -> None:
    """Close the Unix socket that httpcore2 (2.16) leaves open where its sync side could not connect.

    `probe` finds nearly all that cannot be connected to; posd can still end between the two. The socket is held by the
    frames of the error alone, so that the collector would close it some time later, with a ResourceWarning.
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
    """The local API behind one Unix socket: makes the calls that plans decide on. Threads may share it."""

    def __init__(self, socket: str | os.PathLike[str], language: str | None = None) -> None:
        import httpx2

        self.socket = os.fspath(socket)
        transport = httpx2.HTTPTransport(**transport_options(self.socket))
        headers = accepting(language)
        self._http = httpx2.Client(transport=transport, base_url=BASE_URL, trust_env=False, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._http.close()

    def call(self, call: Call) -> Reply:
        """Make one call. Raise Problem or Unreachable."""
        return reply_of(self.socket, call, self._request(call))

    def text(self, call: Call) -> str:
        """Make a call that answers plain text. Raise Problem or Unreachable."""
        return text_of(self.socket, self._request(call))

    def pieces(self, call: Call) -> Iterator[bytes]:
        """Make a call and yield the bytes of its answer as they come. Raise Problem or Unreachable: they end early."""
        import httpx2

        probe(self.socket)
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
        probe(self.socket)
        try:
            return self._http.request(**request_options(call))
        except httpx2.TransportError as error:
            raise lost(self.socket, error, call.seconds) from error

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = self.call(call)
                except PosdError as error:
                    reply = None  # a ValueError that comes of this is the till's own, of its on_away
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

    def stream(self, path: str, after: int | str = 0) -> Iterator[StreamItem]:
        """Yield the server-sent events of `path` behind that number or id, until posd ends them.

        Raise Problem or Unreachable; a stream that breaks off raises Unreachable too.
        """
        import httpx2

        probe(self.socket)
        try:
            with self._http.sse(**stream_options(path, after)) as source:
                if not is_stream(source.response):
                    raise not_a_stream(self.socket, source.response.status_code, source.response.read())
                for item in source:
                    yield StreamItem(item.id, item.event, item.data)
        except httpx2.TransportError as error:
            raise lost(self.socket, error) from error

    def follow(
        self, place: Place[R], before: Callable[[], None] | None = None
    ) -> Iterator[tuple[StreamItem, R | None]]:
        """Yield the items of a stream for ever, over restarts of posd, each with what is new in it.

        `before` is called each time before the stream is opened; what it raises counts as the stream's.
        """
        while True:
            pause = RETRY_SECONDS  # posd has ended it: it stops
            try:
                if before is not None:
                    before()
                for item in self.stream(place.path, place.resume):
                    yield item, place.take(item)
            except PosdError as error:
                pause = place.broken(error)
            time.sleep(pause)
