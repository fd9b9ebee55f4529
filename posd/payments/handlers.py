"""Calls on transactions (local API, Transactions)."""

import asyncio
import secrets
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from posd.base.clocks import monotonic
from posd.base.exposition import Histogram
from posd.base.problems import Problem
from posd.base.text import Language, preferred_language
from posd.calls import parameters, streams
from posd.calls import parameters as at
from posd.calls.app import encode, json_response, page_response
from posd.calls.parameters import JSON, AnswerSpec, Parameter, Route, StreamMessage, one_of
from posd.config.schema import Config
from posd.payments import abort, documents, journal, lists, model, rows, start
from posd.payments.abort import Aborts
from posd.payments.documents import Event, Events, History, State, Transaction, TransactionOutcome
from posd.payments.journal import StoredEvent
from posd.payments.lifecycle import Status
from posd.payments.lists import TransactionPage, TransactionQuery
from posd.payments.model import NextStep, Result
from posd.payments.reconcile import Reconciler
from posd.payments.request import DECISIONS, Acknowledgement, Resolution, StartRequest
from posd.payments.start import Payments
from posd.records.model import Phase
from posd.records.pages import PAGE_BYTES, fill
from posd.records.request import Signed, decided
from posd.storage.batch import RecordedChange

T = TypeVar("T")

# Calls on transactions.

ONE = "/v1/transactions/{client_transaction_id}"

#: Problem codes of every call on one transaction, and of every decision about a transaction.
KNOWN = ("not_found", "pruned", "storage_unavailable")
DECIDES = ("malformed_json", "already_final", "call_outstanding", *KNOWN)

#: Messages of the stream of a transaction's events.
EVENTS = (
    StreamMessage("STATUS", Event, "one event of the terminal; the event name is its status, and the id its seq"),
    StreamMessage(
        "state",
        State,
        "the state of the payment, at the start and after each change, also by elapsed time; this message has no id",
    ),
    StreamMessage("outcome", TransactionOutcome, "the end: the outcome, after which the stream closes"),
    StreamMessage("notice", streams.Notice, "why events may be missing or repeated; this message has no id"),
    *streams.ENDS,
)

#: Largest number of concurrent computations of totals. Each uses a database connection of its own.
TOTALS_AT_ONCE = 4

RESULT = Parameter("result", one_of(Result), "only those with this result", example="declined")

_NOW = AnswerSpec("the transaction after the call", Transaction)
#: Parameters of the calls that return a display.
_SHOWN = (at.ACCEPT_LANGUAGE,)

