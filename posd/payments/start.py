"""Starting transactions (architecture, The way of a payment).

Each call runs as a task of its own, so that a till that hangs up changes nothing, and calls of one id run one after the
other, so that a repeated call is answered from what the first one did. The intent is committed, the request is sent
once, the answer is judged and committed. What can crash between two of these leaves `starting` on disk, which the next
start of the daemon turns into `in_doubt`.
"""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from itertools import islice

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.base.times import iso
from posd.payments import chains, rows
from posd.payments.chains import place
from posd.payments.entries import Attempted
from posd.payments.model import OperationType, Transaction, may_be_paid
from posd.payments.record import CallsInFlight, begin, record
from posd.payments.request import StartRequest, differing_fields, read_start, start_body
from posd.payments.wire import NAMES, judge
from posd.records import pruned
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.per_id_lock import Running
from posd.records.request import Fault, MalformedJson, check, malformed
from posd.storage.batch import Unit
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.terminals.attempt import Attempt, NotSent, Replied
from posd.terminals.contact import TerminalRequest
from posd.terminals.fleet import Fleet

# Recording the intent of a transaction: every guard against paying twice, in one commit with the lease.

#: Transactions that a `sale_conflict` names; a sale has one or two, and a till that always says the same has all.
MAX_CONFLICTS_SHOWN = 20


class Intended(msgspec.Struct, frozen=True):
    """A transaction whose intent is recorded, and the request that starts it, ready to be sent."""

    transaction: Transaction
    request: TerminalRequest


class Existing(msgspec.Struct, frozen=True):
    """The id was there already when the intent was to be recorded."""

    transaction: Transaction


class Intents:
    """Records intents, inside a commit. `zone` is the merchant's: its calendar decides what a void is."""

    def __init__(self, fleet: Fleet, outstanding: CallsInFlight, zone: tzinfo) -> None:
        self._fleet = fleet
        self._outstanding = outstanding
        self._zone = zone

    def record(self, unit: Unit, draft: Transaction, callback_url: str) -> Intended | Existing:
        """Take the terminal and record the transaction, or return what is known under its id.

        Raise Problem where one of the guards refuses it: nothing is recorded.
        """
        existing = rows.get(unit.db, draft.client_transaction_id)
        if existing is not None:
            return Existing(existing)
        pruned.refuse_payment(unit.db, draft.client_transaction_id)  # pruned
        transaction = place(unit, draft, self._zone)  # unknown_original, already_derived
        intended = self._request(transaction, callback_url)  # nothing of it can fail once the intent is on disk
        self._refuse_sale(unit, transaction)  # sale_conflict
        self._refuse_busy(unit, transaction)  # terminal_busy
        begin(unit, transaction, "intent")
        rows.take_lease(unit, transaction.terminal, transaction.client_transaction_id)
        return intended

    def _request(self, transaction: Transaction, callback_url: str) -> Intended:
        """Return the one request that starts it."""
        operation = transaction.type or OperationType.CHARGE
        body = start_body(transaction, callback_url)
        request = self._fleet.request(transaction.terminal, operation, transaction.sent_to or "", body)
        return Intended(transaction, request)

    def _refuse_sale(self, unit: Unit, transaction: Transaction) -> None:
        """Raise Problem where another transaction of the sale is open, approved or unsettled, on any terminal.

        Those of its own chain are of the same sale and no second payment for it; `place` guards them.
        """
        if transaction.sale is None or transaction.repeat:
            return
        chain = set(chains.family(unit.db, transaction)) if transaction.derives_from else set()
        claims = (
            other
            for other in rows.of_sale(unit.db, transaction.sale)
            if may_be_paid(other) and other.client_transaction_id not in chain
        )
        others = [other.client_transaction_id for other in islice(claims, MAX_CONFLICTS_SHOWN)]
        if others:
            raise Problem(
                "sale_conflict",
                f"cannot start: sale {transaction.sale} already has a payment that is open or approved "
                f"({', '.join(others)}); look at it first. If this is a further payment for the same sale, say so "
                'with "repeat": true',
                transactions=others,
            )

    def _refuse_busy(self, unit: Unit, transaction: Transaction) -> None:
        """Raise Problem where another transaction holds the terminal, and is open or has a call under way."""
        holder = rows.lease_holder(unit.db, transaction.terminal)
        blocking = rows.get(unit.db, holder) if holder else None
        if blocking is None:
            return
        identity = blocking.client_transaction_id
        if blocking.phase is not Phase.FINAL or self._outstanding.of(identity):
            raise Problem(
                "terminal_busy",
                f"cannot start: terminal {transaction.terminal} is still busy with {identity} "
                f"({blocking.status or blocking.phase} since {blocking.updated_at}); wait for it, abort it "
                f"(posd abort {identity}) or free the terminal (posd release {identity})",
                blocking_transaction=identity,
            )


#: While the disk is full, how often the judgement of a start is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0


log = structlog.get_logger("posd.payments")


