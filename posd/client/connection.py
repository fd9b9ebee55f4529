"""The sync shell: makes the calls that plans decide on. Threads may share it."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from posd.client import wire
from posd.client.calls import Call, Reply, StreamItem
from posd.client.errors import Problem, Unreachable
from posd.client.plans import RETRY_SECONDS, Place, Plan, R

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Connection:
    """The local API behind one Unix socket."""

    def __init__(self, socket: str) -> None:
        import httpx2

        self.socket = socket
        transport = httpx2.HTTPTransport(**wire.transport_options(socket))
        self._http = httpx2.Client(transport=transport, base_url=wire.BASE_URL, trust_env=False)

    def close(self) -> None:
        """End it."""
        self._http.close()

    def call(self, call: Call) -> Reply:
        """Make one call. Raise Problem or Unreachable."""
        return wire.reply_of(self.socket, call, self._request(call))

    def text(self, call: Call) -> str:
        """Make a call that answers plain text. Raise Problem or Unreachable."""
        return wire.text_of(self.socket, self._request(call))

    def pieces(self, call: Call) -> Iterator[bytes]:
        """Make a call and yield the bytes of its answer as they come. Raise Problem or Unreachable: they end early."""
        import httpx2

        wire.probe(self.socket)
        try:
            with self._http.stream(**wire.request_options(call)) as response:
                if response.status_code >= 400:
                    raise wire.problem_in(self.socket, response.status_code, response.read())
                yield from response.iter_raw()
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error, call.seconds) from error

    def _request(self, call: Call) -> "httpx2.Response":
        import httpx2

        if call.pause:
            time.sleep(call.pause)
        wire.probe(self.socket)
        try:
            return self._http.request(**wire.request_options(call))
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error, call.seconds) from error

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = self.call(call)
                except (Unreachable, Problem) as error:
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
            raise wire.misread(self.socket, error, reply) from error

    def stream(self, path: str, after: int | str = 0) -> Iterator[StreamItem]:
        """Yield the server-sent events of `path` behind that number or id, until posd ends them.

        Raise Problem or Unreachable; a stream that breaks off raises Unreachable too.
        """
        import httpx2

        wire.probe(self.socket)
        try:
            with self._http.sse(**wire.stream_options(path, after)) as source:
                if not wire.is_stream(source.response):
                    raise wire.not_a_stream(self.socket, source.response.status_code, source.response.read())
                for item in source:
                    yield StreamItem(item.id, item.event, item.data)
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error) from error

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
            except (Unreachable, Problem) as error:
                pause = place.broken(error)
            time.sleep(pause)