ROUTES = (
    Route(
        "PUT",
        ONE,
        "start_transaction",
        "Start a payment, once. Repeat the call as often as you like with the same id and body: it is sent once.",
        {
            201: AnswerSpec("started now", Transaction),
            200: AnswerSpec("known from an identical request", Transaction),
        },
        start.REFUSALS,
        headers=_SHOWN,
        body=StartRequest,
        starts=True,
    ),
    Route(
        "GET",
        ONE,
        "get_transaction",
        "Show a payment.",
        {200: AnswerSpec("the transaction", Transaction)},
        KNOWN,
        headers=_SHOWN,
    ),
    Route(
        "GET",
        f"{ONE}/outcome",
        "await_outcome",
        "Wait for the outcome. The call continues until there is one; after a restart of posd ask again.",
        {
            200: AnswerSpec("the outcome", TransactionOutcome),
            202: AnswerSpec("`timeout` passed: the payment is still open, and its outcome is not known", Transaction),
        },
        (*KNOWN, "draining"),
        query=(at.TIMEOUT,),
        headers=_SHOWN,
    ),
    Route(
        "GET",
        f"{ONE}/events",
        "list_events",
        "Show the terminal's events, verbatim; or follow them live until the outcome.",
        {200: AnswerSpec("the events", Events, stream=EVENTS)},
        (*KNOWN, "draining"),
        headers=(*_SHOWN, at.LAST_EVENT_ID),
    ),
    Route(
        "GET",
        f"{ONE}/history",
        "get_history",
        "Show the history of a payment, with the person or program behind each entry.",
        {200: AnswerSpec("the history", History)},
        KNOWN,
    ),
    Route(
        "POST",
        f"{ONE}/abort",
        "abort_transaction",
        "Ask the terminal to abort. Then wait for the outcome: an approval can be faster. No body.",
        {202: AnswerSpec("the terminal accepted the abort, or may have accepted it", Transaction)},
        (*abort.REFUSED, *KNOWN),
        headers=_SHOWN,
    ),
    Route(
        "POST",
        f"{ONE}/reconcile",
        "reconcile_transaction",
        "Search the terminal for the payment now; `last_search` has the result. No body.",
        {200: _NOW},
        (*KNOWN, "draining"),
        headers=_SHOWN,
    ),
    Route(
        "POST",
        f"{ONE}/release",
        "release_transaction",
        "Free the terminal of a payment that does not end. The payment stays open, and posd asks about it.",
        {200: _NOW},
        DECIDES,
        headers=_SHOWN,
        body=Signed,
    ),
    Route(
        "POST",
        f"{ONE}/resolve",
        "resolve_transaction",
        "Record how an open payment ended, or a payment that a restore lost, by an operator's decision. A "
        "later report of the terminal overrides it.",
        {200: _NOW},
        ("unknown_terminal", "id_reused", *DECIDES),
        headers=_SHOWN,
        body=Resolution,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/acknowledge",
        "acknowledge_transaction",
        "Close one attention that an operator has checked.",
        {200: _NOW},
        ("malformed_json", *KNOWN),
        headers=_SHOWN,
        body=Acknowledgement,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/transactions",
        "list_transactions",
        "List payments, newest first.",
        {200: AnswerSpec("a page", TransactionPage)},
        ("storage_unavailable",),
        query=(
            at.LIMIT,
            at.BEGINNING,
            at.PHASE,
            at.OPEN,
            at.TERMINAL,
            at.SALE,
            at.ATTENTION,
            RESULT,
            at.SINCE,
            at.UNTIL,
            at.NEXT,
            at.TOTALS,
            at.ANY_METADATA,
        ),
        headers=_SHOWN,
    ),
)


# Events of one payment as a stream, which ends with the outcome (local API, Transactions).


#: (state of a payment; its outcome or None; seconds after which the state may change by time alone, or None).
TransactionStanding = tuple[State, TransactionOutcome | None, float | None]
#: Function that returns the state of a payment. Raise Problem.
StandingOf = Callable[[sqlite3.Connection, str], TransactionStanding]


@dataclass(eq=False)
class _EventReader:
    """Reader of a payment's events for one stream. `after`: seq of the last event that the client has."""

    context: streams.CallContext
    identity: str
    standing_of: StandingOf
    after: int
    looked: bool = False  # a batch was read, so `after` is known to be valid
    told: State | None = None  # the last state sent

    async def read(self) -> streams.MessageBatch:
        """Return the next messages of the stream. Raise Problem."""
        batch, self.after, self.told = await self.context.read(self._batch)
        self.looked = True
        return batch

    def _batch(self, db: sqlite3.Connection) -> tuple[streams.MessageBatch, int, State]:
        data, after = bytearray(), self.after
        if after and not self.looked and not journal.holds_event(db, self.identity, after):
            data += streams.message(streams.NOTICE, _unknown(after))
            after = 0
        state, outcome, again = self.standing_of(db, self.identity)
        told = self.told
        if told is None:
            told = state
            data += streams.message(streams.STATE, told)
        for item in journal.each_event(db, self.identity, after):
            data += streams.message(name(item.status), documents.event_document(item), str(item.seq))
            after = item.seq
            if len(data) >= streams.BATCH_BYTES:
                return streams.MessageBatch(bytes(data), more=True), after, told
        if state != told:
            data += streams.message(streams.STATE, state)
        if outcome is not None:
            data += streams.message(streams.OUTCOME, outcome)
        batch = streams.MessageBatch(bytes(data), last=outcome is not None, again=again, approvals=approvals(outcome))
        return batch, after, state


def _events(
    db: sqlite3.Connection, identity: str, after: int = 0, most: int = PAGE_BYTES
) -> tuple[list[StoredEvent], bool]:
    """Return the events after a seq up to `most` bytes, and whether there may be more."""
    return fill(journal.each_event(db, identity, after), lambda item: len(item.body), most)


