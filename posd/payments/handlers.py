"""Calls on transactions (local API, Transactions)."""

import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable
from datetime import datetime, timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from posd.base.meters import Histogram
from posd.base.problems import Problem
from posd.calls import parameters, waiting
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.httpd.accept import wants_stream
from posd.payments import documents, event_rows, event_stream, listing, rows, views
from posd.payments.abort import Aborts
from posd.payments.decide import Operators
from posd.payments.decision_requests import read_decision
from posd.payments.documents import Events, TransactionPage
from posd.payments.listing import Page
from posd.payments.model import Transaction
from posd.payments.reconcile import Reconciler
from posd.payments.start import Payments
from posd.records import pruned
from posd.records.request import MalformedJson
from posd.storage.batch import Change

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

    async def start_transaction(self, request: Request) -> Response:
        """`PUT /transactions/{id}`: start, or answer for what is known."""
        began = time.perf_counter()
        try:
            identity = parameters.path(request, parameters.TRANSACTION_ID)
            transaction, created = await self._payments.start(identity, request.state.body, request.state.refusal)
        except Problem as problem:
            self.refused[problem.code] += 1
            raise
        if created and transaction.acknowledged:
            self.acknowledged.observe(time.perf_counter() - began)
        return json_response(await self._document(transaction), 201 if created else 200)

    async def get_transaction(self, request: Request) -> Response:
        """`GET /transactions/{id}`."""
        return json_response(await self._document(await self._get(parameters.path(request, parameters.TRANSACTION_ID))))

    async def await_outcome(self, request: Request) -> Response:
        """`GET /transactions/{id}/outcome`: hold until there is one, or the caller's time-out passes."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        timeout = request.state.query["timeout"]

        hub, look = self._context.hub, partial(self._context.look_up, partial(_final_outcome, identity=identity))
        woken = hub.subscribe(identity, _ended)
        found = await waiting.until(request.state.pieces, woken, hub, look, timeout)
        if found is not None:
            return json_response(found)
        return json_response(await self._document(await self._get(identity)), 202)

    async def list_events(self, request: Request) -> Response:
        """`GET /transactions/{id}/events`: what came, as a list or as a stream that ends with the outcome."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        await self._get(identity)
        if wants_stream(request):
            return event_stream.stream(self._context, request, identity, _final_outcome)
        stored = await self._context.read(partial(event_rows.of_transaction, client_transaction_id=identity))
        return json_response(Events([views.event_document(item) for item in stored]))

    async def get_history(self, request: Request) -> Response:
        """`GET /transactions/{id}/history`: all that happened to it, and who did what."""
        transaction = await self._get(parameters.path(request, parameters.TRANSACTION_ID))
        return json_response(await self._context.read(partial(views.history_document, transaction=transaction)))

    async def abort_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/abort`."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        parameters.check_no_body(request)
        transaction = await self._or_ended(identity, self._aborts.abort(identity, request.state.uid))
        return json_response(await self._document(transaction), 202)

    async def reconcile_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/reconcile`: search now."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        parameters.check_no_body(request)
        return json_response(await self._document(await self._reconciler.reconcile(identity)))

    async def release_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/release`."""
        return await self._decide(request, "release")

    async def resolve_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/resolve`."""
        return await self._decide(request, "resolve")

    async def acknowledge_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/acknowledge`."""
        return await self._decide(request, "acknowledge")

    async def _decide(self, request: Request, call: str) -> Response:
        """Carry out what a person decides."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
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

    async def list_transactions(self, request: Request) -> Response:
        """`GET /transactions`: newest first, filtered, in pages."""
        query = request.state.query
        metadata = query.pop(parameters.METADATA)
        page = Page(**query, metadata=metadata)
        now = self._context.now()

        def read(db: sqlite3.Connection) -> TransactionPage:
            found, cursor = listing.read_page(db, page)
            return TransactionPage([self._view(db, row, now) for row in found], cursor)

        return json_response(await self._context.read(read))

    async def _get(self, identity: str) -> Transaction:
        return await self._context.look_up(partial(_known, identity=identity))

    async def _document(self, transaction: Transaction) -> documents.Transaction:
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

    def _view(self, db: sqlite3.Connection | None, transaction: Transaction, now: datetime) -> documents.Transaction:
        return views.transaction_document(
            db, transaction, now, self._grace, abortable=self._aborts.possible(transaction)
        )


def _ended(change: Change) -> bool:
    """Whether a transaction has an outcome since that change: who waits for one need not look before."""
    return change.result is not None


def _final_outcome(db: sqlite3.Connection, identity: str) -> documents.Outcome | None:
    return views.outcome_document(db, _known(db, identity))


def _known(db: sqlite3.Connection, identity: str) -> Transaction:
    """Return the transaction of that id. Raise Problem."""
    found = rows.get(db, identity)
    if found is None:
        raise pruned.missing_payment(db, identity)
    return found