class Payments:
    """Use cases of the till: start."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        intents: Intents,
        callback_urls: CallbackUrls,
        outstanding: CallsInFlight,
        now: Callable[[], datetime],
        on_called_back_at: Callable[[str], None] = lambda _host: None,
    ) -> None:
        """`on_called_back_at`: called with the address of this machine in a callback URL, once that is recorded."""
        self._store = store
        self._fleet = fleet
        self._intents = intents
        self._callback_urls = callback_urls
        self._outstanding = outstanding
        self._now = now
        self._running = Running()
        self._newest: dict[str, Transaction] = {}  # the intent that counts, of ids whose start is not concluded
        self._draining = False
        self._on_called_back_at = on_called_back_at

    async def start(
        self, client_transaction_id: str, body: bytes, refusal: Problem | None = None
    ) -> tuple[Transaction, bool]:
        """Start a transaction, or answer for one that is known: the transaction, and whether it was started now.

        `refusal` is what is wrong with the call as such; an id that is known is answered before it counts.
        Raise Problem: with a 4xx or 503 nothing was sent, and nothing of the call is recorded.
        """
        return await asyncio.shield(self._running.keep(self._start(client_transaction_id, body, refusal)))

    async def drain(self, seconds: float) -> None:
        """Start nothing any more; give calls under way some seconds, then stop waiting for their replies.

        A start whose reply is not waited for is judged like any other lost reply, and that is committed.
        """
        self._draining = True
        await self._running.wait(seconds)
        self._fleet.hurry()
        await self._running.wait()

    async def _start(
        self, client_transaction_id: str, body: bytes, refusal: Problem | None
    ) -> tuple[Transaction, bool]:
        request = StartRequest()
        faults: tuple[Fault, ...] = (Fault("", "is not a request"),)
        try:
            request, faults = read_start(body)
        except MalformedJson as error:
            refusal = refusal or malformed(error, "nothing was started")
        async with self._running.alone(client_transaction_id):
            known = await self._look_up(client_transaction_id)
            if known is not None:
                return _same(known, request, faults), False
            if refusal is not None:
                raise refusal
            transaction = await self._plan(client_transaction_id, request, faults)
            assert transaction.sent_to is not None  # noqa: S101 - `_plan` gives it the terminal's address
            callback = await self._callback_urls.give(
                Channel.TRANSACTION,
                client_transaction_id,
                transaction.sent_to,
                self._fleet.access_mode(transaction.terminal),
            )
            transaction = msgspec.structs.replace(transaction, callback_host=callback.host)
            recorded = await self._run(transaction, callback.url)
            if isinstance(recorded, Existing):
                return _same(recorded.transaction, request, faults), False
            return recorded, True

    async def _look_up(self, client_transaction_id: str) -> Transaction | None:
        try:
            return await self._store.look_up(partial(_known, client_transaction_id=client_transaction_id))
        except StorageUnavailable as error:
            # No 503 here: it would say that nothing was sent under this id, and that is not known.
            raise _not_known(client_transaction_id, error) from error

    async def _plan(self, client_transaction_id: str, request: StartRequest, faults: tuple[Fault, ...]) -> Transaction:
        """Return the transaction that the request asks for. Raise Problem: nothing is recorded."""
        check(faults, "cannot start")
        serial = self._fleet.resolve(request.terminal)
        address = await self._fleet.addresses.choose(serial)
        if address is None:
            raise Problem(
                "terminal_offline",
                f"cannot start: no address of terminal {serial} is known; check that it is switched on and in this "
                "network (posd terminals), or give it a base_url in the configuration",
            )
        if self._draining:
            raise Problem("draining", "posd is stopping; repeat the same call in a moment")
        at = iso(self._now())
        return Transaction(
            client_transaction_id=client_transaction_id,
            terminal=serial,
            type=request.type,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            sale=request.sale,
            amount=request.amount,
            metadata=request.metadata,
            options=request.options,
            transaction_reference=request.transaction_reference,
            original=request.original,
            repeat=request.repeat,
            sent_to=address[0],
        )

    async def _run(self, draft: Transaction, callback_url: str) -> "Transaction | Existing":
        """Commit the intent, send the request, commit what the answer proves; return the transaction as recorded."""
        identity = draft.client_transaction_id
        transaction, certain = draft, True
        self._newest[identity] = draft
        with self._outstanding.call(identity):
            try:
                intended = await self._intend(draft, callback_url)
            except CommitUncertain as error:
                log.warning("payment.commit_uncertain", transaction=identity, error=str(error))
                attempt: Attempt = NotSent("its intent could not be committed for certain, so it was not sent")
                certain = False
            else:
                if isinstance(intended, Existing):  # a callback was faster than the till: an orphan
                    return intended
                transaction = intended.transaction
                attempt = await self._send(intended)
        try:
            concluded = await self._conclude(draft, attempt)
        except Exception as error:
            self._report(identity, error)
            self._running.keep(self._conclude_later(draft, attempt))
            if not certain:
                raise _not_known(identity, error) from error
            return transaction
        if concluded is None:
            raise _unavailable(StorageUnavailable("the commit failed"))
        return concluded

    async def _intend(self, draft: Transaction, callback_url: str) -> "Intended | Existing":
        """Commit the intent and the lease; return it, or what was there already. Raise Problem, CommitUncertain."""
        crash_point("start.before_intent")
        try:
            intended = await self._store.write(partial(self._intents.record, draft=draft, callback_url=callback_url))
        except CommitUncertain:
            raise
        except Exception as error:
            del self._newest[draft.client_transaction_id]
            if isinstance(error, StorageUnavailable):
                raise _unavailable(error) from error
            raise
        if isinstance(intended, Existing):
            del self._newest[draft.client_transaction_id]
        crash_point("start.intended")
        if isinstance(intended, Intended) and intended.transaction.callback_host is not None:
            self._on_called_back_at(intended.transaction.callback_host)
        return intended

    async def _send(self, intended: Intended) -> Attempt:
        transaction = intended.transaction
        contact, request = self._fleet.contact, intended.request
        crash_point("start.before_send")
        attempt = await contact.call(
            request,
            written=partial(_written, transaction),
            connected=partial(contact.note_start, request.terminal, request.base_url),
        )
        crash_point("start.replied")
        return attempt

    async def _conclude(self, transaction: Transaction, attempt: Attempt) -> Transaction | None:
        """Commit what the attempt proves; None where the intent had not come to disk. Raise what the store raises."""
        identity = transaction.client_transaction_id
        concluded = await self._store.write(
            partial(self._record_attempt, transaction=transaction, attempt=attempt, now=self._now())
        )
        if self._newest.get(identity) is transaction:
            del self._newest[identity]
        crash_point("start.concluded")
        judgement = judge(attempt, identity)
        log.info(
            "payment.answered",
            transaction=identity,
            terminal=transaction.terminal,
            judgement=NAMES[type(judgement)],
            phase=concluded.phase if concluded else None,
            reason=getattr(judgement, "reason", None),
            http_status=attempt.status if isinstance(attempt, Replied) else None,
        )
        return concluded

    async def _conclude_later(self, transaction: Transaction, attempt: Attempt) -> None:
        """Try again until the store takes it, or posd stops: the next start then puts the transaction in doubt.

        A later call may have started the id meanwhile, where the intent of this one had not come to disk: then what
        this attempt proves is of no account any more.
        """
        while not self._draining:
            await asyncio.sleep(RETRY_STORING_SECONDS)
            with suppress(Exception):  # it was told the first time
                await self._conclude(transaction, attempt)
                return

    def _report(self, identity: str, error: Exception) -> None:
        """Tell once that what an attempt proves could not be recorded."""
        if isinstance(error, StorageUnavailable | CommitUncertain):
            log.warning("payment.not_recorded", transaction=identity, error=str(error))
        else:
            log.error("posd.internal_error", error_id=secrets.token_hex(8), transaction=identity, exc_info=error)

    def _record_attempt(
        self, unit: Unit, transaction: Transaction, attempt: Attempt, now: datetime
    ) -> Transaction | None:
        """Record what the attempt proves; None where the intent had not come to disk."""
        before = rows.get(unit.db, transaction.client_transaction_id)
        if before is None or self._newest.get(transaction.client_transaction_id) is not transaction:
            return None
        return record(unit, before, Attempted(attempt), now, self._outstanding)


def _known(db: sqlite3.Connection, client_transaction_id: str) -> Transaction | None:
    """Return the transaction of that id, None where it is free. Raise Problem `pruned`."""
    found = rows.get(db, client_transaction_id)
    if found is None:
        pruned.refuse_payment(db, client_transaction_id)
    return found


def _written(transaction: Transaction) -> None:
    """Tell that the request is on its way; not before that, so that the terminal does not wait for the log."""
    crash_point("start.written")
    log.info(
        "payment.started",
        transaction=transaction.client_transaction_id,
        terminal=transaction.terminal,
        type=transaction.type,
    )


def _same(known: Transaction, request: StartRequest, faults: tuple[Fault, ...]) -> Transaction:
    """Return the transaction where the repeated call asks for the same. Raise Problem id_reused."""
    fields = differing_fields(known, request, faults)
    if fields:
        raise Problem(
            "id_reused",
            f"{known.client_transaction_id} was already used for another request (different: {', '.join(fields)}); "
            "it stands as it is. Ask for it by GET, and choose a new id for a new payment",
            fields=fields,
        )
    return known


def _not_known(client_transaction_id: str, error: Exception) -> Problem:
    """Return the answer where nobody can say now whether something was sent under the id: repeat the call."""
    error_id = secrets.token_hex(8)
    log.warning("payment.not_readable", transaction=client_transaction_id, error=str(error), error_id=error_id)
    return Problem(
        "internal_error",
        f"it cannot be looked up whether this id was started: {error}; repeat the same call with the same id, and "
        "check the disk",
        error_id=error_id,
    )


def _unavailable(error: Exception) -> Problem:
    return Problem(
        "storage_unavailable",
        f"cannot do it now: {error}; nothing was sent and nothing recorded. Repeat the same call; "
        "if it stays so, check the disk",
    )


def _fields(fault: Fault) -> dict[str, str]:
    return {"path": fault.path, "message": fault.message}
