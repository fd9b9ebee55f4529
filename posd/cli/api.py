"""A thin synchronous client of the local API over its Unix socket.

Numbers stay exact: a JSON number with a fraction is read as Decimal, and a Decimal is written as a JSON number.
"""

import errno
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from posd.core.jsontext import number

if TYPE_CHECKING:
    import httpx2  # where it is used: it takes longer than all else, and a shell that completes calls nothing by it

#: seconds: a Unix socket connects at once; only a full backlog makes it wait.
CONNECT_SECONDS = 5.0
#: seconds: longer than posd's own call to a terminal takes by default (3 + 20). A call that is cut off here is
#: repeated by the caller where that is safe.
REPLY_SECONDS = 60.0
#: bytes: an event is at most 1 MiB on the wire (spec gives no limit, posd's default does); JSON escapes can grow it.
MAX_STREAM_ITEM_BYTES = 8 * 1_048_576
#: characters of an answer that is not posd's, shown to a person.
FOREIGN_ANSWER_CHARACTERS = 200

METRICS_URL = "http://posd/metrics"
PROBLEM_TYPE = "application/problem+json"  # RFC 9457

#: why a socket cannot be connected to -> what a person can do about it.
REASONS: Mapping[int, str] = {
    errno.ENOENT: "there is no such socket: is posd running (posd run)?",
    errno.ECONNREFUSED: "nobody listens on it: posd is not running (posd run)",
    errno.EACCES: "this user may not open it: join the socket's group, or run the command as a user who is in it",
    errno.ENAMETOOLONG: "the path is too long for a Unix socket (107 bytes at most)",
}

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decoder = msgspec.json.Decoder(float_hook=number)  # a terminal's event stands in it as it came: any number can


class Unreachable(Exception):
    """The daemon did not answer. `sent` is False where the call provably never reached it."""

    def __init__(self, socket: Path, reason: str, *, sent: bool) -> None:
        super().__init__(f"cannot reach posd on {socket}: {reason}")
        self.socket = socket
        self.reason = reason
        self.sent = sent


class Problem(Exception):
    """The daemon answered with a problem (RFC 9457). `extra` holds the fields of the code's own, `raw` the answer."""

    def __init__(self, status: int, code: str, detail: str, extra: Mapping[str, Any], raw: bytes) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.extra = extra
        self.raw = raw


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its HTTP status, its JSON decoded, and its bytes as they came."""

    status: int
    body: Any
    raw: bytes


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One server-sent event: its id (empty without one), its name, and its data as text."""

    id: str
    name: str
    data: str


def decode(raw: bytes | str) -> Any:
    """Decode JSON with exact numbers. Raise ValueError where it is not JSON."""
    return _decoder.decode(raw)


