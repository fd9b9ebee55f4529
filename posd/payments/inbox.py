"""Inbox of the transaction channel: the handling of each authentic callback.

The event's raw bytes and its effect are stored in one commit, and the reply follows the commit. The status of the reply
makes the terminal send the event again only if that can help (terminal API, Delivery).
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import structlog

from posd.base.crashpoints import crash_point
from posd.base.fair_queue import APART_BYTES, read_apart
from posd.base.ids import Channel
from posd.base.limits import Limit
from posd.base.replies import CallbackResult, RefusedBody, refusal
from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import CallbackBrokeOff, Overrun, apply
from posd.payments.model import AttentionCode, Transaction
from posd.payments.outcomes import contradicts
from posd.payments.record import Received, begin, move, record, with_unit
from posd.payments.transitions import New, RepeatedEvent, advance, limit_of_events, rebuild, recognise, urgent
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event
from posd.records import quarantine
from posd.records.inbox import CallbackInbox, CallbackReceipt, UnreadableCallback
from posd.records.model import Phase, Pruned
from posd.records.quarantine import QuarantineEntry, ReceivedCallback
from posd.records.quotas import sender as sender_of
from posd.records.service import RecordService, ServiceParts
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.authentication import Headers

# Transaction events, read from their bytes.
#
# A large body is parsed outside of the event loop, never inside a commit, and only once. A terminal that did not
# receive the reply sends the same bytes again. So the parsed event is kept by the digest of its bytes.

#: Largest number of parsed events that are kept. One takes about a kilobyte.
MAX_READINGS = 128


class BodyNotParsed(Exception):
    """Body that is too large to be parsed inside a commit, and has not been parsed before."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class EventReadings:
    """Parser of events, which keeps the parsed events of large bodies."""

    def __init__(self) -> None:
        self._readings: dict[bytes, TransactionEvent | NotAnEvent] = {}

    async def read(self, body: bytes, sender: str) -> TransactionEvent:
        """Parse an event. At most one large body of each `sender` is parsed at a time. Raise NotAnEvent."""
        if len(body) <= APART_BYTES:
            return read_event(body)
        digest = hashlib.sha256(body).digest()
        reading = self._readings.pop(digest, None)
        if reading is None:
            reading = await read_apart(_read, body, sender)
        self._readings[digest] = reading  # reinsert, so that the newest digest is last
        if len(self._readings) > MAX_READINGS:
            del self._readings[next(iter(self._readings))]
        return _event(reading)

    def within_commit(self, body: bytes) -> TransactionEvent:
        """Return the event if it is already parsed, or small. Raise BodyNotParsed, NotAnEvent."""
        if len(body) <= APART_BYTES:
            return read_event(body)
        if (reading := self._readings.get(hashlib.sha256(body).digest())) is None:
            raise BodyNotParsed(body)
        return _event(reading)


def _read(body: bytes) -> TransactionEvent | NotAnEvent:
    try:
        return read_event(body)
    except NotAnEvent as error:
        return error.alone()  # omit the exception's cause: it would keep the body in memory


def _event(reading: TransactionEvent | NotAnEvent) -> TransactionEvent:
    if isinstance(reading, NotAnEvent):
        raise reading.alone()
    return reading


log = structlog.get_logger("posd.inbox")


