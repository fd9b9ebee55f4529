"""The terminal: one payment at a time, with the steps of its scenario (terminal API, Lifecycle)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Any

import msgspec

from posd.simulator import messages, wire
from posd.simulator.clock import Tasks
from posd.simulator.ledger import Entry
from posd.simulator.messages import START_IDS, Answer, ReceivedStart, claims, plain, read_search, read_start, refusal
from posd.simulator.payment import ManualControl, Parts, Payment
from posd.simulator.scenario import (
    AbortEffect,
    Certificate,
    Failure,
    Reply,
    Scenario,
    Search,
    SearchFinds,
    SearchShape,
    Start,
    by_amount,
    payments,
    read,
)
from posd.simulator.wire import (
    ACQUIRERS,
    AccessMode,
    PaymentStatus,
    Processed,
    Refused,
    SimulatedOperation,
    process,
    total,
)


class PaymentTerminal:
    """Replies to starts, aborts and searches, and the events of payments.

    The order of a scenario's choice is: armed, named in the metadata, chosen by the amount, configured. A reply and its
    effects are computed without an await, so that no other request comes between them.
    """

    def __init__(self, parts: Parts) -> None:
        """Raise SettingsError if the user's own scenario cannot be read."""
        self._parts = parts
        self._ledger = parts.ledger
        own = parts.settings.scenario_file
        #: The shipped scenarios, and the user's own scenario under its file's name.
        self._scenarios: Mapping[str, Scenario] = payments() if own is None else {**payments(), own.stem: read(own)}
        #: Scenario of the next payment, which overrides the choice of the request. None: no choice.
        self.armed: str | None = None
        #: The scenario whose preparation has run.
        self._prepared: Scenario | None = None
        self._preparing = asyncio.Lock()
        self._started = 0
        #: The running payment, which has no final and further steps.
        self.running: Payment | None = None
        #: Runs of payments, and their background work.
        self._tasks = Tasks()
        #: Id in lower case -> payment whose scenario has its own reply to a search.
        self._found_otherwise: dict[str, Payment] = {}
        #: Id in lower case -> number of starts for which a scenario limits its reply.
        self._starts: Counter[str] = Counter()

    def arm(self, name: str | None) -> asyncio.Task[None]:
        """Set the scenario of the next payment. None clears it.

        Return the task that prepares a scenario which begins before the request. The effects of the scenario last until
        the next call. Raise KeyError if the scenario does not exist.
        """
        if name is not None and name not in self._scenarios:
            raise KeyError(name)
        self.armed = name
        return self._tasks.begin(self.prepare())

    async def prepare(self) -> None:
        """Prepare the scenario of the next payment if it begins before the request. Undo an earlier preparation.

        Raise SettingsError.
        """
        switchboard = self._parts.switchboard
        async with self._preparing:
            before, wanted = self._prepared, self._scenarios[self.armed or self._parts.settings.scenario_name]
            shown = before.certificate if before else None
            if wanted.certificate is not shown:
                await switchboard.show_certificate(wanted.certificate or Certificate.OWN)
            if wanted.away:
                await switchboard.unplug()
            elif before is not None and before.away:
                await switchboard.plug()
            self._prepared = wanted

    def _choose(self, start: ReceivedStart) -> tuple[str, str]:
        """Return the name of the scenario of a new payment, and the source of the choice."""
        armed, self.armed = self.armed, None
        if armed is not None:
            return armed, "armed"
        if start.scenario is not None:
            return start.scenario, "metadata"
        name = None if start.amount is None else by_amount(total(start.amount), self._scenarios)  # in the main unit
        return (self._parts.settings.scenario_name, "option") if name is None else (name, "amount")

    def start(self, body: bytes, operation: SimulatedOperation, access_mode: AccessMode) -> Answer:
        """Start an asynchronous operation. Return the reply: 200 with the acknowledgement, 400, 409, 422, or the
        scenario's.

        A repeated id is accepted, because the terminal API promises no deduplication. The ledger then shows the
        caller's mistake.

        Source: terminal API, Calls to a terminal.
        """
        asked = {"operation": operation.name, "access_mode": access_mode, **claims(body, START_IDS)}
        add_start = partial(self._ledger.add, "start", **asked)
        try:
            start, amount = self._admit(body, operation)
        except Refused as refused:
            add_start(http_status=refused.status, code=refused.code, scenario=None, chosen_by=None, runs=False)
            return plain(refusal(self._parts.settings, refused, asked["client_transaction_id"]))
        name, chosen_by = self._choose(start)
        self._started += 1
        # The seed is derived for each payment. So the same seed gives the same payment, whatever other payments run.
        seed = f"{self._parts.seed}/{start.client_transaction_id}/{self._started}"
        payment = Payment(self._parts, start, amount, name, self._scenarios[name], seed)
        reply = self._start_reply(payment)
        rng = payment.rng("start")
        usual = HTTPStatus.OK, messages.acknowledgement(self._parts.settings, start, messages.new_uuid(rng))
        told = None
        if reply.after_event is not None and start.events_webhook_url is not None:
            told = self._ledger.next(_delivered(payment, reply.after_event))
        answer = self._apply(reply, usual, rng, payment.transaction, told)
        add_start(http_status=answer.http_status, code=None, scenario=name, chosen_by=chosen_by, runs=reply.runs)
        if reply.runs:
            self._run(payment)
        else:
            self._ledger.add("over", client_transaction_id=payment.transaction)
        return answer

    def _admit(self, body: bytes, operation: SimulatedOperation) -> tuple[ReceivedStart, Processed]:
        """Check a request against the running payment and the approvals. Return it with its processed amount.

        The reference is checked while no payment runs. So the approvals do not change until this payment ends.
        """
        settings = self._parts.settings
        start = read_start(body, operation, self._scenarios, settings.amount_unit)
        if self.running is not None:
            raise Refused(HTTPStatus.CONFLICT, "TERMINAL_BUSY", "another payment is running on this terminal")
        if settings.edition == "2026" and not operation.originals and total(start.amount or {}) == 0:
            raise Refused(422, "PAR-003", "the amount must be above 0", kind="PARAMETER", param="amount")
        reference = start.transaction_reference
        original = None if reference is None else self._parts.record.original(operation, reference)
        if start.amount is not None:
            tip = settings.tip if operation.takes_tip else None
            processed = process(start.amount, currency=settings.currency, tip=tip)
            return start, processed.told_in(settings.answered_in)
        assert original is not None  # noqa: S101 - an operation without an amount has an original
        return start, original.amount

    def _start_reply(self, payment: Payment) -> Start:
        """Return the reply of the scenario to this start, or the usual reply after the scenario's number of starts."""
        reply = payment.scenario.start
        if not reply.times:
            return reply
        transaction = payment.transaction.lower()
        self._starts[transaction] += 1
        return reply.nth(self._starts[transaction])

    def abort(self) -> Answer:
        """Abort the running payment. Return the reply: 200 if TERMINAL_CANCELED will follow, 409 if nothing can be
        aborted, or the scenario's.

        The reply to an abort after APPROVAL_REQUESTED is not published. Here it is a 409 as from an idle terminal, with
        another code. The payment continues (terminal API, Lifecycle).
        """
        payment = self.running
        if payment is None:
            idle = Refused(HTTPStatus.CONFLICT, "NOTHING_RUNNING", "no payment is running")
            return self._aborted(plain(refusal(self._parts.settings, idle)), None, None)
        reply, rng = payment.next_abort()
        if not payment.abortable:
            late = Refused(HTTPStatus.CONFLICT, "PAST_POINT_OF_NO_RETURN", "sent to the acquirer")
            usual = refusal(self._parts.settings, late, payment.transaction)
            return self._aborted(self._apply(reply, usual, rng, payment.transaction), payment, None)
        match reply.effect:
            case "cancels":
                payment.cancel(reply.cancels_after)
            case "raced":
                payment.hurry()
            case "ignored":
                pass
        aborted = messages.coded(HTTPStatus.OK, "ABORTED", "the payment is being canceled")
        return self._aborted(self._apply(reply, aborted, rng, payment.transaction), payment, reply.effect)

    def _aborted(self, answer: Answer, payment: Payment | None, effect: AbortEffect | None) -> Answer:
        transaction = payment.transaction if payment else None
        self._ledger.add("abort", client_transaction_id=transaction, http_status=answer.http_status, effect=effect)
        return answer

    def hand(self, hand: ManualControl) -> bool:
        """Apply a manual action to the running payment. Return False if it is impossible."""
        payment = self.running
        taken = payment is not None and payment.take(hand)
        transaction = payment.transaction if payment else None
        self._ledger.add("hand", hand=hand, client_transaction_id=transaction, taken=taken)
        return taken

    def search(self, body: bytes) -> Answer:
        """Reply to an online search: 200 with a list of the newest event of the transaction, or with an empty list.

        A search finds the running payment after it was sent to the acquirer, and every final, even of earlier runs of
        the simulator. An invalid body has the reply 400 or 422. The real reply is not published. A scenario can change
        the reply while this process runs.
        """
        try:
            transaction = read_search(body)
        except Refused as refused:
            claimed = claims(body, START_IDS)["client_transaction_id"]
            self._ledger.add("search", client_transaction_id=claimed, http_status=refused.status, found=0)
            return plain(refusal(self._parts.settings, refused, claimed))
        event = self._newest(transaction)
        reply, rng = Search(), Random(0)  # noqa: S311 - an ordinary search uses no random values
        payment = self._found_otherwise.get(transaction.lower())
        if payment is not None:
            reply, rng = payment.next_search()
            event = find(reply.finds, payment, event, self._parts)
        found = [] if event is None else [event]
        answer = self._apply(reply, (HTTPStatus.OK, shaped(reply.shape, found)), rng, transaction)
        self._ledger.add("search", client_transaction_id=transaction, http_status=answer.http_status, found=len(found))
        return answer

    def _apply(
        self,
        reply: Reply,
        usual: messages.Usual,
        rng: Random,
        transaction: str,
        awaited: asyncio.Future[Any] | None = None,
    ) -> Answer:
        return messages.apply(reply, usual, rng, self._parts.settings, transaction, awaited)

    def _newest(self, transaction: str) -> bytes | None:
        payment = self.running
        if payment is not None and payment.sent and payment.transaction.lower() == transaction.lower():
            return payment.newest
        return self._parts.record.newest(transaction)

    async def stop(self) -> None:
        """Stop. A running payment is lost, as without power. The terminal can be used again."""
        await self._tasks.stop()
        if self.running is not None:  # cancelled before it began
            self._end(self.running)

    def _run(self, payment: Payment) -> None:
        transaction = payment.transaction.lower()
        if payment.scenario.search == Search():
            self._found_otherwise.pop(transaction, None)
        else:
            self._found_otherwise[transaction] = payment
        self.running = payment
        self._tasks.begin(self._play(payment))

    async def _play(self, payment: Payment) -> None:
        try:
            await payment.play(self._tasks, partial(self._free, payment))
        finally:
            self._end(payment)

    def _end(self, payment: Payment) -> None:
        self._free(payment)
        if not payment.ended:
            self._ledger.add("forgotten", client_transaction_id=payment.transaction, status=payment.status)
        self._ledger.add("over", client_transaction_id=payment.transaction)

    def _free(self, payment: Payment) -> None:
        """Accept the next payment, although the steps of this one may continue."""
        if self.running is payment:
            self.running = None


