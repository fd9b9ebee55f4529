"""Async client (asyncio): `AsyncPosd`, and the handles of payments and print jobs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from posd.client import calls, connection, operations, plans, states
from posd.client.calls import PaymentCalls, PrintCalls, Reads, Starts
from posd.client.documents import OutcomeUnknown, PosdError, Problem
from posd.client.operations import Id
from posd.client.store import StoredPayment

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class AsyncConnection:
    """Connection to the local API behind one Unix socket."""

    def __init__(self, socket: str, language: str | None = None, *, kept: int = 0) -> None:
        """`kept`: maximum number of idle connections that stay open for the next call."""
        import httpx2

        self.socket = socket
        transport = httpx2.AsyncHTTPTransport(**connection.transport_options(socket, kept))
        self._http = httpx2.AsyncClient(transport=transport, **connection.client_options(language))

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._http.aclose()

    async def call(self, call: plans.Call) -> plans.Reply:
        """Make one call. Raise Problem or Unreachable."""
        return connection.reply_of(self.socket, call, await self.request(call))

    async def request(self, call: plans.Call) -> "httpx2.Response":
        """Make one call, and return its response. Raise Unreachable."""
        import httpx2

        if call.pause:
            await asyncio.sleep(call.pause)
        connection.probe(self.socket)
        try:
            return await self._http.request(**connection.request_options(call))
        except httpx2.TransportError as error:
            raise connection.lost(self.socket, error, call.seconds) from error

    async def run(self, plan: plans.Plan[T]) -> T:
        """Run a plan: make its calls, and return its result."""
        reply = None
        try:
            call = next(plan)
            while True:
                try:
                    reply = await self.call(call)
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
            raise connection.misread(self.socket, error, reply) from error

    async def stream(self, path: str, after: int | str = 0) -> AsyncGenerator["httpx2.ServerSentEvent", None]:
        """Yield the server-sent events of `path` that follow the number or id `after`, until posd ends the stream.

        Raise Problem or Unreachable. A broken stream also raises Unreachable.
        """
        import httpx2

        connection.probe(self.socket)
        try:
            async with self._http.sse(**connection.stream_options(path, after)) as source:
                if not connection.is_stream(source.response):
                    raise connection.not_a_stream(
                        self.socket, source.response.status_code, await source.response.aread()
                    )
                async for item in source:
                    yield item
        except httpx2.TransportError as error:
            raise connection.lost(self.socket, error) from error

    async def follow(
        self, place: plans.Place[plans.R]
    ) -> AsyncGenerator[tuple["httpx2.ServerSentEvent", plans.R | None], None]:
        """Yield the items of a stream without end, across restarts of posd.

        For each item, yield its content if the content is new, else None.
        """
        while True:
            pause = plans.RETRY_SECONDS  # posd ended the stream because it is stopping
            try:
                async with aclosing(self.stream(place.path, place.resume)) as items:
                    async for item in items:
                        yield item, place.take(item)
            except PosdError as error:
                pause = place.broken(error)
            await asyncio.sleep(pause)


#: Result of an awaited method.
Answer: TypeAlias = Coroutine[Any, Any, T]


class AsyncPayment(
    PaymentCalls[Answer[states.Transaction], Answer[states.Outcome[states.E]], Answer[bool]], Generic[states.E]
):
    """Handle of a payment that was, or may have been, started (see `PaymentCalls`)."""

    _posd: "AsyncPosd"

    async def watch(self) -> AsyncGenerator[states.Change | states.State | states.Outcome[states.E], None]:
        """Yield the terminal's events and the payment's states, from the beginning, and finally the outcome.

        The stream continues across restarts of posd, without repetition. Raise UnknownResult or OutcomeUnknown.
        """
        place = plans.watched(self)
        try:
            async with aclosing(self._posd.connection.follow(place)) as items:
                async for item, change in items:
                    if item.event == plans.OUTCOME_ITEM:
                        break
                    if change is not None:
                        yield change
        except Problem as problem:
            raise OutcomeUnknown(self.id, problem.compare(self._stored_at)) from problem
        yield await self.outcome()


class AsyncPrint(PrintCalls[Answer[states.PrintJob]]):
    """Handle of a print job that was, or may have been, started."""


class AsyncPosd(
    Starts[
        Answer[AsyncPayment],
        Answer[AsyncPayment[operations.Paid]],
        Answer[AsyncPayment[operations.Reserved]],
        Answer[AsyncPayment[operations.Reversed]],
        Answer[AsyncPrint],
    ],
    Reads[
        AsyncIterator[states.Transaction],
        AsyncIterator[states.PrintJob],
        Answer[list[states.Terminal]],
        Answer[states.Terminal],
        Answer[states.Health],
        Answer[states.Version],
    ],
):
    """Client of the daemon behind one Unix socket: `socket`, else the socket in POSD_SOCKET, else /run/posd/till.sock.

    `patience`: while posd is away (for example restarting), a call is repeated for this number of seconds. `on_away`:
    called with the reason before each repetition of a call or a wait. `store`: function that gets each payment before
    its start, and returns when the payment is on disk: `PaymentStore.save`, or a function or coroutine function of the
    till. If it raises, nothing is started. `amount_members`: further parts of an amount that posd's configuration
    allows. `language`: language of the `display` texts (en, es); by default that of posd's configuration.

    Tasks of one event loop may share a client. A cancelled call does not affect the payment, and leaves no connection
    open.
    """

    def _connect(self, language: str | None) -> None:
        self.connection = AsyncConnection(self.socket, language)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client. Started payments continue."""
        await self.connection.close()

    def transaction(self, id: Id | StoredPayment) -> AsyncPayment:  # noqa: A002 - the field's name
        """Return the handle of a payment from its id or its `StoredPayment`, without a call to posd."""
        known = id if isinstance(id, StoredPayment) else StoredPayment(str(id), None)
        return AsyncPayment(self, calls.transaction_id(known.id), stored_at=known.stored_at)

    def printed(self, id: str) -> AsyncPrint:  # noqa: A002 - the field's name
        """Return the handle of a print job from its id, without a call to posd."""
        return AsyncPrint(self, calls.print_job_id(id))

    async def feed(
        self, after: int | str = plans.START, *, on_notice: plans.OnNotice | None = None
    ) -> AsyncGenerator[states.FeedChange, None]:
        """Yield every recorded change of every payment and print job after a place, without end.

        The stream continues across restarts of posd, without repetition or gap. To continue after a restart of the
        till, the till passes the `place` of its last change as `after`. `on_notice` is called if changes may be
        missing, because retention removed them or a backup was restored. Raise Problem.
        """
        place = plans.Place(self.socket, "/feed", states.FeedChange, after, self.on_away, on_notice)
        async with aclosing(self.connection.follow(place)) as items:
            async for _, change in items:
                if change is not None:
                    yield replace(change, place=place.resume)

    def _run(self, plan: plans.Plan[Any]) -> Any:
        return self.connection.run(plan)

    async def _begin(self, payment: StoredPayment, stored_at: datetime | None) -> Any:
        stored = self.store and self.store(payment)
        if isinstance(stored, Awaitable):
            stored = await stored
        return await self._run(self._begin_stored(payment, stored, stored_at))

    async def _rows(self, call: plans.Call, member: str, kind: type[plans.R]) -> AsyncIterator[plans.R]:
        cursor: str | None = ""
        while cursor is not None:
            paged = replace(call, params={**call.params, "cursor": cursor}) if cursor else call
            rows, cursor = await self.connection.run(plans.page(paged, member, kind, self._away()))
            for row in rows:
                yield row