class Inbox(RecordService):
    """Handler of callbacks with a checked token."""

    def __init__(
        self,
        parts: ServiceParts,
        merchant_id: str,
        approval_checks: ApprovalChecks,
        on_unusable: Callable[[str], None] = lambda _identity: None,
        on_time: Callable[[str, str, str], None] = lambda _terminal, _identity, _time: None,
    ) -> None:
        """`on_unusable`: called with the id of a transaction after an unusable callback.

        `on_time`: called with the terminal, the id and the time in a new event of an open transaction.
        """
        super().__init__(parts)
        self._merchant_id = merchant_id
        self._checks = approval_checks
        self._on_time = on_time
        self._readings = EventReadings()
        write_down = partial(record, outstanding=parts.outstanding)
        self.callbacks = CallbackInbox(rows.PAYMENT, parts, write_down, on_unusable, comes_once=False)

    async def receive(
        self, client_transaction_id: str, body: bytes, peer: str, headers: Headers = ()
    ) -> CallbackReceipt:
        """Process the body of a callback. Return the receipt, which determines the reply."""
        came, event = ReceivedCallback(body, peer, self._now(), headers), None
        try:
            event = _usable(await self._readings.read(body, peer), client_transaction_id)
        except (NotAnEvent, RefusedBody) as error:
            work = partial(self.callbacks.refuse, identity=client_transaction_id, refusal=_refused(error), came=came)
        else:
            work = partial(
                self._apply,
                identity=client_transaction_id,
                event=event,
                came=came,
                came_at=self._checks.believed(event, came.at),  # judge the clock at arrival, not after the commit
            )
        crash_point("event.before_commit")
        try:
            receipt = await self._record(work, peer)
        except (StorageUnavailable, CommitUncertain) as error:
            return self.callbacks.not_stored(client_transaction_id, error)
        crash_point("event.committed")
        self.callbacks.committed(client_transaction_id, came, receipt)
        # An event can have the serial of another terminal than the asked one. Then neither terminal is updated.
        own = event is not None and event.serial_number == receipt.terminal and receipt.updates_terminal
        if event is not None and own and receipt.reason is None:
            self._fleet.heard_from(event.serial_number, iso(came.at), brand=event.brand, model=event.model)
            if receipt.result is CallbackResult.APPLIED:
                self._on_time(event.serial_number, client_transaction_id, event.occurred_at)
        if receipt.verdict is not None:
            log.info(
                "webhook.event",
                transaction=client_transaction_id,
                verdict=receipt.verdict,
                status=receipt.states,
                phase=receipt.phase,
            )
        return receipt

    async def _record(self, work: Callable[[WriteTransaction], CallbackReceipt], peer: str) -> CallbackReceipt:
        """Commit the effect of a callback. If large stored bodies are needed for comparison, parse them first."""
        while True:
            try:
                return await self._store.write(work)
            except BodyNotParsed as large:
                with suppress(NotAnEvent):
                    await self._readings.read(large.body, peer)

    async def broke_off(self, client_transaction_id: str) -> None:
        """Record that the connection of an authentic callback broke before the body was complete.

        Such a callback proves that a terminal has the request. So posd records it on a payment that is starting or in
        doubt, and cannot conclude later that this payment never started. The terminal sends the event again.
        """
        with suppress(StorageUnavailable, CommitUncertain):
            await self._store.write(partial(self._touch, identity=client_transaction_id, at=self._now()))

    def _touch(self, unit: WriteTransaction, identity: str, at: datetime) -> None:
        before = rows.get(unit.db, identity)
        if before is not None and before.phase in (Phase.STARTING, Phase.IN_DOUBT):
            record(unit, before, CallbackBrokeOff(), at, self._outstanding)

    async def lose(self, client_transaction_id: str, lost: UnreadableCallback) -> CallbackResult:
        """Record on the transaction that an authentic callback was unreadable, and search for the transaction."""
        return await self.callbacks.lose(client_transaction_id, lost, self._now(), _settled)

    def _apply(
        self,
        unit: WriteTransaction,
        identity: str,
        event: TransactionEvent,
        came: ReceivedCallback,
        came_at: datetime | None,
        read: Callable[[bytes], TransactionEvent] | None = None,
    ) -> CallbackReceipt:
        """Record an event and its effect (inside the commit). `came_at`: see `ApprovalChecks.about`.

        `read` parses stored events for the comparison. Without it, raise BodyNotParsed for a large stored event that
        is not parsed yet.
        """
        at = came.at
        before, newest, bodies = rows.get_with_bodies(unit.db, identity, event.event_id)
        seen = recognise(came.body, bodies, read or self._readings.within_commit)
        # Check this first: the present configuration might refuse an event that was recorded before.
        if seen is RepeatedEvent.REPEATED:
            updates = before is not None and before.updates_terminal
            terminal = before.terminal if before is not None else None
            return CallbackReceipt(CallbackResult.REPEATED, terminal, updates_terminal=updates)
        removed = rows.PAYMENT.find_pruned(unit.db, identity) if before is None else None
        if (refused := self._refusal(unit, event, before or removed, came)) is not None:
            return self.callbacks.refuse(unit, identity, refused, came)
        if removed is not None:
            return self._after_removal(unit, removed, event, came)
        known = before
        if before is not None:
            known = with_unit(unit, before, self._fleet, before.terminal or event.serial_number)
        stored = known or rebuild(event, identity, at, self._fleet.answer_unit(event.serial_number))
        if (limit := self._limit(unit, stored, event, seen, len(came.body))) is not None:
            return self._keep_out(unit, known, limit, at)
        if before is None:
            begin(unit, stored, "orphan")
        after, verdict = advance(stored, event, seen=seen, now=at)
        seq = journal.append_event(unit, identity, event, verdict, iso(at), came.body, newest)
        doubt = self._checks.about(unit.db, stored, after, event, came_at)
        if doubt is not None:
            journal.append(unit, identity, doubt, iso(at))
            after = apply(after, doubt, at)
        after = move(unit, stored, after, Received(event, seq), self._outstanding)
        return CallbackReceipt(
            CallbackResult.APPLIED,
            stored.terminal,
            verdict,
            event.status,
            phase=after.phase,
            kept_of=_sender(stored),
            updates_terminal=stored.updates_terminal,
        )

    def _limit(
        self, unit: WriteTransaction, transaction: Transaction, event: TransactionEvent, seen: New, size: int
    ) -> Limit | None:
        """Return the limit that the event exceeds, or None (`posd.base.limits`)."""
        if urgent(transaction.trail, event, seen=seen):
            return None
        recorded = journal.count_events(unit.db, transaction.client_transaction_id)
        limit = limit_of_events(transaction.trail, event, seen=seen, recorded=recorded)
        return limit if limit is not None else self._quotas.limit_of_event(_sender(transaction), size)

    def _keep_out(
        self, unit: WriteTransaction, before: Transaction | None, limit: Limit, at: datetime
    ) -> CallbackReceipt:
        """Refuse an event above a limit, and record the refusal on the payment once.

        The terminal sends the event again.
        """
        if before is None:
            return CallbackReceipt(CallbackResult.EVENT_LIMIT, limit=limit)
        asks = before.attention_of(AttentionCode.EVENT_LIMIT) is None
        record(unit, before, Overrun(), at, self._outstanding)
        updates = before.updates_terminal
        return CallbackReceipt(CallbackResult.EVENT_LIMIT, limit=limit, asks=asks, updates_terminal=updates)

    def _after_removal(
        self, unit: WriteTransaction, removed: Pruned, event: TransactionEvent, came: ReceivedCallback
    ) -> CallbackReceipt:
        """Handle an event of a payment that retention removed.

        Store the event in the quarantine if it contradicts the outcome. Otherwise ignore it.
        """
        if not contradicts(removed, event.status):
            return CallbackReceipt(CallbackResult.REMOVED)
        reason = (
            f"its payment had ended {removed.result} on {removed.ended_on} and was removed by retention; now the "
            f"terminal says {event.status}. Check it with the acquirer"
        )
        quarantine.put(unit, Channel.TRANSACTION, removed.client_transaction_id, reason, came)
        return CallbackReceipt(CallbackResult.CONTRADICTS_REMOVED, reason=reason)

    def reapply(self, unit: WriteTransaction, item: QuarantineEntry) -> str | None:
        """Apply a body of the quarantine (inside a commit). Return the verdict on its event.

        Return None if the event was recorded before. Raise RefusedBody if the body is still unusable.
        """
        try:
            event = _usable(read_event(item.body), item.subject)
        except NotAnEvent as error:
            raise _refused(error) from error
        came = quarantine.again(unit.db, item, self._now())
        known = rows.get(unit.db, item.subject)
        removed = rows.PAYMENT.find_pruned(unit.db, item.subject) if known is None else None
        if (refused := self._refusal(unit, event, known or removed, came)) is not None:
            raise refused
        if removed is not None and contradicts(removed, event.status):
            raise RefusedBody(CallbackResult.CONTRADICTS_REMOVED, item.reason)  # an operator has to read it
        receipt = self._apply(unit, item.subject, event, came, None, read_event)
        if receipt.limit is not None:
            raise RefusedBody(receipt.result, item.reason)
        self.callbacks.take_out(unit, item, self._now())
        return receipt.verdict

    def _refusal(
        self,
        unit: WriteTransaction,
        event: TransactionEvent,
        known: Transaction | Pruned | None,
        came: ReceivedCallback,
    ) -> RefusedBody | None:
        """Return why an event is refused, or None. For a removed payment, check only the signature.

        The signature is checked with the key of the terminal that was asked. If that terminal is unknown, it is checked
        with the key of the terminal that the event names.
        """
        serial = event.serial_number
        terminal = (known.terminal if known is not None else "") or serial
        fault = self._fleet.webhook_fault(terminal, came.headers, came.body)
        if isinstance(known, Pruned):
            return refusal(signature_fault=fault)
        in_fleet = serial in self._fleet or next(rows.open_on(unit.db, serial), None) is not None
        return refusal(
            signature_fault=fault,
            merchant=event.merchant_id,
            own_merchant=self._merchant_id,
            serial=serial,
            is_known=known is not None,
            in_fleet=in_fleet,
        )


def _sender(transaction: Transaction) -> str:
    return sender_of(transaction.terminal, updates_terminal=transaction.updates_terminal)


def _settled(transaction: Transaction) -> bool:
    """Whether another unusable callback need not be recorded, because it would change only an attention's reason."""
    outcome, attended = transaction.outcome, transaction.attention_of(AttentionCode.QUARANTINED_EVENT) is not None
    return attended and transaction.heard and (outcome is None or outcome.stated_by_terminal)


def _refused(error: NotAnEvent | RefusedBody) -> RefusedBody:
    if isinstance(error, RefusedBody):
        return error
    return RefusedBody(error.result, f"the body is not a transaction event: {error}")


def _usable(event: TransactionEvent, client_transaction_id: str) -> TransactionEvent:
    """Return the event if it belongs to this transaction. Raise RefusedBody."""
    ours = event.client_transaction_id in (client_transaction_id, "")  # empty if unreadable
    if (refused := refusal(another=None if ours else "client_transaction_id")) is not None:
        raise refused
    return event
