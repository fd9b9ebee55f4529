"""The load's own process: `python -m tests.bench.sender PORT CA CONNECTIONS [PID DATABASE]`.

It connects, says so, and then runs one job after the other: requests in chains, of which each request is sent after
the one before it is answered. A free connection takes the next request of the chain that has waited longest, so the
requests of all chains are spread over all connections. Plain non-blocking sockets and epoll: what the load computes is
taken from the processors that the servers need. With PID and DATABASE it looks at that server between two requests.
"""

import gc
import pickle
import select
import socket
import ssl
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.tail import Moment, Observer

#: Longest that an answer may take, in seconds: a stuck load ends.
STUCK_SECONDS = 600.0
#: Before each message between the processes: how long it is.
LENGTH = struct.Struct("=Q")

Chain = Sequence[bytes]


@dataclass
class Load:
    """What one job found, in seconds: all of it, what the load itself computed, and each answer's time, in order."""

    seconds: float = 0.0
    computed: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    moments: list[Moment] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds

    def all_are(self, status: int) -> "Load":
        """Return it; raise where an answer had another status: then it was something else that was measured."""
        if set(self.statuses) != {status}:
            raise RuntimeError(f"expected {status} alone: {dict(self.statuses)}")
        return self


class _Connection:
    """One connection, and the chain whose request it has sent."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self.stream = stream
        self.chain = 0
        self._received = b""
        self._sent_at = 0.0

    def send(self, chain: int, request: bytes) -> None:
        """Send a request; the socket's buffer has room for it."""
        self.chain = chain
        self._sent_at = time.perf_counter()  # before it: the server may answer before `send` returns
        if self.stream.send(request) != len(request):
            raise BlockingIOError("a request did not fit into the socket's buffer")

    def read(self, load: Load) -> bool:
        """Take what has come; tell whether the answer is whole. Raise ConnectionError."""
        try:
            data = self.stream.recv(65_536)
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
    if not end:
        return False
    _, found, rest = head.lower().partition(b"content-length:")
    return not found or len(body) >= int(rest.split(b"\r\n", 1)[0])


def run(connections: Sequence[_Connection], chains: Sequence[Chain], look: Callable[[], None] | None) -> Load:
    """Send all requests. `look` is called between two requests; its time is no answer's."""
    load, sent = Load(), 0
    requests = [iter(chain) for chain in chains]
    free, waiting = deque(connections), deque(range(len(chains)))
    with select.epoll() as poll:
        by_descriptor = {item.stream.fileno(): item for item in connections}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        begun, computed = time.perf_counter(), time.process_time()
        while True:
            while free and waiting:
                chain = waiting.popleft()
                request = next(requests[chain], None)
                if request is not None:
                    free.popleft().send(chain, request)
                    sent += 1
            if sent == len(load.latencies):
                break
            ready = poll.poll(STUCK_SECONDS)
            if not ready:
                raise TimeoutError("no answer came")
            for descriptor, _ in ready:
                connection = by_descriptor[descriptor]
                if connection.read(load):
                    if look is not None:
                        look()
                    free.append(connection)
                    waiting.append(connection.chain)
        load.seconds, load.computed = time.perf_counter() - begun, time.process_time() - computed
    return load


def connect(port: int, ca: str, count: int) -> list[_Connection]:
    """Return so many connections, after their handshakes."""
    context = ssl.create_default_context(cafile=ca)
    made = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", port), STUCK_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = context.wrap_socket(plain, server_hostname="127.0.0.1")
        stream.setblocking(False)
        made.append(_Connection(stream))
    return made


def main(port: str, ca: str, connections: str, *watched: str) -> None:
    """Run the jobs that come over standard input until its end."""
    made = connect(int(port), ca, int(connections))
    _tell(None)
    gc.disable()
    while head := sys.stdin.buffer.read(LENGTH.size):
        chains = pickle.loads(sys.stdin.buffer.read(*LENGTH.unpack(head)))
        observer = Observer(int(watched[0]), Path(watched[1])) if watched else None
        if observer is not None:
            observer.look()
        load = run(made, chains, observer.look if observer else None)
        load.moments = observer.moments if observer else []
        _tell(load)


def _tell(load: Load | None) -> None:
    data = pickle.dumps(load)
    sys.stdout.buffer.write(LENGTH.pack(len(data)) + data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    from tests.bench import sender  # the other process finds its classes by this name, not by __main__

    sender.main(*sys.argv[1:])
