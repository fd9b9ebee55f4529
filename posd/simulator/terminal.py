"""The terminal itself: one payment at a time, run step by step through its scenario (spec 3.1)."""

import asyncio
import logging
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from random import Random
from typing import Any

import msgspec

from posd.simulator import messages, wire
from posd.simulator.amounts import Processed, process
from posd.simulator.clock import Clock
from posd.simulator.ledger import Ledger
from posd.simulator.messages import Device, Event
from posd.simulator.operations import AccessMode, Operation
from posd.simulator.queue import Item
from posd.simulator.record import Final, Record
from posd.simulator.request import Refused, StartRequest, claims, read_search, read_start
from posd.simulator.scenarios import ABORTABLE, ABORTED, FINALS, SCENARIOS, Status, Step
from posd.simulator.sender import Sender

#: HTTP status and JSON body.
Answer = tuple[int, Any]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Payment:
    start: StartRequest
    amount: Processed
    rng: Random
    status: Status | None = None
    reading_type: str | None = None
    #: The newest event, as it is delivered.
    event: bytes = b""
    abort: asyncio.Event = field(default_factory=asyncio.Event)


class Terminal:
    """Answers starts, aborts and searches; makes the events.

    The answers do not await: no other request comes between.
    """

    def __init__(
        self,
        device: Device,
        ledger: Ledger,
        record: Record,
        sender: Sender,
        clock: Clock,
        *,
        seed: str,
        scenario: str,
        wait_limit: float | None,
        tip: Decimal | None,
    ) -> None:
        """`scenario` is for requests that name none; `wait_limit` is in terminal seconds, None without end.

        `tip` is what cardholders add where they can; None where they add none.
        """
        self._device = device
        self._ledger = ledger
        self._record = record
        self._sender = sender
        self._clock = clock
        self._seed = seed
        self._scenario = scenario
        self._wait_limit = wait_limit
        self._tip = tip
        self._started = 0
        self._payment: _Payment | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def serial(self) -> str:
        """The serial number."""
        return self._device.serial_number

    def start(self, body: bytes, operation: Operation, access_mode: AccessMode) -> Answer:
        """Answer an asynchronous operation: 200 with the acknowledgement, 400, 409 or 422 (spec 4.1).

        An id that was used before is taken again: the spec promises no deduplication, and a caller that sends a
        request twice shall see in the ledger what it has done.
        """
        asked = {"operation": operation.name, "access_mode": access_mode, **claims(body)}
        try:
            start, amount = self._admit(body, operation)
        except Refused as refused:
            self._ledger.add("start", **asked, http_status=refused.status, code=refused.code, scenario=None)
            return refused.status, {"code": refused.code, "message": refused.message}
        self._ledger.add("start", **asked, http_status=int(HTTPStatus.OK), code=None, scenario=start.scenario)
        self._started += 1
        # Drawn anew for each payment, so that a seed gives the same payment whatever ran before or beside it.
        seed = f"{self._seed}/{start.client_transaction_id}/{self._started}"
        payment = _Payment(start, amount, Random(seed))  # noqa: S311 - reproducible, not secret
        acknowledgement = messages.acknowledgement(self._device, start, messages.new_uuid(payment.rng))
        self._payment = payment
        self._running = asyncio.create_task(self._run(payment))
        return HTTPStatus.OK, acknowledgement

    def _admit(self, body: bytes, operation: Operation) -> tuple[StartRequest, Processed]:
        """Check a request against what runs and what was approved; return it with its amount as processed.

        Nothing runs when the reference is checked, so what was approved does not change until this payment ends.
        """
        start = read_start(body, operation, self._scenario)
        if self._payment is not None:
            raise Refused(HTTPStatus.CONFLICT, "TERMINAL_BUSY", "another payment is running on this terminal")
        reference = start.transaction_reference
        original = None if reference is None else self._record.approvals.original(operation, reference)
        if start.amount is not None:
            tip = self._tip if operation.takes_tip else None
            return start, process(start.amount, currency=self._device.currency, tip=tip)
        assert original is not None  # noqa: S101 - what needs no amount of its own has an original
        return start, original.amount

    def abort(self) -> Answer:
        """Answer an abort: 200 where it will end in TERMINAL_CANCELED, 409 where nothing can be aborted.

        What an abort after APPROVAL_REQUESTED is answered is not published; here it is a 409 like that of an idle
        terminal, with its own code, and the payment goes on (spec 3.1, rule 2).
        """
        payment = self._payment
        if payment is None:
            answer = HTTPStatus.CONFLICT, {"code": "NOTHING_RUNNING", "message": "no payment is running"}
        elif payment.status not in ABORTABLE:
            answer = HTTPStatus.CONFLICT, {"code": "PAST_POINT_OF_NO_RETURN", "message": "sent to the acquirer"}
        else:
            payment.abort.set()
            answer = HTTPStatus.OK, {"code": "ABORTED", "message": "the payment is being canceled"}
        transaction = payment.start.client_transaction_id if payment else None
        self._ledger.add("abort", client_transaction_id=transaction, http_status=int(answer[0]))
        return answer

    def search(self, body: bytes) -> Answer:
        """Answer an online search: 200 with a list of the newest event of the transaction, empty where none is known.

        Known are the payment in progress once it was sent to the acquirer, and every final, those of earlier runs
        too. 400 or 422 where the body cannot be. What a real terminal answers is not published.
        """
        try:
            transaction = read_search(body)
        except Refused as refused:
            claimed = claims(body)["client_transaction_id"]
            self._ledger.add("search", client_transaction_id=claimed, http_status=refused.status, found=0)
            return refused.status, {"code": refused.code, "message": refused.message}
        event = self._newest(transaction)
        found = [] if event is None else [msgspec.Raw(event)]
        self._ledger.add("search", client_transaction_id=transaction, http_status=int(HTTPStatus.OK), found=len(found))
        return HTTPStatus.OK, found

    def _newest(self, transaction: str) -> bytes | None:
        payment = self._payment
        if (
            payment is not None
            and payment.status is Status.APPROVAL_REQUESTED
            and payment.start.client_transaction_id.lower() == transaction.lower()
        ):
            return payment.event
        return self._record.newest(transaction)

    async def stop(self) -> None:
        """Switch off: a payment in progress is forgotten, as by a terminal that loses power."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, payment: _Payment) -> None:
        try:
            await self._play(payment)
        except asyncio.CancelledError:
            transaction = payment.start.client_transaction_id
            self._ledger.add("forgotten", client_transaction_id=transaction, status=payment.status)
            raise
        except Exception:  # noqa: BLE001 - a fault of the simulator: the next payment can still run
            _log.exception("the simulated payment %s broke off", payment.start.client_transaction_id)
        finally:
            self._payment = None

    async def _play(self, payment: _Payment) -> None:
        for step in SCENARIOS[payment.start.scenario]:
            pause = step.pause.seconds(payment.rng, self._wait_limit)
            if payment.status is None:  # TERMINAL_ACKNOWLEDGED is always the first state, aborted or not
                await self._clock.sleep(pause or 0)
            elif await self._clock.wait(payment.abort, pause):
                break
            self._enter(payment, step)
        if payment.status not in FINALS:
            await self._clock.sleep(ABORTED.pause.seconds(payment.rng, None) or 0)
            self._enter(payment, ABORTED)

    def _enter(self, payment: _Payment, step: Step) -> None:
        """Enter a state: write finals down, then say so to the consumer.

        In this order: killed in between, the terminal may leave an event unsaid, but has no charge that a search does
        not find.
        """
        start = payment.start
        payment.reading_type = step.reading_type or payment.reading_type
        raw_response = (
            messages.approval(start, payment.amount.authorized, payment.reading_type, payment.rng)
            if step.status is Status.APPROVAL
            else None
        )
        event = Event(
            event_id=messages.new_uuid(payment.rng),
            occurred_at=wire.timestamp(),
            status=step.status,
            previous_status=payment.status,
            reading_type=payment.reading_type,
            failure=step.failure,
            raw_response=raw_response,
        )
        body = messages.transaction_event(self._device, start, payment.amount, event)
        payment.event = wire.encode(body)
        payment.status = step.status
        transaction = start.client_transaction_id
        if step.status in FINALS:
            final = Final(start.operation.name, start.transaction_reference, msgspec.Raw(payment.event))
            self._record.add(final, body)
            self._ledger.add_final(final.operation, body)
        if start.events_webhook_url is not None:
            text = payment.event.decode()
            self._sender.submit(Item(event.event_id, transaction, step.status.value, start.events_webhook_url, text))
            self._ledger.add("event", client_transaction_id=transaction, event_id=event.event_id, status=step.status)
