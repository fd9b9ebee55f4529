"""Calls on transactions (local API, Transactions)."""

import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from posd.base.locks import Histogram
from posd.base.problems import Problem
from posd.calls import parameters, streams
from posd.calls import parameters as at
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.calls.long_poll import wait_until
from posd.calls.route import ENDS, Answer, Message, Route
from posd.calls.streams import BATCH_BYTES, NOTICE, OUTCOME, OWN_NAMES, Batch, Notice, message, wants_stream
from posd.payments import abort, documents, journal, model, rows, start
from posd.payments.abort import Aborts
from posd.payments.decide import Operators
from posd.payments.documents import Event, Events, History, Outcome, Page, Transaction, TransactionPage
from posd.payments.reconcile import Reconciler
from posd.payments.request import DECISIONS, Acknowledgement, Resolution, StartRequest
from posd.payments.start import Payments
from posd.records import pruned
from posd.records.model import Phase
from posd.records.request import Signed, decided
from posd.storage.writer import Change

# Calls on transactions.

ONE = "/v1/transactions/{client_transaction_id}"

#: Codes of what looks for one transaction.
KNOWN = ("not_found", "pruned", "storage_unavailable")
DECIDES = ("malformed_json", "already_final", "call_outstanding", *KNOWN)

#: A stream of a transaction's events.
EVENTS = (
    Message("STATUS", Event, "one event; it is called by its status, and its id is its seq"),
    Message("outcome", Outcome, "the end: the outcome, after which the stream closes"),
    Message("notice", Notice, "why the reader gets events that it did not expect; without an id"),
    *ENDS,
)

_NOW = Answer("the transaction as it then stands", Transaction)

ROUTES = (
    Route(
        "PUT",
        ONE,
        "start_transaction",
        "Start a payment, once. Repeat the call as often as you like with the same id and body: it is sent once.",
        {201: Answer("started now", Transaction), 200: Answer("was known already, by the same request", Transaction)},
        start.REFUSALS,
        body=StartRequest,
        judges_refusal=True,
    ),
    Route("GET", ONE, "get_transaction", "Show a payment.", {200: Answer("the transaction", Transaction)}, KNOWN),
    Route(
        "GET",
        f"{ONE}/outcome",
        "await_outcome",
        "Wait for the outcome. It is held until there is one, over everything but a restart of posd: then ask again.",
        {200: Answer("the outcome", Outcome), 202: Answer("`timeout` passed: still open, nothing else", Transaction)},
        (*KNOWN, "draining"),
        query=(at.TIMEOUT,),
    ),
    Route(
        "GET",
        f"{ONE}/events",
        "list_events",
        "Show the terminal's events, verbatim; or follow them live until the outcome.",
        {200: Answer("the events", Events, stream=EVENTS)},
        (*KNOWN, "draining"),
        headers=(at.LAST_EVENT_ID,),
    ),
    Route(
        "GET",
        f"{ONE}/history",
        "get_history",
        "Show all that happened to a payment, and who did what.",
        {200: Answer("the history", History)},
        KNOWN,
    ),
    Route(
        "POST",
        f"{ONE}/abort",
        "abort_transaction",
        "Ask the terminal to abort. The outcome still has to be awaited: an approval can be faster. No body.",
        {202: Answer("the terminal took it, or may have", Transaction)},
        (*abort.REFUSED, *KNOWN),
    ),
    Route(
        "POST",
        f"{ONE}/reconcile",
        "reconcile_transaction",
        "Ask the terminal now what became of it; `last_search` tells what came. No body.",
        {200: _NOW},
        (*KNOWN, "draining"),
    ),
    Route(
        "POST",
        f"{ONE}/release",
        "release_transaction",
        "Free the terminal of a payment that will not end. The payment stays open and is still asked for.",
        {200: _NOW},
        DECIDES,
        body=Signed,
    ),
    Route(
        "POST",
        f"{ONE}/resolve",
        "resolve_transaction",
        "Close an open payment by a person's word, audited. What the terminal says later supersedes it.",
        {200: _NOW},
        DECIDES,
        body=Resolution,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/acknowledge",
        "acknowledge_transaction",
        "Close one attention by a person's word, audited.",
        {200: _NOW},
        ("malformed_json", *KNOWN),
        body=Acknowledgement,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/transactions",
        "list_transactions",
        "List payments, newest first.",
        {200: Answer("a page", TransactionPage)},
        ("storage_unavailable",),
        query=(
            at.LIMIT,
            at.PHASE,
            at.OPEN,
            at.TERMINAL,
            at.SALE,
            at.ATTENTION,
            at.SINCE,
            at.UNTIL,
            at.NEXT,
            at.ANY_METADATA,
        ),
    ),
)


# The events of one payment as a stream, which ends with the outcome (local API, Transactions).

#: Reads the outcome of a payment as the API shows it, None while there is none. May raise Problem.
OutcomeOf = Callable[[sqlite3.Connection, str], Outcome | None]


