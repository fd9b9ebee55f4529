"""The inbox of the transaction channel: what becomes of each authentic callback.

The event's raw bytes and its effect are one commit, and the answer comes after it. What a retry can cure answers with
a code that the terminal retries, what it cannot with one that it does not (terminal API, Delivery).
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import Limit
from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.doubts import Doubts
from posd.payments.entries import CallbackBrokeOff, Overrun, Quarantined, Reapplied, apply
from posd.payments.lifecycle import Verdict
from posd.payments.model import AttentionCode, Transaction
from posd.payments.outcomes import contradicts
from posd.payments.record import CallsInFlight, Received, begin, move, record, with_unit
from posd.payments.transitions import New, Seen, advance, limit_of_events, rebuild, recognise, urgent
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event
from posd.records import pruned, quarantine
from posd.records.came import Came, FirstHeaders
from posd.records.intake import Intake
from posd.records.intake import sender as sender_of
from posd.records.model import Phase
from posd.records.quarantine import NotUsable, QuarantinedBody
from posd.records.retention import Pruned
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit
from posd.terminals.auth.webhooks import Headers
from posd.terminals.fleet import Fleet

#: Transactions whose events are counted in memory: those of which events come now, one of each terminal.
MAX_COUNTED = 256

log = structlog.get_logger("posd.inbox")


class Refusal(Exception):
    """An authentic body that cannot be used: the HTTP status of the answer, and why.

    `serial`: of the terminal that sent it, where that is none of the fleet.
    """

    def __init__(self, status: int, reason: str, serial: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.serial = serial


class Receipt(msgspec.Struct, frozen=True):
    """What became of one callback: the HTTP status to answer with, and the facts for the log."""

    status: int
    terminal: str | None = None  # whose it is, where that is known
    verdict: Verdict | None = None
    event_status: str | None = None
    reason: str | None = None
    phase: Phase | None = None
    limit: Limit | None = None  # that kept it out
    kept_of: str | None = None  # whose budget takes the body
    updates_terminal: bool = False  # see the payment's
    asks: bool = False  # whether the terminal is to be asked, because a limit was reached for the first time


class Inbox:
    """Takes callbacks whose token was checked."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        merchant_id: str,
        outstanding: CallsInFlight,
        now: Callable[[], datetime],
        on_unusable: Callable[[str], None] = lambda _identity: None,
        intake: Intake | None = None,
        doubts: Doubts | None = None,
    ) -> None:
        """`on_unusable`: called with the id of a transaction of which a callback could not be used."""
        self._intake = intake or Intake()
        self._recorded: dict[str, int] = {}
        self._doubts = doubts or Doubts("", lambda: True)
        self._store = store
        self._fleet = fleet
        self._merchant_id = merchant_id
        self._outstanding = outstanding
        self._now = now
        #: Events that came again since the start of the process: the terminal had not heard the answer.
        self.repeated = 0
        self._on_unusable = on_unusable
        self._first_headers = FirstHeaders(Channel.TRANSACTION)

    async def receive(self, client_transaction_id: str, body: bytes, peer: str, headers: Headers = ()) -> Receipt:
        """Take the body of a callback; the answer to it is 200, 400, 403, 429 or 503."""
        came, event = Came(body, peer, self._now(), headers), None
        try:
            event = _read(body, client_transaction_id)
        except Refusal as refusal:
            work = partial(self._quarantine, identity=client_transaction_id, refusal=refusal, came=came)
        else:
            work = partial(
                self._apply,
                identity=client_transaction_id,
                event=event,
                came=came,
                came_at=self._doubts.believed(event, came.at),  # by the clock as it is now, not when it is committed
            )
        crash_point("event.before_commit")
        try:
            receipt = await self._store.write(work)
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("webhook.not_stored", transaction=client_transaction_id, error=str(error))
            self._recorded.pop(client_transaction_id, None)
            return Receipt(503)
        crash_point("event.committed")
        if receipt.updates_terminal:
            self._first_headers.tell(receipt.terminal, headers)
            if event is not None and receipt.reason is None:
                self._note_sign_of_life(event, came.at)
        self._tell(client_transaction_id, receipt)
        self._count(receipt, len(body))
        if receipt.reason is not None or receipt.asks:
            self._on_unusable(client_transaction_id)
        return receipt

    def _count(self, receipt: Receipt, size: int) -> None:
        """Count a limit that was reached, or take what is kept now from the budget of its sender."""
        if receipt.limit is not None:
            self._intake.reached.count(receipt.limit)
        elif receipt.kept_of is not None:
            keep = self._intake.keep_body if receipt.verdict is None else self._intake.keep_event
            keep(receipt.kept_of, size)

    async def broke_off(self, client_transaction_id: str) -> None:
        """Note that an authentic callback began and did not become whole: a terminal has the request.

        Only of what might otherwise be proved never to have started; the terminal sends the event again.
        """
        with suppress(StorageUnavailable, CommitUncertain):
            await self._store.write(partial(self._touch, identity=client_transaction_id, at=self._now()))

    def _touch(self, unit: Unit, identity: str, at: datetime) -> None:
        before = rows.get(unit.db, identity)
        if before is not None and before.phase in (Phase.STARTING, Phase.IN_DOUBT):
            record(unit, before, CallbackBrokeOff(), at, self._outstanding)

    async def too_large(self, client_transaction_id: str, limit: int, peer: str) -> int:
        """Note on the transaction that an authentic body was over the limit and could not be read.

        Return the HTTP status to answer with: 413, or 503 where that could not be noted.
        """
        reason = f"it was larger than {limit} bytes"
        log.warning("webhook.too_large", transaction=client_transaction_id, limit_bytes=limit, peer=peer)
        try:
            await self._store.write(
                partial(self._note_too_large, identity=client_transaction_id, reason=reason, at=self._now())
            )
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("webhook.not_stored", transaction=client_transaction_id, error=str(error))
            return 503
        self._on_unusable(client_transaction_id)
        return 413

    def _note_sign_of_life(self, event: TransactionEvent, at: datetime) -> None:
        terminal = event.terminal
        self._fleet.heard_from(terminal.serial_number, iso(at), brand=terminal.brand, model=terminal.model)

    def _apply(
        self,
        unit: Unit,
        identity: str,
        event: TransactionEvent,
        came: Came,
        came_at: datetime | None,
    ) -> Receipt:
        """Record an event and its effect (runs inside the commit). For `came_at` see `Doubts.about`."""
        at = came.at
        before, newest, bodies = rows.get_with_bodies(unit.db, identity, event.event_id)
        seen = recognise(came.body, bodies)
        if seen is Seen.REPEATED:  # before all else: the configuration may have changed since it was taken
            return Receipt(200, updates_terminal=before is not None and before.updates_terminal)
        removed = pruned.payment(unit.db, identity) if before is None else None
        if (refusal := self._unsigned(event, before or removed, came)) is not None:
            return self._quarantine(unit, identity, refusal, came)
        if removed is not None:
            return self._after_removal(unit, removed, event, came)
        refusal = self._unwelcome(unit, event, before)
        if refusal is not None:
            return self._quarantine(unit, identity, refusal, came)
        known = self._known(unit, before, event)
        stored = known or self._rebuilt(event, identity, at)
        recorded = self._events_of(unit, stored)
        if (limit := self._limit(stored, event, seen, recorded, len(came.body))) is not None:
            return self._keep_out(unit, known, limit, at)
        if before is None:
            begin(unit, stored, "orphan")
        after, verdict = advance(stored, event, seen=seen, now=at)
        seq = journal.append_event(unit, identity, event, verdict, iso(at), came.body, newest)
        self._recorded[identity] = recorded + 1
        doubt = self._doubts.about(unit.db, stored, after, event, came_at)
        if doubt is not None:
            journal.append(unit, identity, doubt, iso(at))
            after = apply(after, doubt, at)
        after = move(unit, stored, after, Received(event, seq), self._outstanding)
        return Receipt(
            200,
            stored.terminal,
            verdict,
            event.status,
            phase=after.phase,
            kept_of=_sender(stored),
            updates_terminal=stored.updates_terminal,
        )

    def _known(self, unit: Unit, before: Transaction | None, event: TransactionEvent) -> Transaction | None:
        if before is None:
            return None
        return with_unit(unit, before, self._fleet.answer_unit(before.terminal or event.terminal.serial_number))

    def _rebuilt(self, event: TransactionEvent, identity: str, at: datetime) -> Transaction:
        rebuilt = rebuild(event, identity, at)
        return msgspec.structs.replace(rebuilt, answer_unit=self._fleet.answer_unit(rebuilt.terminal))

    def _events_of(self, unit: Unit, transaction: Transaction) -> int:
        """Return how many events of a transaction are recorded. One of which none was applied has none.

        It is counted in memory: to count rows would make the thousandth event of a payment slow. Where a commit is
        undone and run again, the number is too large by what it had; after a failed one it is forgotten.
        """
        identity = transaction.client_transaction_id
        known = self._recorded.get(identity)
        if known is None:
            known = journal.count_events(unit.db, identity) if transaction.trail.edges else 0
            if len(self._recorded) >= MAX_COUNTED:
                del self._recorded[next(iter(self._recorded))]
        return known

    def _limit(
        self, transaction: Transaction, event: TransactionEvent, seen: New, recorded: int, size: int
    ) -> Limit | None:
        """Return the limit that keeps an event out, None where it gets in (`posd.base.limits`)."""
        limit = limit_of_events(transaction.trail, event, seen=seen, recorded=recorded)
        if limit is not None or urgent(transaction.trail, event, seen=seen):
            return limit
        return self._intake.limit_of_event(_sender(transaction), size)

    def _keep_out(self, unit: Unit, before: Transaction | None, limit: Limit, at: datetime) -> Receipt:
        """Refuse an event past a limit, and note that on the payment once; the terminal sends it again."""
        if before is None:
            return Receipt(429, limit=limit)
        asks = before.attention_of(AttentionCode.EVENT_LIMIT) is None
        record(unit, before, Overrun(), at, self._outstanding)
        return Receipt(429, limit=limit, asks=asks, updates_terminal=before.updates_terminal)

    def _after_removal(self, unit: Unit, removed: Pruned, event: TransactionEvent, came: Came) -> Receipt:
        """Take an event of a payment that retention has removed: nothing new, or kept where it says otherwise."""
        if not contradicts(removed, event.status):
            return Receipt(200)
        reason = (
            f"its payment had ended {removed.result} on {removed.ended_on} and was removed by retention; now the "
            f"terminal says {event.status}. Look at it with the acquirer"
        )
        quarantine.put(unit, Channel.TRANSACTION, removed.client_transaction_id, reason, came)
        return Receipt(200, reason=reason)

    def reapply(self, unit: Unit, item: QuarantinedBody) -> Verdict | None:
        """Apply a body of the quarantine (runs inside a commit); return its verdict, None where it was recorded.

        Raise NotUsable where it still cannot be used.
        """
        try:
            event = _read(item.body, item.subject)
        except Refusal as refusal:
            raise NotUsable from refusal
        came = quarantine.again(unit.db, item, self._now())
        known = rows.get(unit.db, item.subject)
        removed = pruned.payment(unit.db, item.subject) if known is None else None
        if self._unsigned(event, known or removed, came) is not None:
            raise NotUsable
        if removed is not None and contradicts(removed, event.status):
            raise NotUsable  # it is there to be looked at
        if removed is None and self._unwelcome(unit, event, known) is not None:
            raise NotUsable
        receipt = self._apply(unit, item.subject, event, came, None)
        if receipt.limit is not None:
            raise NotUsable
        if not quarantine.take_out(unit, item) and (known := rows.get(unit.db, item.subject)) is not None:
            record(unit, known, Reapplied(), self._now(), self._outstanding)
        return receipt.verdict

    def _unsigned(self, event: TransactionEvent, known: Transaction | Pruned | None, came: Came) -> Refusal | None:
        """Say why an event is refused by its signature, if it is.

        The terminal that was asked decides; what the body says counts only where that is not known.
        """
        terminal = (known.terminal if known is not None else "") or event.terminal.serial_number
        reason = self._fleet.webhook_fault(terminal, came.headers, came.body)
        return Refusal(403, reason) if reason else None

    def _unwelcome(self, unit: Unit, event: TransactionEvent, known: Transaction | None) -> Refusal | None:
        """Say why an event of this merchant or terminal is refused, if it is (terminal API, Events).

        That either cannot be read is no reason: the token of the address was given to one terminal, for this payment.
        """
        if self._merchant_id and event.merchant_id not in (self._merchant_id, ""):
            return Refusal(403, "it is of another merchant than the configured one (merchant.id)")
        serial = event.terminal.serial_number
        if not serial:
            if known is not None:
                return None
            return Refusal(400, "terminal.serial_number cannot be read, and this payment is not known here")
        if serial not in self._fleet and next(rows.open_on(unit.db, serial), None) is None:
            reason = f"terminal {serial} is not in the fleet; if it is yours, add it to [[terminals]]"
            return Refusal(403, reason, serial)
        return None

    def _quarantine(self, unit: Unit, identity: str, refusal: Refusal, came: Came) -> Receipt:
        """Keep a body that cannot be used (runs inside the commit)."""
        known, reason = rows.get(unit.db, identity), refusal.reason
        terminal = known.terminal if known is not None else None
        updates = known is not None and known.updates_terminal
        sender: str | None = _sender(known) if known is not None and terminal else came.peer
        if (limit := self._intake.limit_of_body(sender or came.peer, len(came.body))) is not None:
            self._attend(unit, known, quarantine.NOT_KEPT, came.at, refusal.serial)
            status, reason = quarantine.status_past(limit), quarantine.NOT_KEPT
            return Receipt(status, terminal, reason=reason, limit=limit, updates_terminal=updates)
        if not quarantine.put(unit, Channel.TRANSACTION, identity, reason, came):
            # One reason for all that follow: each other one would be a change that is written down.
            reason = f"{quarantine.MAX_KEPT} callbacks of this payment are in quarantine already; more are not kept"
            sender = None
        self._attend(unit, known, reason, came.at, refusal.serial)
        return Receipt(refusal.status, terminal, reason=reason, kept_of=sender, updates_terminal=updates)

    def _attend(
        self, unit: Unit, known: Transaction | None, reason: str, at: datetime, serial: str | None = None
    ) -> None:
        """Note on the payment, where it is known, that a callback of it could not be used (runs inside the commit)."""
        if known is not None:
            record(unit, known, Quarantined(reason, serial), at, self._outstanding)

    def _note_too_large(self, unit: Unit, identity: str, reason: str, at: datetime) -> None:
        self._attend(unit, rows.get(unit.db, identity), reason, at)

    def _tell(self, identity: str, receipt: Receipt) -> None:
        if receipt.reason is not None:
            log.warning("webhook.quarantined", transaction=identity, http_status=receipt.status, reason=receipt.reason)
        elif receipt.verdict is None and receipt.limit is None:
            self.repeated += 1
        if receipt.verdict is not None:
            log.info(
                "webhook.event",
                transaction=identity,
                verdict=receipt.verdict,
                status=receipt.event_status,
                phase=receipt.phase,
            )


def _sender(transaction: Transaction) -> str:
    return sender_of(transaction.terminal, updates_terminal=transaction.updates_terminal)


def _read(body: bytes, client_transaction_id: str) -> TransactionEvent:
    """Read an event of this transaction. Raise Refusal."""
    try:
        event = read_event(body)
    except NotAnEvent as error:
        raise Refusal(400, f"the body is not a transaction event: {error}") from error
    if event.client_transaction_id not in (client_transaction_id, ""):  # empty: it cannot be read
        raise Refusal(400, "the body names another client_transaction_id than the callback address")
    return event
