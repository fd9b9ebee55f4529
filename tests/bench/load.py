"""Load: requests that are ready as bytes, over connections that are kept, one after the other on each."""

import asyncio
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

#: Longest that a load may take, in seconds: a stuck one ends.
STUCK_SECONDS = 600.0


@dataclass
class Load:
    """What came of it: how long all of it took, each answer's time in seconds, in order, and the statuses."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def all_are(self, status: int) -> "Load":
        """Return it; raise where an answer had another status: then it was something else that was measured."""
        if set(self.statuses) != {status}:
            raise RuntimeError(f"expected {status} alone: {dict(self.statuses)}")
        return self


class _Lane:
    """One connection: sends the next request when the answer to the one before is whole.

    Plain sockets and no event loop: what load costs is taken from the processors that the servers need.
    """

    def __init__(self, connection: ssl.SSLSocket, requests: Sequence[bytes]) -> None:
        self.connection = connection
        self._requests = iter(requests)
        self._received = b""
        self._sent_at = 0.0

    def go_on(self) -> bool:
        """Send the next request; tell whether there was one."""
        request = next(self._requests, None)
        if request is None:
            return False
        self.connection.setblocking(True)
        self._sent_at = time.perf_counter()  # before it: a server on the same core may answer before `sendall` returns
        self.connection.sendall(request)
        self.connection.setblocking(False)
        return True

    def read(self, load: Load) -> bool:
        """Take what has come; tell whether the answer is whole. Raise ConnectionError."""
        try:
            data = self.connection.recv(65_536)
        except ssl.SSLWantReadError:
            return False
        if not data:
            raise ConnectionError("closed before all was answered")
        self._received += data
        if not whole(self._received):
            return False
        load.latencies.append(time.perf_counter() - self._sent_at)
        load.statuses[int(self._received[9:12])] += 1
        self._received = b""
        return True


def whole(answer: bytes) -> bool:
    """Whether all of an answer is there."""
    head, end, body = answer.partition(b"\r\n\r\n")
    _, found, rest = head.lower().partition(b"content-length:")
    return bool(end) and len(body) >= (int(rest.split(b"\r\n", 1)[0]) if found else 0)


async def send(
    port: int, context: ssl.SSLContext, lanes: Sequence[Sequence[bytes]], each: Callable[[], None] | None = None
) -> Load:
    """Send the requests of each lane one after the other, all lanes at once; connections are made before it begins.

    `each` is called after each answer, before the next request of that connection; its time is no answer's.
    """
    return await asyncio.to_thread(_send, port, context, lanes, each)


def _send(
    port: int, context: ssl.SSLContext, lanes: Sequence[Sequence[bytes]], each: Callable[[], None] | None
) -> Load:
    load = Load()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        made = []
        for requests in lanes:
            plain = socket.create_connection(("127.0.0.1", port), STUCK_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.append(_Lane(stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1")), requests))
        begun = time.perf_counter()
        for lane in made:
            if lane.go_on():
                selector.register(lane.connection, selectors.EVENT_READ, lane)
        while selector.get_map():
            ready = selector.select(STUCK_SECONDS)
            if not ready:
                raise TimeoutError("no answer came")
            for key, _ in ready:
                if key.data.read(load):
                    if each is not None:
                        each()
                    if not key.data.go_on():
                        selector.unregister(key.fileobj)
        load.seconds = time.perf_counter() - begun
    return load


def post(path: str, body: bytes) -> bytes:
    """Return the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def trusting(ca: object) -> ssl.SSLContext:
    """Return a client's context that trusts one CA file."""
    return ssl.create_default_context(cafile=str(ca))
