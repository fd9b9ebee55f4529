"""The sync shell: makes the calls that plans decide on. Threads may share it."""

import time
from collections.abc import Iterator
from typing import TypeVar

from posd.client import wire
from posd.client.asking import Call, Reply, StreamItem
from posd.client.errors import Problem, Unreachable
from posd.client.plans import RETRY_SECONDS, Place, Plan, R

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
        import httpx2

        if call.pause:
            time.sleep(call.pause)
        wire.probe(self.socket)
        try:
            response = self._http.request(**wire.request_options(call))
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error, call.seconds) from error
        return wire.reply_of(self.socket, call, response)

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = self.call(call)
                except (Unreachable, Problem) as error:
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

    def stream(self, path: str, after: int = 0) -> Iterator[StreamItem]:
        """Yield the server-sent events of `path` behind that number, until posd ends them.

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

    def follow(self, place: Place[R]) -> Iterator[tuple[StreamItem, R | None]]:
        """Yield the items of a stream for ever, over restarts of posd, each with what is new in it."""
        while True:
            pause = RETRY_SECONDS  # posd has ended it: it stops
            try:
                for item in self.stream(place.path, place.after):
                    yield item, place.take(item)
            except (Unreachable, Problem) as error:
                pause = place.broken(error)
            time.sleep(pause)
