"""The load's own process: `python -m tests.bench.sender PORT CA CONNECTIONS`.

It connects, says so, and then runs one job after the other: requests in chains, of which each request is sent after
the one before it is answered. A free connection takes the next request of the chain that has waited longest, so the
requests of all chains are spread over all connections. Plain non-blocking sockets and epoll: what the load computes is
taken from the processors that the servers need.
"""

import gc
import pickle
import select
import socket
import ssl
import sys
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

#: Longest that an answer may take, in seconds: a stuck load ends.
STUCK_SECONDS = 600.0

Chain = Sequence[bytes]


@dataclass
class Load:
    """How many answers of each status one job got."""

    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        """All of them."""
        return self.statuses.total()

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

    def send(self, chain: int, request: bytes) -> None:
        """Send a request; the socket's buffer has room for it."""
        self.chain = chain
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


def run(connections: Sequence[_Connection], chains: Sequence[Chain]) -> Load:
    """Send all requests."""
    load, sent = Load(), 0
    requests = [iter(chain) for chain in chains]
    free, waiting = deque(connections), deque(range(len(chains)))
    with select.epoll() as poll:
        by_descriptor = {item.stream.fileno(): item for item in connections}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            while free and waiting:
                chain = waiting.popleft()
                request = next(requests[chain], None)
                if request is not None:
                    free.popleft().send(chain, request)
                    sent += 1
            if sent == load.answers:
                break
            ready = poll.poll(STUCK_SECONDS)
            if not ready:
                raise TimeoutError("no answer came")
            for descriptor, _ in ready:
                connection = by_descriptor[descriptor]
                if connection.read(load):
                    free.append(connection)
                    waiting.append(connection.chain)
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


def main(port: str, ca: str, connections: str) -> None:
    """Run the jobs that come over standard input until its end; tell first that it is connected."""
    made = connect(int(port), ca, int(connections))
    _tell(None)
    gc.disable()
    with suppress(EOFError):
        while True:
            _tell(run(made, pickle.load(sys.stdin.buffer)))


def _tell(load: Load | None) -> None:
    pickle.dump(load, sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    from tests.bench import sender  # the other process finds its classes by this name, not by __main__

    sender.main(*sys.argv[1:])