def stream(context: Context, request: Request, identity: str, outcome_of: OutcomeOf) -> Response:
    """Return the stream of a payment that is known. Raise Problem."""
    after = streams.resume_after(request, parameters.LAST_EVENT_ID) or 0
    reader = _Reader(context, identity, outcome_of, after)
    return context.streams.answer(request, "events", identity, reader.read, transaction=identity)


class _Reader:
    """Where one stream is among the events of its payment."""

    def __init__(self, context: Context, identity: str, outcome_of: OutcomeOf, after: int) -> None:
        self._context = context
        self._identity = identity
        self._outcome_of = outcome_of
        self._after = after
        self._looked = not after  # whether the payment has an event of that number

    async def read(self) -> Batch:
        """Return what comes next. Raise Problem."""
        batch, self._after = await self._context.read(self._batch)
        self._looked = True
        return batch

    def _batch(self, db: sqlite3.Connection) -> tuple[Batch, int]:
        data, after = bytearray(), self._after
        if not self._looked and not journal.holds_event(db, self._identity, after):
            data += message(NOTICE, _unknown(after))
            after = 0
        for item in journal.each_event(db, self._identity, after):
            data += message(name(item.status), documents.event_document(item), str(item.seq))
            after = item.seq
            if len(data) >= BATCH_BYTES:
                return Batch(bytes(data), more=True), after
        outcome = self._outcome_of(db, self._identity)
        if outcome is not None:
            data += message(OUTCOME, outcome)
        return Batch(bytes(data), last=outcome is not None), after


def name(status: str) -> str:
    """Return the name of an event in the stream: its status, on one line; none that poses as one of posd's own."""
    words = " ".join(status.split())
    return f"unknown:{words}" if words in OWN_NAMES or not words else words


def _unknown(after: int) -> Notice:
    detail = (
        f"the payment has no event {after}: that id is of another payment, or a backup was restored. All of its events "
        "follow"
    )
    return Notice("place_unknown", detail, 0)


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
            transaction, created = await self._payments.start(
                identity, request.state.body, request.state.refusal, request.state.sender
            )
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
        found = await wait_until(request.state.pieces, woken, hub, look, timeout)
        if found is not None:
            return json_response(found)
        return json_response(await self._document(await self._get(identity)), 202)

    async def list_events(self, request: Request) -> Response:
        """`GET /transactions/{id}/events`: what came, as a list or as a stream that ends with the outcome."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        await self._get(identity)
        if wants_stream(request):
            return stream(self._context, request, identity, _final_outcome)
        stored = await self._context.read(partial(journal.events, client_transaction_id=identity))
        return json_response(Events([documents.event_document(item) for item in stored]))

    async def get_history(self, request: Request) -> Response:
        """`GET /transactions/{id}/history`: all that happened to it, and who did what."""
        transaction = await self._get(parameters.path(request, parameters.TRANSACTION_ID))
        return json_response(await self._context.read(partial(documents.history_document, transaction=transaction)))

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
        decision = decided(DECISIONS[call], request.state.body, request.state.uid, f"cannot {call}")
        return json_response(
            await self._document(await self._or_ended(identity, self._operators.decide(identity, decision)))
        )

    async def _or_ended(self, identity: str, work: Awaitable[model.Transaction]) -> model.Transaction:
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
            found, cursor = documents.read_page(db, page)
            return TransactionPage([self._view(db, row, now) for row in found], cursor)

        return json_response(await self._context.read(read))

    async def _get(self, identity: str) -> model.Transaction:
        return await self._context.look_up(partial(_known, identity=identity))

    async def _document(self, transaction: model.Transaction) -> documents.Transaction:
        now = self._context.now()
        without = self._view(None, transaction, now)
        known = transaction.derives_from or transaction.transaction_reference is None
        if transaction.outcome is None and known and transaction.phase is not Phase.IN_DOUBT:
            return without
        try:
            return await self._context.look_up(partial(self._view, transaction=transaction, now=now))
        except Problem as problem:
            if transaction.outcome is None:
                return without  # all but the original of a reference, and what the proof lacks of the search
            # No 503: after a start it would say that nothing was sent.
            detail = f"the transaction cannot be shown now: {problem.detail}"
            raise Problem("internal_error", detail, error_id=secrets.token_hex(8)) from problem

    def _view(
        self, db: sqlite3.Connection | None, transaction: model.Transaction, now: datetime
    ) -> documents.Transaction:
        return documents.transaction_document(
            db,
            transaction,
            now,
            self._grace,
            abortable=self._aborts.possible(transaction),
            missing_proof=self._reconciler.missing_proof(db, transaction),
        )


def _ended(change: Change) -> bool:
    """Whether a transaction has an outcome since that change: who waits for one need not look before."""
    return change.result is not None


def _final_outcome(db: sqlite3.Connection, identity: str) -> documents.Outcome | None:
    return documents.outcome_document(db, _known(db, identity))


def _known(db: sqlite3.Connection, identity: str) -> model.Transaction:
    """Return the transaction of that id. Raise Problem."""
    found = rows.get(db, identity)
    if found is None:
        raise pruned.missing_payment(db, identity)
    return found
