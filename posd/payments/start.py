"""Starting a payment, in six steps (architecture, The way of a payment).

1. An id that is known is answered from the record. Calls of one id run one after the other.
2. The request is checked; a request that is refused records nothing and sends nothing.
3. The intent and the terminal's lease are recorded, in one commit with every guard against paying twice.
4. The request is sent, once.
5. The answer is judged, and what it proves is recorded.
6. A crash between two of these leaves `starting` on disk, which the next daemon turns into `in_doubt`
   (`payments.recovery`).

Each call runs as a task of its own: a till that hangs up changes nothing.
"""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import FREE_FOR_PAYMENTS
from posd.base.money import AmountUnit, digits_of
from posd.base.problems import Problem
from posd.base.times import iso
from posd.clock import kernel
from posd.config.profile import Row
from posd.httpd.senders import Sender
from posd.payments import chains, rows
from posd.payments.amounts import NOTHING_MORE, AmountRules, on_wire, unfit
from posd.payments.entries import Attempted
from posd.payments.model import OperationType, Transaction, amount_total, may_be_paid
from posd.payments.record import CallsInFlight, begin, record
from posd.payments.request import StartRequest, amount_faults, differing_fields, read_start, start_body
from posd.payments.wire import NAMES
from posd.records import pruned, terminal_addresses
from posd.records.callback_urls import Callback, CallbackUrls
from posd.records.intake import Intake
from posd.records.model import Phase
from posd.records.request import Fault, MalformedJson, check, malformed, unsignable
from posd.records.start import (
    RETRY_STORING_SECONDS,
    Destination,
    Missing,
    Running,
    destination,
    draining,
    not_known,
    of_unknown_id,
    require_same,
    unavailable,
)
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit
from posd.terminals.attempt import Attempt, NotSent, Replied, Withheld
from posd.terminals.contact import TerminalRequest
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Trusted

#: Transactions that a `sale_conflict` names; a sale has one or two, and a till that always says the same has all.
MAX_CONFLICTS_SHOWN = 20

#: The codes of the problems with which a start is refused.
REFUSALS = (
    "malformed_json",
    "unknown_terminal",
    "terminal_offline",
    "identity_conflict",
    "terminal_busy",
    "id_reused",
    "sale_conflict",
    "expired",
    "clock_unsure",
    "already_derived",
    "chain_conflict",
    "unknown_original",
    "amount_exceeds",
    "pruned",
    "restore_unseen",
    "limit_reached",
    "storage_unavailable",
    "draining",
)

log = structlog.get_logger("posd.payments")


Found = TypeVar("Found")


class Until(msgspec.Struct, frozen=True):
    """Until when a request may be handed to the terminal: by the wall clock, and by the one that no person sets."""

    moment: datetime
    elapsed: float  # seconds since the boot

    def passed(self, now: datetime, elapsed: float) -> bool:
        """Whether that is over by either of the two."""
        return now >= self.moment or elapsed >= self.elapsed


class Way(msgspec.Struct, frozen=True):
    """Where a request goes, where its events come to, and until when it may be sent, None for always.

    `errors_in_2xx`: what the profile says of an error in an answer of 2xx. `amount_unit`: of the amount that is sent,
    for which the request was checked.
    """

    to: Destination
    callback: Callback
    until: Until | None = None
    errors_in_2xx: bool = False
    amount_unit: AmountUnit = "main"


