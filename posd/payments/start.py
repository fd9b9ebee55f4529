"""Start of a payment, in six steps (architecture, Steps of a payment), and operators' decisions about payments.

1. A call with a known id is answered from the database. Calls with the same id run one after the other.
2. The request is checked. A refused request records nothing and sends nothing.
3. The intent and the terminal's lease are recorded in one commit, with every guard against a double payment.
4. The request is sent, once.
5. The reply is judged, and the result is recorded.
6. A crash between steps 3 and 5 leaves the phase `starting`. The next daemon changes it to `in_doubt`
   (`payments.record`).

Each call runs as a task of its own, so a till that disconnects does not stop it.
"""

from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import FREE_FOR_PAYMENTS
from posd.base.money import digits_of
from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config.profile import OperationRow
from posd.config.schema import AmountsConfig, TerminalConfig
from posd.payments import chains, rows
from posd.payments.amounts import NOTHING_MORE, on_wire, unfit
from posd.payments.answers import NAMES
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import Attempted, Dismissed, JudgedStart, Released
from posd.payments.model import Transaction, amount_and_tip
from posd.payments.record import begin, record
from posd.payments.request import (
    Decision,
    PaymentFacts,
    StartRequest,
    contradicted,
    differing_fields,
    read_start,
    start_body,
)
from posd.records import start as starts
from posd.records import terminals
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.request import RequestFault, check, unsignable
from posd.records.service import ServiceParts, decide, require_attention
from posd.records.start import Faults, Starts, destination, not_here, require_same, unavailable
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.attempt import Attempt, CallFailed, Replied, cut, size_of
from posd.terminals.identity import Trusted
from posd.terminals.terminal import FleetTerminal, TerminalRequest

#: Largest number of stored bytes of an acknowledgement, which may echo the till's metadata.
MAX_REPLY_BYTES = 64 * 1024

#: Problem codes of a refused start.
REFUSALS = (
    *starts.REFUSALS,
    "terminal_busy",
    "sale_conflict",
    "expired",
    "clock_unsure",
    "already_derived",
    "chain_conflict",
    "amount_exceeds",
    "restore_unseen",
)

log = structlog.get_logger("posd.payments")


class SendDeadline(msgspec.Struct, frozen=True):
    """Deadline from `not_after`, on the wall clock and on the boot clock (s)."""

    moment: datetime
    elapsed: float  # seconds since the boot

    def passed(self, now: datetime, elapsed: float) -> bool:
        """Whether the deadline has passed on either clock."""
        return now >= self.moment or elapsed >= self.elapsed


class StartRoute(msgspec.Struct, frozen=True):
    """Address, callback URL and deadline of a request to start a payment.

    `config` and `row`: the configuration by which the request was checked. `base_url`: address of the terminal, or None
    if the request cannot be sent; then `problem` has the reason. `trusted`: the trust record that the request creates,
    or None if it creates none. `until`: None without a deadline.
    """

    terminal: FleetTerminal
    config: TerminalConfig
    row: OperationRow
    base_url: str | None
    trusted: Trusted | None
    problem: Problem | None
    callback_url: str
    callback_host: str | None  # address of this machine in the callback URL; None if configured
    until: SendDeadline | None = None


