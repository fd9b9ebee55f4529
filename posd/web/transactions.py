"""Calls on transactions (local API, Transactions)."""

import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from posd.core.operators import read_decision
from posd.core.problems import Problem
from posd.core.requests import MalformedJson
from posd.core.transactions import Phase, Transaction
from posd.meters import Histogram
from posd.services.aborts import Aborts
from posd.services.operators import Operators
from posd.services.payments import Payments
from posd.services.reconciler import Reconciler
from posd.store import events, listing, paging, pruned, transactions
from posd.store.batch import Change
from posd.store.listing import Page
from posd.web import parameters, payment_events, views, waiting
from posd.web.accept import wants_stream
from posd.web.context import Context
from posd.web.local import Route, json_response

#: Buckets of how long a till waits until its terminal has acknowledged, in seconds.
START_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class TransactionCalls:
    """Handlers of /v1/transactions."""

    def __init__(
        self,
        context: Context,
        payments: Payments,
        aborts: Aborts,
        reconciler: Reconciler,
        operators: Operators,
        grace_seconds: float,
    ) -> None:
        self._context = context
        self._payments = payments
        self._aborts = aborts
        self._reconciler = reconciler
        self._operators = operators
        self._grace = timedelta(seconds=grace_seconds)
        #: Starts that were refused since the start of the process, by problem code; of those that a terminal
        #: acknowledged, how long that took.
        self.refused: Counter[str] = Counter()
        self.acknowledged = Histogram(START_BOUNDS)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The table of these calls."""
        one = "/v1/transactions/{id}"
        filters = frozenset({"phase", "open", "terminal", "sale", "attention", "since", "until", "limit", "cursor"})
        return (
            Route("PUT", one, self.start, judges_refusal=True),
            Route("GET", one, self.show),
            Route("GET", f"{one}/outcome", self.outcome, query=frozenset({"timeout"})),
            Route("GET", f"{one}/events", self.events),
            Route("GET", f"{one}/history", self.history),
            Route("POST", f"{one}/abort", self.abort),
            Route("POST", f"{one}/reconcile", self.reconcile),
            Route("POST", f"{one}/release", partial(self.decide, call="release")),
            Route("POST", f"{one}/resolve", partial(self.decide, call="resolve"), admin=True),
            Route("POST", f"{one}/acknowledge", partial(self.decide, call="acknowledge"), admin=True),
            Route("GET", "/v1/transactions", self.list, query=filters, metadata_query=True),
        )

    async def start(self, request: Request) -> Response:
        """`PUT /transactions/{id}`: start, or answer for what is known."""
        began = time.perf_counter()
        try:
            identity = parameters.transaction_id(request)
            transaction, created = await self._payments.start(identity, request.state.body, request.state.refusal)
        except Problem as problem:
            self.refused[problem.code] += 1
            raise
        if created and transaction.acknowledged:
            self.acknowledged.observe(time.perf_counter() - began)
        return json_response(await self._document(transaction), 201 if created else 200)

    async def show(self, request: Request) -> Response:
        """`GET /transactions/{id}`."""
        return json_response(await self._document(await self._get(parameters.transaction_id(request))))

    async def outcome(self, request: Request) -> Response:
        """`GET /transactions/{id}/outcome`: hold until there is one, or the caller's time-out passes."""
        identity = parameters.transaction_id(request)
        timeout = parameters.query(request, "timeout", parameters.timeout)

        hub, look = self._context.hub, partial(self._context.look_up, partial(_final_outcome, identity=identity))
        woken = hub.subscribe(identity, _ended)
        found = await waiting.until(request.state.pieces, woken, hub, look, timeout)
        if found is not None:
            return json_response(found)
        return json_response(await self._document(await self._get(identity)), 202)

    async def events(self, request: Request) -> Response:
        """`GET /transactions/{id}/events`: what came, as a list or as a stream that ends with the outcome."""
        identity = parameters.transaction_id(request)
        await self._get(identity)
        if wants_stream(request):
            return payment_events.stream(self._context, request, identity, _final_outcome)
        stored = await self._context.read(partial(events.of_transaction, client_transaction_id=identity))
        return json_response({"events": [views.event_document(item) for item in stored]})

    async def history(self, request: Request) -> Response:
        """`GET /transactions/{id}/history`: all that happened to it, and who did what."""
        transaction = await self._get(parameters.transaction_id(request))
        lines = await self._context.read(partial(views.history_document, transaction=transaction))
        return json_response({"history": lines})

    async def abort(self, request: Request) -> Response:
        """`POST /transactions/{id}/abort`."""
        identity = parameters.transaction_id(request)
        parameters.check_no_body(request)
        transaction = await self._or_ended(identity, self._aborts.abort(identity, request.state.uid))
        return json_response(await self._document(transaction), 202)

    async def reconcile(self, request: Request) -> Response:
        """`POST /transactions/{id}/reconcile`: search now."""
        identity = parameters.transaction_id(request)
        parameters.check_no_body(request)
        return json_response(await self._document(await self._reconciler.reconcile(identity)))

    async def decide(self, request: Request, call: str) -> Response:
        """`POST /transactions/{id}/release`, `resolve`, `acknowledge`: what a person decides."""
        identity = parameters.transaction_id(request)
        try:
            decision, faults = read_decision(call, request.state.body, request.state.uid)
        except MalformedJson as error:
            raise Problem("malformed_json", f"the body is not JSON ({error}); nothing was changed") from error
        if faults:
            what = "; ".join(f"{fault.path or 'the body'} {fault.message}" for fault in faults)
            errors = [{"path": fault.path, "message": fault.message} for fault in faults]
            raise Problem("invalid_request", f"cannot {call}: {what}", errors=errors)
        return json_response(
            await self._document(await self._or_ended(identity, self._operators.decide(identity, decision)))
        )

    async def _or_ended(self, identity: str, work: Awaitable[Transaction]) -> Transaction:
        """Await a call; where the transaction has ended already, the problem says how."""
        try:
            return await work
        except Problem as problem:
            if problem.code == "already_final":
                problem.extra["outcome"] = await self._context.look_up(partial(_final_outcome, identity=identity))
            raise

    async def list(self, request: Request) -> Response:
        """`GET /transactions`: newest first, filtered, in pages."""
        query = parameters.Query(request)
        page = Page(
            limit=query.read("limit", parameters.whole(1, parameters.MAX_LIMIT)) or parameters.DEFAULT_LIMIT,
            phase=query.read("phase", _phase),
            open=bool(query.read("open", parameters.flag)),
            terminal=query.read("terminal", str),
            sale=query.read("sale", str),
            attention=bool(query.read("attention", parameters.flag)),
            since=query.read("since", parameters.moment),
            until=query.read("until", parameters.moment),
            metadata=parameters.metadata(request),
            cursor=query.read("cursor", paging.decode_cursor),
        )
        query.check()
        now = self._context.now()

        def read(db: Any) -> dict[str, Any]:
            rows, cursor = listing.read_page(db, page)
            return {"transactions": [self._view(db, row, now) for row in rows], "next_cursor": cursor}

        return json_response(await self._context.read(read))

    async def _get(self, identity: str) -> Transaction:
        return await self._context.look_up(partial(_known, identity=identity))

    async def _document(self, transaction: Transaction) -> dict[str, Any]:
        now = self._context.now()
        without = self._view(None, transaction, now)
        if transaction.outcome is None and (transaction.derives_from or transaction.transaction_reference is None):
            return without
        try:
            return await self._context.look_up(partial(self._view, transaction=transaction, now=now))
        except Problem as problem:
            if transaction.outcome is None:
                return without  # all but the original of a reference
            # No 503: after a start it would say that nothing was sent.
            detail = f"the transaction cannot be shown now: {problem.detail}"
            raise Problem("internal_error", detail, error_id=secrets.token_hex(8)) from problem

    def _view(self, db: sqlite3.Connection | None, transaction: Transaction, now: datetime) -> dict[str, Any]:
        return views.transaction_document(
            db, transaction, now, self._grace, abortable=self._aborts.possible(transaction)
        )


def _ended(change: Change) -> bool:
    """Whether a transaction has an outcome since that change: who waits for one need not look before."""
    return change.result is not None


def _final_outcome(db: Any, identity: str) -> dict[str, Any] | None:
    return views.outcome_document(db, _known(db, identity))


def _phase(text: str) -> Phase:
    try:
        return Phase(text)
    except ValueError as error:
        raise ValueError(f"must be one of {', '.join(Phase)}") from error


def _known(db: sqlite3.Connection, identity: str) -> Transaction:
    """Return the transaction of that id. Raise Problem."""
    found = transactions.get(db, identity)
    if found is None:
        raise pruned.missing_payment(db, identity)
    return found