class Payments:
    """Use case of the till: start."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        callback_urls: CallbackUrls,
        outstanding: CallsInFlight,
        zone: tzinfo,
        now: Callable[[], datetime],
        on_called_back_at: Callable[[str], None] = lambda _host: None,
        refuse_unseen: Callable[[], None] = lambda: None,
        intake: Intake | None = None,
        amounts: AmountRules = NOTHING_MORE,
        clock_doubt: Callable[[], str | None] = lambda: None,
        elapsed: Callable[[], float] = kernel.elapsed,
        missing: Missing = lambda: None,
        currencies: Callable[[sqlite3.Connection, str], Collection[str]] = lambda _db, _terminal: (),
    ) -> None:
        """`zone` is the merchant's: its calendar decides what a void is. `amounts`: what the configuration admits.

        `clock_doubt`: why the wall clock is not to be believed now, None where it is.
        `elapsed`: seconds since the boot, sleep included. `currencies`: those that a terminal is known to charge in.

        `refuse_unseen`: raises Problem where an id that is not known may have been sent before.
        `on_called_back_at`: called with the address of this machine in a callback URL, once that is recorded.
        """
        self._store = store
        self._fleet = fleet
        self._callback_urls = callback_urls
        self._outstanding = outstanding
        self._zone = zone
        self._now = now
        self._on_called_back_at = on_called_back_at
        self._refuse_unseen = refuse_unseen
        self._intake = intake or Intake()
        self._amounts = amounts
        self._clock_doubt = clock_doubt
        self._elapsed = elapsed
        self._missing = missing
        self._currencies = currencies
        self._running = Running()
        self._newest: dict[str, Transaction] = {}  # the intent that counts, of ids whose start is not concluded
        self._draining = False

    async def start(
        self, client_transaction_id: str, body: bytes, refusal: Problem | None = None, sender: Sender | None = None
    ) -> tuple[Transaction, bool]:
        """Start a transaction, or answer for one that is known: the transaction, and whether it was started now.

        `refusal` is what is wrong with the call as such; an id that is known is answered before it counts. `sender` is
        the process that asks, None where it is not counted.
        Raise Problem: with a 4xx or 503 nothing was sent, and nothing of the call is recorded.
        """
        return await asyncio.shield(self._running.keep(self._start(client_transaction_id, body, refusal, sender)))

    async def drain(self, seconds: float) -> None:
        """Start nothing any more; give calls under way some seconds, then stop waiting for their replies.

        A start whose reply is not waited for is judged like any other lost reply, and that is committed.
        """
        self._draining = True
        await self._running.wait(seconds)
        self._fleet.hurry()
        await self._running.wait()

    async def _start(
        self, identity: str, body: bytes, refusal: Problem | None, sender: Sender | None
    ) -> tuple[Transaction, bool]:
        request = StartRequest()
        faults: tuple[Fault, ...] = (Fault("", "is not a request"),)
        try:
            request, faults = read_start(body, self._amounts)
        except MalformedJson as error:
            refusal = refusal or malformed(error, "nothing was started")
        async with self._running.alone(identity):
            known = await self._look_up(identity)
            if known is None:
                with of_unknown_id(self._missing):
                    if refusal is not None:
                        raise refusal
                    draft, way = await self._draft(identity, request, faults)
                    self._intake.require_free(FREE_FOR_PAYMENTS, "cannot start")
                    self._intake.payments.require(sender, len(body), "cannot start")
                    known, started = await self._run(draft, way)
                if started:
                    self._intake.payments.take(sender, len(body))
                    return known, True
        require_same(identity, differing_fields(known, request, faults), used_for="request", new_id_for="payment")
        return known, False

    # 1. An id that is known is answered from the record.

    async def _look_up(self, identity: str) -> Transaction | None:
        """Return what is recorded under the id, None where it is free. Raise Problem."""

        def look(db: sqlite3.Connection) -> Transaction | None:
            found = rows.get(db, identity)
            if found is None:
                pruned.refuse_payment(db, identity)
            return found

        return await self._look(identity, look)

    async def _look(self, identity: str, function: Callable[[sqlite3.Connection], Found]) -> Found:
        """Return what is found for a call of that id. Raise Problem."""
        try:
            return await self._store.look_up(function)
        except StorageUnavailable as error:
            raise self._not_known(identity, error) from error

    # 2. The request is checked.

    async def _draft(self, identity: str, request: StartRequest, faults: tuple[Fault, ...]) -> tuple[Transaction, Way]:
        """Return what the request asks for, and the way that it would go. Raise Problem: nothing is recorded."""
        check(faults, "cannot start")
        terminal = self._fleet.resolve(request.terminal or await self._terminal_of_original(identity, request))
        units = self._fleet.units(terminal)  # once: a reload may come before the commit
        decimals = await self._decimals(identity, terminal)
        check(amount_faults(unfit(request.amount, units.sent, decimals)), "cannot start")
        self._refuse_beyond_maximum(request)
        self._require_sendable(terminal, request, units.sent)
        until = self._until(request.not_after)
        row = self._fleet.rows(terminal)[request.type]
        way = await self._way(identity, terminal, until, row, units.sent)
        if self._draining:
            raise draining()
        at = iso(self._now())
        draft = Transaction(
            client_transaction_id=identity,
            terminal=terminal,
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
            repeat=request.additional,
            sent_to=way.to.base_url,
            answer_unit=units.answered,
            callback_host=way.callback.host,
        )
        return draft, way

    async def _decimals(self, identity: str, terminal: str) -> int:
        """Return how many digits after the point an amount may have: as configured, else by the currency."""
        if self._amounts.decimals is not None:
            return self._amounts.decimals
        return digits_of(await self._look(identity, lambda db: self._currencies(db, terminal)))

    def _refuse_beyond_maximum(self, request: StartRequest) -> None:
        """Raise Problem where the sum is above what the configuration allows, whichever way the money goes."""
        most, asked = self._amounts.max_amount, amount_total(request.amount)
        if most is not None and asked > most:
            raise Problem(
                "amount_exceeds",
                f"cannot start: {request.type} asks for {asked}, and [amounts] max_amount in the configuration is "
                f"{most}. Correct the amount; no {request.type} was sent",
                asked=asked,
                allowed=most,
                transactions=[],
            )

    def _require_sendable(self, terminal: str, request: StartRequest, unit: AmountUnit) -> None:
        """Raise Problem where the terminal cannot be sent this: what is signed, or not at this time."""
        auth = self._fleet.auth(terminal)
        if auth == "none":
            return
        parts = {"amount": on_wire(request.amount, unit), "metadata": request.metadata, "options": request.options}
        check(unsignable(parts, reserved=("options",) if auth == "hash-encrypt" else ()), "cannot start")
        if (doubt := self._clock_doubt()) is not None:
            raise Problem(
                "clock_unsure",
                f"cannot start: {doubt}, and calls to terminal {terminal} are signed with the time, which it compares "
                "with its own clock. Nothing was sent. Set the clock right, or have it confirmed (posd clock)",
            )

    async def _terminal_of_original(self, identity: str, request: StartRequest) -> str | None:
        """Return the terminal of what it derives from, None where none is known that is in the fleet."""
        if request.original is None and request.transaction_reference is None:
            return None
        named = partial(chains.named, original=request.original, reference=request.transaction_reference)
        original = await self._look(identity, named)
        return original.terminal if original is not None and original.terminal in self._fleet else None

    def _until(self, moment: datetime | None) -> Until | None:
        """Raise Problem expired where it has passed, clock_unsure where that cannot be told."""
        if moment is None:
            return None
        if (doubt := self._clock_doubt()) is not None:
            raise Problem(
                "clock_unsure",
                f"cannot start by `not_after`: {doubt}. Nothing was sent. Leave `not_after` out, or have the clock "
                "confirmed (posd clock)",
            )
        until = Until(moment, self._elapsed() + (moment - self._now()).total_seconds())
        self._refuse_late(until)
        return until

    def _refuse_late(self, until: Until) -> None:
        """Raise Problem where it may be sent no more."""
        now = self._now()
        if until.passed(now, self._elapsed()):
            self._refuse_unseen()  # an earlier call may have sent it: a new id could charge twice
            raise Problem(
                "expired",
                f"cannot start: it was to be sent until {iso(until.moment)}, and now it is {iso(now)}. Nothing was "
                "sent, and nothing will be. If the customer is still there, ask the customer and start anew, under a "
                "new id",
                not_after=iso(until.moment),
                now=iso(now),
            )

    async def _way(self, identity: str, terminal: str, until: Until | None, row: Row, amount_unit: AmountUnit) -> Way:
        """Return where its request would go, and where its events would come to."""
        to = await destination(self._fleet, terminal, "cannot start")
        callback = Callback("", None)
        if to.base_url is not None:
            mode = self._fleet.access_mode(terminal)
            try:
                callback = await self._callback_urls.give(Channel.TRANSACTION, identity, to.base_url, mode)
            except Problem as problem:
                to = Destination(None, problem=problem)
        return Way(to, callback, until, row.errors_in_2xx, amount_unit)

    async def _run(self, draft: Transaction, way: Way) -> tuple[Transaction, bool]:
        """Take steps 3 to 5; return the transaction as recorded, and whether it was started by this. Raise Problem."""
        identity = draft.client_transaction_id
        transaction, certain = draft, True
        self._newest[identity] = draft
        with self._outstanding.call(identity):
            try:
                transaction, request = await self._intend(draft, way)
            except CommitUncertain as error:
                log.warning("payment.commit_uncertain", transaction=identity, error=str(error))
                attempted = Attempted(NotSent("its intent could not be committed for certain, so it was not sent"))
                certain = False
            else:
                if request is None:  # a callback was faster than the till: an orphan
                    return transaction, False
                attempted = Attempted(await self._send(transaction, request, way.until), way.errors_in_2xx)
        try:
            concluded = await self._conclude(draft, attempted)
        except Exception as error:
            self._report(identity, error)
            self._running.keep(self._conclude_later(draft, attempted))
            if not certain:
                raise self._not_known(identity, error) from error
            return transaction, True
        if concluded is None:
            raise unavailable(StorageUnavailable("the commit failed"))
        return concluded, True

    # 3. The intent is recorded, with every guard against paying twice.

    async def _intend(self, draft: Transaction, way: Way) -> tuple[Transaction, TerminalRequest | None]:
        """Commit the intent and the lease; return the transaction, and the one request that starts it.

        No request where the id was there already. Raise Problem, CommitUncertain.
        """
        crash_point("start.before_intent")
        try:
            self._store.check_placed()
            transaction, request = await self._store.write(partial(self._record_intent, draft=draft, way=way))
        except CommitUncertain:
            raise
        except Exception as error:
            del self._newest[draft.client_transaction_id]
            if isinstance(error, StorageUnavailable):
                raise unavailable(error) from error
            raise
        if request is None:
            del self._newest[draft.client_transaction_id]
        elif way.to.trusted is not None:
            self._fleet.addresses.trust(transaction.terminal, way.to.trusted)
        crash_point("start.intended")
        if request is not None and transaction.callback_host is not None:
            self._on_called_back_at(transaction.callback_host)
        return transaction, request

    def _record_intent(self, unit: Unit, draft: Transaction, way: Way) -> tuple[Transaction, TerminalRequest | None]:
        """Record the intent (runs inside the commit). Raise Problem where a guard refuses it: nothing is recorded."""
        existing = rows.get(unit.db, draft.client_transaction_id)
        if existing is not None:
            return existing, None
        pruned.refuse_payment(unit.db, draft.client_transaction_id)  # pruned
        if way.until is not None:
            self._refuse_late(way.until)  # expired
        # unknown_original, already_derived, chain_conflict, amount_exceeds
        transaction = chains.place(unit, draft, self._zone, self._amounts)
        request = self._request(transaction, way)  # nothing of it can fail once the intent is on disk
        _refuse_sale(unit, transaction)  # sale_conflict
        self._refuse_unseen()  # restore_unseen
        _refuse_busy(unit, transaction, self._outstanding)  # terminal_busy
        if way.to.problem is not None:
            raise way.to.problem  # identity_conflict, terminal_offline
        if way.to.trusted is not None:
            terminal_addresses.put(unit, transaction.terminal, way.to.trusted)
        begin(unit, transaction, "intent")
        rows.take_lease(unit, transaction.terminal, transaction.client_transaction_id)
        return transaction, request

    def _request(self, transaction: Transaction, way: Way) -> TerminalRequest:
        """Return the one request that starts it."""
        operation = transaction.type or OperationType.CHARGE
        body = start_body(transaction, way.callback.url, way.amount_unit)
        return self._fleet.request(transaction.terminal, operation, transaction.sent_to or "", body)

    # 4. The request is sent, once.

    async def _send(self, transaction: Transaction, request: TerminalRequest, until: Until | None) -> Attempt:
        contact = self._fleet.contact

        def connected(certificate: str | None) -> None:
            """The last moment before bytes of it are on the network."""
            if until is not None and until.passed(self._now(), self._elapsed()):
                raise Withheld(f"its not_after, {iso(until.moment)}, had passed when the terminal could take it")
            contact.note_start(request.terminal, request.base_url, certificate)

        crash_point("start.before_send")
        attempt = await contact.call(request, written=partial(_written, transaction), connected=connected)
        crash_point("start.replied")
        return attempt

    # 5. The answer is judged, and what it proves is recorded.

    async def _conclude(self, transaction: Transaction, attempted: Attempted) -> Transaction | None:
        """Commit what the attempt proves; None where the intent had not come to disk. Raise what the store raises."""
        identity, sent_to = transaction.client_transaction_id, transaction.sent_to
        proved = self._fleet.addresses.proved(transaction.terminal, sent_to) if sent_to is not None else None
        concluded = await self._store.write(
            partial(self._record_attempt, transaction=transaction, attempted=attempted, now=self._now(), proved=proved)
        )
        if proved is not None:
            self._fleet.addresses.trust(transaction.terminal, proved)
        if self._newest.get(identity) is transaction:
            del self._newest[identity]
        crash_point("start.concluded")
        judgement, attempt = attempted.judgement(identity), attempted.attempt
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

    async def _conclude_later(self, transaction: Transaction, attempted: Attempted) -> None:
        """Try again until the store takes it, or posd stops: the next start then puts the transaction in doubt.

        A later call may have started the id meanwhile, where the intent of this one had not come to disk: then what
        this attempt proves is of no account any more.
        """
        while not self._draining:
            await asyncio.sleep(RETRY_STORING_SECONDS)
            with suppress(Exception):  # it was told the first time
                await self._conclude(transaction, attempted)
                return

    def _report(self, identity: str, error: Exception) -> None:
        """Tell once that what an attempt proves could not be recorded."""
        if isinstance(error, StorageUnavailable | CommitUncertain):
            log.warning("payment.not_recorded", transaction=identity, error=str(error))
        else:
            log.error("posd.internal_error", error_id=secrets.token_hex(8), transaction=identity, exc_info=error)

    def _record_attempt(
        self, unit: Unit, transaction: Transaction, attempted: Attempted, now: datetime, proved: Trusted | None
    ) -> Transaction | None:
        """Record what the attempt proves; None where the intent had not come to disk."""
        before = rows.get(unit.db, transaction.client_transaction_id)
        if before is None or self._newest.get(transaction.client_transaction_id) is not transaction:
            return None
        if proved is not None:
            terminal_addresses.proved(unit, transaction.terminal, proved)
        return record(unit, before, attempted, now, self._outstanding)

    def _not_known(self, identity: str, error: Exception) -> Problem:
        problem = not_known(error)
        log.warning("payment.not_readable", transaction=identity, error=str(error), error_id=problem.extra["error_id"])
        return problem


def _refuse_sale(unit: Unit, transaction: Transaction) -> None:
    """Raise Problem where another transaction of the sale is open, approved or unsettled, on any terminal.

    Those of its own chain are of the same sale and no second payment for it; `chains.place` guards them.
    """
    if transaction.sale is None or transaction.repeat:
        return
    chain = {item.client_transaction_id for item in chains.whole(unit.db, transaction)}
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
            'with "additional": true',
            transactions=others,
        )


def _refuse_busy(unit: Unit, transaction: Transaction, outstanding: CallsInFlight) -> None:
    """Raise Problem where another transaction holds the terminal, and is open or has a call under way."""
    holder = rows.lease_holder(unit.db, transaction.terminal)
    blocking = rows.get(unit.db, holder) if holder else None
    if blocking is None:
        return
    identity = blocking.client_transaction_id
    if blocking.phase is not Phase.FINAL or outstanding.of(identity):
        raise Problem(
            "terminal_busy",
            f"cannot start: terminal {transaction.terminal} is still busy with {identity} "
            f"({blocking.status or blocking.phase} since {blocking.updated_at}); wait for it, abort it "
            f"(posd abort {identity}) or free the terminal (posd release {identity})",
            blocking_transaction=identity,
        )


def _written(transaction: Transaction) -> None:
    """Log that the request is on its way; not before that, so that the terminal does not wait for the log."""
    crash_point("start.written")
    log.info(
        "payment.started",
        transaction=transaction.client_transaction_id,
        terminal=transaction.terminal,
        type=transaction.type,
    )