class Payments(Starts[Transaction, StartRequest, tuple[Transaction, StartRoute]]):
    """Use cases of tills (start) and of operators (decide about a payment)."""

    kind = rows.PAYMENT
    free = FREE_FOR_PAYMENTS
    cannot = "cannot start"
    used_for = "request"
    new_id_for = "payment"

    def __init__(
        self,
        parts: ServiceParts,
        callback_urls: CallbackUrls,
        zone: tzinfo,
        approval_checks: ApprovalChecks,
        amounts: AmountsConfig = NOTHING_MORE,
        on_called_back_at: Callable[[str], None] = lambda _host: None,
    ) -> None:
        """`zone`: the merchant's time zone. Its calendar days decide whether a void is a cancellation or a refund.

        `approval_checks` knows the currencies of a terminal. `amounts`: `[amounts]` of the configuration.
        `on_called_back_at`: called after an intent is recorded, with this machine's address in its callback URL.
        """
        super().__init__(parts, parts.quotas.payments, StartRequest())
        self._parts = parts
        self._callback_urls = callback_urls
        self._zone = zone
        self._approval_checks = approval_checks
        self._amounts = amounts
        self._on_called_back_at = on_called_back_at
        self._newest: dict[str, Transaction] = {}  # id -> intent of the newest call, until the attempt is judged

    async def drain(self, seconds: float) -> None:
        """Refuse new starts. Wait some seconds for open calls, and then cancel their requests to terminals.

        A start without a reply is judged as a lost reply, and the judgement is committed.
        """
        self._draining = True
        await self._finish(seconds)
        self._fleet.cancel_calls()
        await self._finish()

    def _differing(self, known: Transaction, request: StartRequest, faults: Faults) -> list[str]:
        return differing_fields(known, request, faults)

    # 2. The request is checked.

    def _read(self, body: bytes) -> tuple[StartRequest, Faults]:
        return read_start(body, self._amounts)

    async def _draft(self, identity: str, request: StartRequest, faults: Faults) -> tuple[Transaction, StartRoute]:
        """Return the transaction to record, and its route. Raise Problem; then nothing is recorded."""
        check(faults, "cannot start")
        terminal = self._fleet.resolve(request.terminal or await self._terminal_of_original(identity, request))
        config, row = terminal.config, terminal.rows[request.type]
        decimals = await self._decimals(identity, terminal.serial)
        check(unfit(request.amount, config.amount_unit, decimals), "cannot start")
        self._refuse_beyond_maximum(request)
        self._require_sendable(config, request)
        until = self._until(request.not_after)
        way = await self._way(identity, terminal, config, row, until)
        self._refuse_draining()  # posd may have begun to stop during the steps above
        at = iso(self._now())
        draft = Transaction(
            client_transaction_id=identity,
            terminal=terminal.serial,
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
            sent_to=way.base_url,
            answer_unit=config.unit_of_answers,
            callback_host=way.callback_host,
        )
        return draft, way

    async def _decimals(self, identity: str, terminal: str) -> int:
        """Return how many decimal places an amount may have: the configured number, else the currency's."""
        if self._amounts.decimals is not None:
            return self._amounts.decimals
        checks = self._approval_checks
        currencies = checks.known_currencies(terminal)
        if currencies is None:
            currencies = await self._look(identity, partial(checks.read_currencies, terminal=terminal))
        return digits_of(currencies)

    def _refuse_beyond_maximum(self, request: StartRequest) -> None:
        """Raise Problem if the sum exceeds the configured limit. The limit applies to every type."""
        most, asked = self._amounts.max_amount, amount_and_tip(request.amount)[0]
        if most is not None and asked > most:
            raise Problem(
                "amount_exceeds",
                f"cannot start: {request.type} asks for {asked}, and [amounts] max_amount in the configuration is "
                f"{most}. Correct the amount; no {request.type} was sent",
                asked=asked,
                allowed=most,
                transactions=[],
            )

    def _require_sendable(self, config: TerminalConfig, request: StartRequest) -> None:
        """If calls to the terminal are signed, raise Problem for an unsignable request, or an untrusted clock."""
        if config.auth == "none":
            return
        amount = on_wire(request.amount, config.amount_unit)
        parts = {"amount": amount, "metadata": request.metadata, "options": request.options}
        check(unsignable(parts, reserved=("options",) if config.auth == "hash-encrypt" else ()), "cannot start")
        if (doubt := self._parts.clock_doubt()) is not None:
            raise Problem(
                "clock_unsure",
                f"cannot start: {doubt}, and calls to terminal {config.serial} are signed with the time, which the "
                "terminal compares with its own clock. Nothing was sent. Correct the clock, or confirm it (posd clock)",
            )

    async def _terminal_of_original(self, identity: str, request: StartRequest) -> str | None:
        """Return the terminal of the original, or None if it is unknown or not in the fleet."""
        if request.original is None and request.transaction_reference is None:
            return None
        named = partial(chains.named, original=request.original, reference=request.transaction_reference)
        original = await self._look(identity, named)
        return original.terminal if original is not None and original.terminal in self._fleet else None

    def _until(self, moment: datetime | None) -> SendDeadline | None:
        """Return the deadline for a `not_after`. Return None if the request has none.

        Raise Problem expired if the deadline has passed, and clock_unsure if posd does not trust the clock.
        """
        if moment is None:
            return None
        if (doubt := self._parts.clock_doubt()) is not None:
            raise Problem(
                "clock_unsure",
                f"cannot start with `not_after`: {doubt}. Nothing was sent. Omit `not_after`, or confirm the clock "
                "(posd clock)",
            )
        until = SendDeadline(moment, self._parts.elapsed() + (moment - self._now()).total_seconds())
        self._refuse_late(until)
        return until

    def _refuse_late(self, until: SendDeadline) -> None:
        """Raise Problem if the deadline has passed."""
        now = self._now()
        if until.passed(now, self._parts.elapsed()):
            # After a restore, an earlier call may have sent this id. Then a new id could cause a second charge.
            self._parts.refuse_unseen()
            raise Problem(
                "expired",
                f"cannot start: its time limit was {iso(until.moment)}, and now it is {iso(now)}. Nothing was "
                "sent, and nothing will be. If the customer is still there, ask the customer and start again, under a "
                "new id",
                not_after=iso(until.moment),
                now=iso(now),
            )

    async def _way(
        self,
        identity: str,
        terminal: FleetTerminal,
        config: TerminalConfig,
        row: OperationRow,
        until: SendDeadline | None,
    ) -> StartRoute:
        """Return the route of the request. Look up the address, and choose the callback URL."""
        base_url, problem = await destination(terminal, self.cannot)
        trusted, callback_url, callback_host = None, "", None
        if base_url is not None:
            trusted = terminal.addresses.to_trust(base_url)
            try:
                callback_url, callback_host = await self._callback_urls.url_and_host(
                    Channel.TRANSACTION, identity, base_url, config.access_mode
                )
            except Problem as no_route:
                base_url, trusted, problem = None, None, no_route
        return StartRoute(terminal, config, row, base_url, trusted, problem, callback_url, callback_host, until)

    async def _run(self, drafted: tuple[Transaction, StartRoute]) -> tuple[Transaction, bool]:
        """Run steps 3 to 5 of the start. Return the transaction, and whether this call recorded it."""
        draft, way = drafted
        identity = draft.client_transaction_id
        self._newest[identity] = draft
        conclude = partial(self._conclude, draft, way)
        uncertain: CommitUncertain | None = None
        with self._outstanding.call(identity):
            try:
                transaction, request = await self._intend(draft, way)
            except CommitUncertain as error:
                uncertain = error
            else:
                if request is None:  # the id exists: a callback has created an orphan meanwhile
                    return transaction, False
                attempt = await self._send(transaction, request, way.until)
        if uncertain is not None:
            # A later call may start the id meanwhile. Then the judgement of this attempt is dropped.
            return await self._resolve_uncertain(identity, uncertain, conclude), True
        try:
            return await conclude(attempt) or transaction, True
        except Exception as error:  # noqa: BLE001 - the error is logged, and the work is tried again
            self._settle_later(identity, error, partial(conclude, attempt))
            return transaction, True

    # 3. The intent is recorded, with every guard against a double payment.

    async def _intend(self, draft: Transaction, way: StartRoute) -> tuple[Transaction, TerminalRequest | None]:
        """Commit the intent and the lease. Return the transaction, and the one request that starts it.

        Return no request if the id existed already. Raise Problem, CommitUncertain.
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
            return transaction, None
        if way.trusted is not None:
            way.terminal.trust(way.trusted)
        crash_point("start.intended")
        if way.callback_host is not None:
            self._on_called_back_at(way.callback_host)
        return transaction, request

    def _record_intent(
        self, unit: WriteTransaction, draft: Transaction, way: StartRoute
    ) -> tuple[Transaction, TerminalRequest | None]:
        """Record the intent (inside the commit).

        Raise Problem if a guard refuses the start; then nothing is recorded. The comments name the problem codes.
        """
        existing = rows.get(unit.db, draft.client_transaction_id)
        if existing is not None:
            return existing, None
        rows.PAYMENT.refuse_pruned(unit.db, draft.client_transaction_id)  # pruned
        if way.until is not None:
            self._refuse_late(way.until)  # expired
        # unknown_original, already_derived, chain_conflict, amount_exceeds
        transaction, chain = chains.place(unit, draft, self._zone, self._amounts)
        request = self._request(transaction, way)  # build it first: after the intent is on disk nothing may fail
        chains.refuse_sale(unit, transaction, chain)  # sale_conflict
        self._parts.refuse_unseen()  # restore_unseen
        self._refuse_changed(transaction, way)  # terminal_offline
        chains.refuse_busy(unit, transaction, self._outstanding, partial(self._has_left, way))  # terminal_busy
        if way.problem is not None:
            raise way.problem  # identity_conflict, terminal_offline
        if way.trusted is not None:
            terminals.put(unit, transaction.terminal, way.trusted)
        begin(unit, transaction, "intent")
        rows.take_lease(unit, transaction.terminal, transaction.client_transaction_id)
        return transaction, request

    def _refuse_changed(self, transaction: Transaction, way: StartRoute) -> None:
        """Raise Problem if a reload has changed the terminal since the check. The device may have a new serial."""
        terminal, row = way.terminal, way.terminal.rows[transaction.type or OperationType.CHARGE]
        if not terminal.in_fleet or (terminal.config, row) != (way.config, way.row):
            raise Problem(
                "terminal_offline",
                f"cannot start: the configuration of terminal {transaction.terminal} was changed during this call. "
                "Nothing was sent. Repeat the same call",
            )

    def _has_left(self, way: StartRoute, serial: str) -> bool:
        """Return whether `serial` is not configured, or has another address than `way`. False outside the LAN."""
        known = self._fleet.get(serial)
        moved = known is None or known.config.base_url not in ("", way.base_url)
        return way.terminal.addresses.on_lan and moved

    def _request(self, transaction: Transaction, way: StartRoute) -> TerminalRequest:
        """Return the one request that starts a transaction."""
        operation = transaction.type or OperationType.CHARGE
        body = start_body(transaction, way.callback_url, way.config.amount_unit)
        return way.terminal.request(operation, transaction.sent_to or "", body)

    # 4. The request is sent, once.

    async def _send(self, transaction: Transaction, request: TerminalRequest, until: SendDeadline | None) -> Attempt:
        terminal = request.terminal

        def connected(certificate: str | None) -> None:
            """Check the deadline for the last time, just before the request is written."""
            if until is not None and until.passed(self._now(), self._parts.elapsed()):
                raise CallFailed(f"its not_after, {iso(until.moment)}, passed before it could be sent")
            terminal.note_start(request.base_url, certificate)

        crash_point("start.before_send")
        attempt = await terminal.call(request, written=partial(_written, transaction), connected=connected)
        crash_point("start.replied")
        if isinstance(attempt, Replied) and attempt.status < 300:  # a refusal ends the payment, so keep its whole reply
            attempt = cut(attempt, MAX_REPLY_BYTES)
        self._quotas.keep_event(terminal.serial, size_of(attempt))
        return attempt

    # 5. The reply is judged, and the result is recorded.

    async def _conclude(self, transaction: Transaction, way: StartRoute, attempt: Attempt) -> Transaction | None:
        """Commit the judgement of the attempt, and return the result of `_record_attempt`. Raise the store's errors."""
        identity, sent_to = transaction.client_transaction_id, transaction.sent_to
        start = JudgedStart.of(Attempted(attempt, way.row.errors_in_2xx), identity)
        proved = way.terminal.addresses.proved(sent_to) if sent_to is not None else None
        concluded = await self._store.write(
            partial(self._record_attempt, transaction=transaction, start=start, now=self._now(), proved=proved)
        )
        if proved is not None:
            way.terminal.trust(proved)
        if self._newest.get(identity) is transaction:
            del self._newest[identity]
        crash_point("start.concluded")
        phase = concluded.phase if concluded else None
        self._log_answered(identity, transaction.terminal, phase, start.judgement, attempt, NAMES)
        return concluded

    def _record_attempt(
        self,
        unit: WriteTransaction,
        transaction: Transaction,
        start: JudgedStart,
        now: datetime,
        proved: Trusted | None,
    ) -> Transaction | None:
        """Record the judgement of the attempt. Return the transaction.

        Return None if the intent did not reach the disk, or a later call has started the id.
        """
        before = rows.get(unit.db, transaction.client_transaction_id)
        if before is None or self._newest.get(transaction.client_transaction_id) is not transaction:
            return None
        if proved is not None:
            terminals.proved(unit, transaction.terminal, proved)
        return record(unit, before, start, now, self._outstanding)

    # Operators' decisions (local API: release, resolve, acknowledge). Decisions are audited, and are never a proof.

    async def decide(
        self, client_transaction_id: str, decision: Decision, facts: PaymentFacts | None = None
    ) -> Transaction:
        """Apply an operator's decision. Return the changed transaction. Raise Problem.

        `facts`: the operator's data about the payment.
        """
        work = partial(self._decide, client_transaction_id=client_transaction_id, decision=decision, facts=facts)
        return await decide(rows.PAYMENT, self._store, client_transaction_id, decision, work)

    def _decide(
        self, unit: WriteTransaction, client_transaction_id: str, decision: Decision, facts: PaymentFacts | None
    ) -> Transaction:
        before = rows.get(unit.db, client_transaction_id)
        if before is None:
            before = self._begin_lost(unit, client_transaction_id, facts)
        elif isinstance(decision, Dismissed):
            require_attention(before, decision.code, client_transaction_id)
        else:
            self._require_open_and_quiet(before)
            differing = list(contradicted(before, facts)) if facts else ()
            require_same(client_transaction_id, differing, used_for=self.used_for, new_id_for=self.new_id_for)
        after = record(unit, before, decision, self._now(), self._outstanding)
        if isinstance(decision, Released):
            rows.give_up_leases(unit, client_transaction_id)
        return after

    def _begin_lost(self, unit: WriteTransaction, identity: str, facts: PaymentFacts | None) -> Transaction:
        """Record an unknown payment that a restore may have lost. Raise Problem."""
        missing = self._missing()
        problem = not_here(rows.PAYMENT.missing(unit.db, identity), missing)
        if facts is None or missing is None or problem.code != "not_found":
            raise problem
        if facts.amount == b"{}":
            lacks = RequestFault(
                "/amount", f"is required: {identity} is not known here, but a restore may have lost it"
            )
            check((lacks,), "cannot resolve")
        terminal, at = self._fleet.resolve(facts.terminal), iso(self._now())
        lost = Transaction(
            client_transaction_id=identity,
            terminal=terminal.serial,
            type=facts.type or OperationType.CHARGE,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            sale=facts.sale,
            amount=facts.amount,
            original=facts.original,
            derives_from=facts.original if facts.original and rows.get(unit.db, facts.original) else None,
            answer_unit=terminal.config.unit_of_answers,
        )
        begin(unit, lost, "orphan")
        return lost

    def _require_open_and_quiet(self, transaction: Transaction) -> None:
        """Raise Problem if the transaction has ended, or has an open call to its terminal."""
        if (outcome := transaction.outcome) is not None:
            raise Problem("already_final", f"the payment has already ended ({outcome.result})")
        # A transaction in phase `starting` has an open start call until the reply is recorded.
        if self._outstanding.of(transaction.client_transaction_id) or transaction.phase is Phase.STARTING:
            raise Problem(
                "call_outstanding",
                f"a call to terminal {transaction.terminal} is under way for this payment; try again when it has "
                "returned, within half a minute",
            )


def _written(transaction: Transaction) -> None:
    """Log that the request was sent. Called after the request is written, so that it does not wait for the log."""
    crash_point("start.written")
    log.info(
        "payment.started",
        transaction=transaction.client_transaction_id,
        terminal=transaction.terminal,
        type=transaction.type,
    )