def name(status: str) -> str:
    """Return the name of an event in the stream: its status, on one line.

    The name never equals the name of one of posd's own messages in the stream.
    """
    words = " ".join(status.split())
    return f"unknown:{words}" if words in streams.OWN_NAMES or not words else words


def _unknown(after: int) -> streams.Notice:
    detail = (
        f"the payment has no event {after}: that id is of another payment, or a backup was restored. All of its events "
        "follow"
    )
    return streams.Notice("place_unknown", detail, 0)


#: Bounds of the histogram of the time until the terminal acknowledged a start, in seconds.
START_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

#: Added to the time until a grace ends. The stored start of a doubt is cut to whole milliseconds.
AFTER_THE_GRACE = timedelta(milliseconds=1)


@dataclass(eq=False)
class TransactionCalls:
    """Handlers of /v1/transactions."""

    context: streams.CallContext
    payments: Payments
    aborts: Aborts
    reconciler: Reconciler
    config: Config
    #: Number of refused starts since the start of the process, by problem code.
    refused: Counter[str] = field(default_factory=Counter)
    #: Durations of the starts that the terminal accepted.
    acknowledged: Histogram = field(default_factory=lambda: Histogram(START_BOUNDS))
    summing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TOTALS_AT_ONCE))

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self.config.reconcile.first_event_grace_seconds)

    async def start_transaction(self, request: Request) -> Response:
        """`PUT /transactions/{id}`: start a transaction, or return the one that has this id."""
        began = monotonic()
        try:
            identity = parameters.path(request, parameters.TRANSACTION_ID)
            transaction, created = await self.payments.start(
                identity, request.state.body, request.state.refusal, request.state.sender
            )
        except Problem as problem:
            self.refused[problem.code] += 1
            raise
        if created and transaction.acknowledged:
            self.acknowledged.observe(monotonic() - began)
        return await self._answer(request, transaction, 201 if created else 200)

    async def get_transaction(self, request: Request) -> Response:
        """`GET /transactions/{id}`."""
        return await self._read(request, parameters.path(request, parameters.TRANSACTION_ID), 200)

    async def await_outcome(self, request: Request) -> Response:
        """`GET /transactions/{id}/outcome`: wait for the outcome, or for the caller's time-out."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        timeout, language = request.state.query["timeout"], self._language_of(request)

        hub, outcome_of = self.context.hub, partial(self._outcome, identity=identity, language=language)
        woken = hub.subscribe(identity, _ended)
        look = partial(self._look_up, identity, outcome_of)
        found = await streams.wait_until(request.state.pieces, woken, hub, look, timeout)
        if found is not None:
            return self._show(request, found, language)
        return await self._read(request, identity, 202)

    async def list_events(self, request: Request) -> Response:
        """`GET /transactions/{id}/events`: events, as a list or as a stream that ends with the outcome."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        await self._get(identity)
        if streams.wants_stream(request):
            return self._stream(request, identity)

        stored, is_long = await self.context.read(partial(_events, identity=identity))
        if is_long:
            return StreamingResponse(self._pieces(request, identity), media_type=JSON)
        self._show_events(request, identity, stored)
        return json_response(Events([documents.event_document(item) for item in stored]))

    async def _pieces(self, request: Request, identity: str) -> AsyncIterator[bytes]:
        """Yield a long list of events in pieces. A batch is read when the client has read most earlier batches."""
        after, begin, more = 0, b'{"events":[', True
        while more:
            read = partial(_events, identity=identity, after=after, most=streams.BATCH_BYTES)
            stored, more = await self.context.read(read)
            for item in stored:
                yield begin + encode(documents.event_document(item))
                after, begin = item.seq, b","
            self._show_events(request, identity, stored)
        yield b"]}"

    def _show_events(self, request: Request, identity: str, stored: Sequence[StoredEvent]) -> None:
        if any(item.status == Status.APPROVAL for item in stored):
            self.context.shows(request, [identity])

    def _stream(self, request: Request, identity: str) -> Response:
        """Return the stream of a known payment. Raise Problem."""
        language, after = self._language_of(request), streams.resume_after(request, parameters.LAST_EVENT_ID) or 0
        reader = _EventReader(self.context, identity, partial(self._standing, language=language), after)
        answer = self.context.streams.answer
        return answer(request, "events", identity, reader.read, transaction=identity, language=language)

    async def get_history(self, request: Request) -> Response:
        """`GET /transactions/{id}/history`: all events, calls and decisions, with their users."""
        transaction = await self._get(parameters.path(request, parameters.TRANSACTION_ID))
        return json_response(await self.context.read(partial(documents.history_document, transaction=transaction)))

    async def abort_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/abort`."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        parameters.check_no_body(request)
        work = partial(self.aborts.abort, identity, request.state.uid)
        transaction = await self._or_ended(request, identity, self.payments.recorded(identity, work))
        return await self._answer(request, transaction, 202)

    async def reconcile_transaction(self, request: Request) -> Response:
        """`POST /transactions/{id}/reconcile`: search for the transaction now."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        parameters.check_no_body(request)
        work = partial(self.reconciler.reconcile, identity)
        return await self._answer(request, await self.payments.recorded(identity, work))

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
        """Apply an operator's decision."""
        identity = parameters.path(request, parameters.TRANSACTION_ID)
        decision, facts = decided(DECISIONS[call], request.state.body, request.state.uid, f"cannot {call}")
        work = partial(self.payments.decide, identity, decision, facts)
        transaction = await self._or_ended(request, identity, self.payments.recorded(identity, work))
        return await self._answer(request, transaction)

    async def _or_ended(self, request: Request, identity: str, work: Awaitable[model.Transaction]) -> model.Transaction:
        """Await a call. If its Problem is that the transaction has already ended, add the outcome to the Problem."""
        try:
            return await work
        except Problem as problem:
            if problem.code == "already_final":
                outcome_of = partial(self._outcome, identity=identity, language=self._language_of(request))
                problem.extra["outcome"] = outcome = await self.context.look_up(outcome_of)
                self.context.shows(request, approvals(outcome))
            raise

    async def list_transactions(self, request: Request) -> Response:
        """`GET /transactions`: newest first, filtered, in pages."""
        query = request.state.query
        metadata, summed = query.pop(parameters.METADATA), query.pop("totals")
        page = TransactionQuery(**query, metadata=metadata)
        parameters.check_alone(page, summed=summed)
        now, language = self.context.now(), self._language_of(request)

        def read(db: sqlite3.Connection) -> TransactionPage:
            found, cursor = lists.read_page(db, page)
            return TransactionPage([self._view(db, row, now, language) for row in found], cursor)

        def read_with_totals(db: sqlite3.Connection) -> Generator[None, None, TransactionPage]:
            found = read(db)
            return replace(found, totals=(yield from lists.read_totals(db, page)))

        if summed:
            async with self.summing:
                found = await self.context.read_in_steps(read_with_totals, request.state.pieces)
        else:
            found = await self.context.read(read)
        if not page.attention:  # a list of attentions does not count as reading the outcome
            self.context.shows(request, approvals(*found.transactions))
        return await page_response(found, language)

    async def _read(self, request: Request, identity: str, status: int) -> Response:
        """Return the transaction of that id as a response, by one read of the database. Raise Problem."""
        now, language = self.context.now(), self._language_of(request)

        def view(db: sqlite3.Connection) -> Transaction:
            transaction = self._known(db, identity)
            return self._view(None if _stands_alone(transaction) else db, transaction, now, language)

        return self._show(request, await self._look_up(identity, view), language, status)

    async def _get(self, identity: str) -> model.Transaction:
        return await self._look_up(identity, partial(self._known, identity=identity))

    async def _look_up(self, identity: str, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a read. Raise Problem.

        While a call that starts the transaction is open, wait until the transaction is recorded.
        """
        return await self.payments.recorded(identity, partial(self.context.look_up, function))

    def _known(self, db: sqlite3.Connection, identity: str) -> model.Transaction:
        """Return the transaction of that id. Raise Problem."""
        found = rows.get(db, identity)
        if found is None:
            raise self.context.not_here(rows.PAYMENT.missing(db, identity))
        return found

    async def _answer(self, request: Request, transaction: model.Transaction, status: int = 200) -> Response:
        """Return the current state of a transaction as a response."""
        language = self._language_of(request)
        view = partial(self._view, transaction=transaction, now=self.context.now(), language=language)
        try:
            shown = view(None) if _stands_alone(transaction) else await self.context.look_up(view)
        except Problem as problem:
            if transaction.outcome is not None:
                # A 503 would mean that nothing was sent, which is wrong after a start.
                detail = f"the transaction cannot be shown now: {problem.detail}"
                raise Problem("internal_error", detail, error_id=secrets.token_hex(8)) from problem
            shown = view(None)  # without the fields that need other rows of the database
        return self._show(request, shown, language, status)

    def _show(
        self, request: Request, shown: Transaction | TransactionOutcome, language: Language, status: int = 200
    ) -> Response:
        self.context.shows(request, approvals(shown))
        return json_response(shown, status, language)

    def _view(
        self, db: sqlite3.Connection | None, transaction: model.Transaction, now: datetime, language: Language
    ) -> documents.Transaction:
        return documents.transaction_document(
            db,
            transaction,
            self._step(transaction, now),
            language,
            abortable=self.aborts.possible(transaction),
            missing_proof=self.reconciler.missing_proof(db, transaction),
        )

    def _outcome(self, db: sqlite3.Connection, identity: str, language: Language) -> TransactionOutcome | None:
        """Return the outcome of a transaction, or None. Raise Problem."""
        transaction = self._known(db, identity)
        return documents.transaction_outcome(db, transaction, self._step(transaction, self.context.now()), language)

    def _standing(self, db: sqlite3.Connection, identity: str, language: Language) -> TransactionStanding:
        """Return the state of a transaction. Raise Problem."""
        transaction, now = self._known(db, identity), self.context.now()
        step = self._step(transaction, now)
        lacks = self.reconciler.missing_proof(db, transaction)
        return (
            documents.state_document(transaction, step, language, lacks),
            documents.transaction_outcome(db, transaction, step, language),
            self._again(transaction, now),
        )

    def _again(self, transaction: model.Transaction, now: datetime) -> float | None:
        """Return the seconds after which the shown state may change without a change of the transaction, or None.

        The next step changes when the grace of a doubt ends (`first_event_grace_seconds`), or after `LONG_WAIT`, when
        no customer waits any more. Missing proofs depend on the terminal and the configuration, so they are read again
        at each heartbeat.
        """
        if transaction.phase is Phase.IN_DOUBT:
            left = model.grace_left(transaction, now, self._grace)
            return streams.HEARTBEAT_SECONDS if left is None else (left + AFTER_THE_GRACE).total_seconds()
        left = model.grace_left(transaction, now, self._grace) if model.end_unseen(transaction) else None
        if left is None and model.unaccounted(transaction):
            left = model.wait_left(transaction, now)
        return None if left is None else (left + AFTER_THE_GRACE).total_seconds()

    def _step(self, transaction: model.Transaction, now: datetime) -> NextStep:
        if self.context.is_blind and transaction.phase is not Phase.FINAL:
            return NextStep.ASK_PERSON
        return model.next_step(transaction, now, self._grace)

    def _language_of(self, request: Request) -> Language:
        """Return the requested language of the texts for a cashier."""
        usual = Language(self.config.local_api.language)
        return preferred_language(request.state.headers[at.ACCEPT_LANGUAGE.name], usual)


def approvals(*shown: Transaction | TransactionOutcome | None) -> list[str]:
    """Return the ids of the approved transactions."""
    outcomes = [(item, item if isinstance(item, TransactionOutcome) else item.outcome) for item in shown if item]
    return [item.client_transaction_id for item, said in outcomes if said and said.result is Result.APPROVED]


def _ended(change: RecordedChange) -> bool:
    """Whether a transaction has an outcome after a change. Without one, a waiting call need not read the database."""
    return change.result is not None


def _stands_alone(transaction: model.Transaction) -> bool:
    """Whether a transaction can be shown without reading other rows."""
    known = transaction.derives_from or transaction.transaction_reference is None
    return transaction.outcome is None and bool(known) and transaction.phase is not Phase.IN_DOUBT