class Api:
    """The local API behind one Unix socket. Threads may share it."""

    def __init__(self, socket: Path) -> None:
        import httpx2

        self.socket = socket
        # An empty TLS context: no TLS is spoken on a Unix socket, and loading the system's CAs would cost 20 ms.
        transport = httpx2.HTTPTransport(
            uds=str(socket), verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False
        )
        self._http = httpx2.Client(
            transport=transport,
            base_url="http://posd/v1",
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        also: Collection[int] = (),
        seconds: float = REPLY_SECONDS,
    ) -> Reply:
        """GET `path` (below /v1). `also` names 4xx and 5xx that are answers here, where they do not bear a problem.

        Wait `seconds` for the answer. Raise Problem or Unreachable.
        """
        return self._call("GET", path, params=params, also=also, seconds=seconds)

    def put(self, path: str, body: object) -> Reply:
        """PUT `body` as JSON. Raise Problem or Unreachable."""
        return self._call("PUT", path, body=body)

    def post(self, path: str, body: object | None = None, *, seconds: float = REPLY_SECONDS) -> Reply:
        """POST `body` as JSON, or nothing; wait `seconds` for the answer. Raise Problem or Unreachable."""
        return self._call("POST", path, body=body, seconds=seconds)

    def stream(self, path: str, *, after: str = "") -> Iterator[StreamItem]:
        """Yield the server-sent events of `path`, those after the id `after` (Last-Event-ID), until posd ends them.

        Raise Problem or Unreachable; a stream that breaks off raises Unreachable too.
        """
        import httpx2

        headers = {"Last-Event-ID": after} if after else {}
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        probe(self.socket)
        try:
            with self._http.sse(path, headers=headers, timeout=timeout, max_event_size=MAX_STREAM_ITEM_BYTES) as source:
                if source.response.status_code >= 400:
                    raise _problem(source.response.status_code, source.response.read())
                for item in source:
                    yield StreamItem(item.id, item.event, item.data)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def receive(self, path: str, body: object, *, seconds: float) -> Iterator[bytes]:
        """POST `body` and yield the bytes of the answer as they come. Raise Problem or Unreachable: they end early."""
        import httpx2

        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        probe(self.socket)
        try:
            with self._http.stream(
                "POST", path, content=_encode(body), headers={"Content-Type": "application/json"}, timeout=timeout
            ) as response:
                if response.status_code >= 400:
                    raise _problem(response.status_code, response.read())
                yield from response.iter_raw()
        except httpx2.TransportError as error:
            raise self._unreachable(error, seconds) from error

    def metrics(self) -> str:
        """Get the metrics as Prometheus reads them; they stand outside of the versioned API."""
        response = self._request("GET", METRICS_URL, None, None, (), REPLY_SECONDS)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/plain"):
            raise _foreign(response.status_code, response.content)
        return response.text

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        also: Collection[int] = (),
        seconds: float = REPLY_SECONDS,
    ) -> Reply:
        response = self._request(method, path, params, body, also, seconds)
        raw = response.content
        try:
            return Reply(response.status_code, decode(raw), raw)
        except ValueError as error:
            raise _foreign(response.status_code, raw) from error

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object | None,
        also: Collection[int],
        seconds: float,
    ) -> "httpx2.Response":
        import httpx2

        content = None if body is None else _encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        probe(self.socket)
        try:
            response = self._http.request(
                method, path, params=params, content=content, headers=headers, timeout=timeout
            )
        except httpx2.TransportError as error:
            raise self._unreachable(error, seconds) from error
        is_problem = response.headers.get("content-type", "").startswith(PROBLEM_TYPE)
        if is_problem or (response.status_code >= 400 and response.status_code not in also):
            raise _problem(response.status_code, response.content)
        return response

    def _unreachable(self, error: "httpx2.TransportError", seconds: float = REPLY_SECONDS) -> Unreachable:
        import httpx2

        unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        timed_out = isinstance(error, httpx2.ReadTimeout)
        reason = f"it did not answer within {seconds:g} s" if timed_out else str(error)
        return Unreachable(self.socket, reason or "the connection was lost", sent=not unsent)


def probe(path: Path) -> None:
    """Raise Unreachable where the socket cannot be connected to.

    Before each call, because httpcore2 leaks a Unix socket that it could not connect, and hides the system's error
    behind three others; a connection of our own costs microseconds.
    """
    with socket.socket(socket.AF_UNIX) as attempt:
        attempt.settimeout(CONNECT_SECONDS)
        try:
            attempt.connect(str(path))
        except OSError as error:
            reason = REASONS.get(error.errno or 0, error.strerror or str(error))
            raise Unreachable(path, reason, sent=False) from error


def _problem(status: int, raw: bytes) -> Problem:
    try:
        body = decode(raw)
        extra = {k: v for k, v in body.items() if k not in {"type", "title", "status", "detail", "code"}}
        return Problem(status, str(body["code"]), str(body.get("detail") or body.get("title") or ""), extra, raw)
    except (ValueError, AttributeError, KeyError):
        return _foreign(status, raw)


def _foreign(status: int, raw: bytes) -> Problem:
    """An answer that is not in posd's words: something else may listen on the socket."""
    text = raw.decode("utf-8", "replace")[:FOREIGN_ANSWER_CHARACTERS]
    detail = f"the answer (HTTP {status}) is not posd's: {text!r}; check which program listens on the socket"
    return Problem(status, "", detail, {}, raw)
