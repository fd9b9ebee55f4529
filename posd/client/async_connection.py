"""The async shell (asyncio): makes the calls that plans decide on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from posd.client import wire
from posd.client.calls import Call, Reply, StreamItem
from posd.client.errors import Problem, Unreachable
from posd.client.plans import RETRY_SECONDS, Place, Plan, R

T = TypeVar("T")


class AsyncConnection:
    """The local API behind one Unix socket."""

    def __init__(self, socket: str) -> None:
        import httpx2

        self.socket = socket
        transport = httpx2.AsyncHTTPTransport(**wire.transport_options(socket))
        self._http = httpx2.AsyncClient(transport=transport, base_url=wire.BASE_URL, trust_env=False)

    async def close(self) -> None:
        """End it."""
        await self._http.aclose()

    async def call(self, call: Call) -> Reply:
        """Make one call. Raise Problem or Unreachable."""
        import httpx2

        if call.pause:
            await asyncio.sleep(call.pause)
        wire.probe(self.socket)
        try:
            response = await self._http.request(**wire.request_options(call))
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error, call.seconds) from error
        return wire.reply_of(self.socket, call, response)

    async def run(self, plan: Plan[T]) -> T:
        """Carry a plan out."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = await self.call(call)
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

    async def stream(self, path: str, after: int | str = 0) -> AsyncGenerator[StreamItem, None]:
        """Yield the server-sent events of `path` behind that number or id, until posd ends them.

        Raise Problem or Unreachable; a stream that breaks off raises Unreachable too.
        """
        import httpx2

        wire.probe(self.socket)
        try:
            async with self._http.sse(**wire.stream_options(path, after)) as source:
                if not wire.is_stream(source.response):
                    raise wire.not_a_stream(self.socket, source.response.status_code, await source.response.aread())
                async for item in source:
                    yield StreamItem(item.id, item.event, item.data)
        except httpx2.TransportError as error:
            raise wire.lost(self.socket, error) from error

    async def follow(self, place: Place[R]) -> AsyncGenerator[tuple[StreamItem, R | None], None]:
        """Yield the items of a stream for ever, over restarts of posd, each with what is new in it."""
        while True:
            pause = RETRY_SECONDS  # posd has ended it: it stops
            try:
                async with aclosing(self.stream(place.path, place.resume)) as items:
                    async for item in items:
                        yield item, place.take(item)
            except (Unreachable, Problem) as error:
                pause = place.broken(error)
            await asyncio.sleep(pause)