def _delivered(payment: Payment, status: str) -> Callable[[Entry], bool]:
    """Return the check that a ledger entry is the delivery of the event of a state."""
    delivered = {"kind": "attempt", "client_transaction_id": payment.transaction, "status": status}

    def look(entry: Entry) -> bool:
        return delivered.items() <= entry.items() and entry["result"] in range(200, 300)

    return look


#: Failure in a search that contradicts an approval.
CONTRADICTED = Failure("05", "Do not honor", "ACQUIRER")


def find(finds: SearchFinds, payment: Payment, usual: bytes | None, parts: Parts) -> bytes | None:
    """Return the event that a search finds, or None. `usual`: event that an ordinary search finds."""
    match finds:
        case "usual":
            return usual
        case "nothing":
            return None
        case "stale":
            return payment.previous or None
        case "all-states":
            return payment.newest or None
        case "another":
            return _of_another(payment.newest) if payment.newest else None
        case "contradiction":
            return _contradicting(payment, parts) if payment.ended else usual


def shaped(shape: SearchShape, found: list[bytes]) -> Any:
    """Return the reply of a search with these events."""
    match shape:
        case "events":
            return [msgspec.Raw(event) for event in found]
        case "raw-response":
            return [_as_answer(wire.decode(event)) for event in found]
        case "paged":
            return {"data": [msgspec.Raw(event) for event in found], "total": len(found), "page": 1, "size": 10}


