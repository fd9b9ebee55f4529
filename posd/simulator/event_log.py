"""The states of payments: each is written down where it is an end, then said to the consumer, well or badly."""

from decimal import Decimal
from random import Random
from typing import Any

import msgspec

from posd.simulator import messages, wire
from posd.simulator.answers import changed
from posd.simulator.clock import Clock
from posd.simulator.ledger import Ledger
from posd.simulator.lifecycle import FINALS, SENT, Status
from posd.simulator.messages import Device, Event
from posd.simulator.payment import Payment
from posd.simulator.queue import Item
from posd.simulator.record import Final, Record
from posd.simulator.scenario import Step
from posd.simulator.switches import Outbox


class Notices:
    """Makes the events of one terminal."""

    def __init__(self, device: Device, ledger: Ledger, record: Record, outbox: Outbox, clock: Clock) -> None:
        self._device = device
        self._ledger = ledger
        self._record = record
        self._outbox = outbox
        self._clock = clock

    def enter(self, payment: Payment, step: Step, status: str, rng: Random) -> None:
        """Enter a state: write finals down as they are, then say so to the consumer as the step has it.

        In this order: killed in between, the terminal may leave an event unsaid, but has no charge that a search does
        not find.
        """
        body = self._restate(payment, rng) if step.restates else self._happen(payment, step, status, rng)
        told = wire.encode(changed(body, step.set, step.remove))
        self._say(payment, step, told.decode())

    def _restate(self, payment: Payment, rng: Random) -> dict[str, Any]:
        payment.event_id = messages.new_uuid(rng)
        body: dict[str, Any] = wire.decode(payment.newest)
        return body | {"event_id": payment.event_id, "occurred_at": wire.timestamp()}

    def _happen(self, payment: Payment, step: Step, status: str, rng: Random) -> dict[str, Any]:
        start = payment.start
        payment.reading_type = step.reading_type or payment.reading_type
        payment.failure = step.failure or payment.failure
        authorized = payment.amount.authorized if step.authorized_amount is None else Decimal(step.authorized_amount)
        raw_response = (
            messages.approval(start, authorized, payment.reading_type, rng) if status == Status.APPROVAL else None
        )
        event = Event(
            event_id=payment.event_id if step.same_event_id else messages.new_uuid(rng),
            occurred_at=wire.timestamp(),
            status=status,
            previous_status=payment.status,
            reading_type=payment.reading_type,
            failure=payment.failure,
            raw_response=raw_response,
        )
        body = messages.transaction_event(self._device, start, payment.amount, event)
        payment.previous, payment.newest = payment.newest, wire.encode(body)
        payment.event_id, payment.status = event.event_id, status
        payment.sent = payment.sent or status in SENT
        if status in FINALS:
            payment.final = payment.newest
            final = Final(start.operation.name, start.transaction_reference, msgspec.Raw(payment.newest))
            self._record.add(final, body)
            self._ledger.add_final(final.operation, body)
        return body

    def _say(self, payment: Payment, step: Step, told: str) -> None:
        url, deliver = payment.start.events_webhook_url, step.deliver
        if url is None or deliver.never:
            return
        transaction, status = payment.transaction, str(payment.status)
        text = told if deliver.raw is None else deliver.raw

        def submit(after: float, *, again: bool) -> None:
            self._outbox.submit(
                Item(
                    payment.event_id,
                    transaction,
                    status,
                    url,
                    text,
                    again=again,
                    alone=again or after > 0,
                    due=self._clock.after(after) if after > 0 else None,
                    distrusted=deliver.distrusted,
                )
            )

        submit(deliver.late, again=False)
        for seconds in deliver.again:
            submit(deliver.late + seconds, again=True)
        self._ledger.add("event", client_transaction_id=transaction, event_id=payment.event_id, status=status)