def _as_answer(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event in the form of a synchronous reply."""
    status = {"transaction_status": event["status"]} if event["status"] in ACQUIRERS else {}
    left_out = ("status", "previous_status", "raw_response")
    return {
        **{name: value for name, value in event.items() if name not in left_out},
        "terminal": {"serialNumber": event["terminal"]["serial_number"], "model": event["terminal"]["model"]},
        "approved": event["status"] == PaymentStatus.APPROVAL,
        "rawResponse": event.get("raw_response", {}) | status,
    }


def _of_another(event: bytes) -> bytes:
    """Return the event changed to another transaction, which is always the same."""
    body: dict[str, Any] = wire.decode(event)
    other = messages.new_uuid(_rng(body["client_transaction_id"]))
    paths = ["client_transaction_id"] + (["operation.client_transaction_id"] if "operation" in body else [])
    return wire.encode(messages.changed(body, dict.fromkeys(paths, other), ()))


def _contradicting(payment: Payment, parts: Parts) -> bytes:
    """Return a final event that contradicts the newest one. The returned event is always the same."""
    final: dict[str, Any] = wire.decode(payment.final)
    rng = _rng(final["event_id"])
    approved = final["status"] == PaymentStatus.APPROVAL
    start, amount, edition = payment.start, payment.amount, parts.settings.edition
    event = messages.transaction_event(
        parts.settings,
        start,
        amount,
        event_id=messages.new_uuid(rng),
        occurred_at=final["occurred_at"],
        status=PaymentStatus.DECLINED if approved else PaymentStatus.APPROVAL,
        previous_status=PaymentStatus.APPROVAL_REQUESTED,
        reading_type=payment.reading_type,
        failure=CONTRADICTED if approved else None,
        raw_response=None
        if approved
        else messages.approval(start, amount.authorized, payment.reading_type, edition, rng),
    )
    return wire.encode(event)


def _rng(seed: str) -> Random:
    return Random(f"{seed}/search")  # noqa: S311 - reproducible, not secret
