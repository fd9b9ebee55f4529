"""The terminal: one payment at a time, with the steps of its scenario (terminal API, Lifecycle)."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Any, assert_never

import msgspec

from posd.simulator import messages, wire
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import QueuedEvent
from posd.simulator.ledger import Entry, Ledger, Record
from posd.simulator.messages import (
    START_IDS,
    Answer,
    ReceivedStart,
    changed,
    claims,
    plain,
    read_search,
    read_start,
    refusal,
)
from posd.simulator.network import Switchboard
from posd.simulator.scenario import (
    Abort,
    AbortEffect,
    Certificate,
    Failure,
    PaymentStep,
    Reply,
    Scenario,
    Search,
    SearchFinds,
    SearchShape,
    Span,
    Start,
    TerminalAction,
    by_amount,
    draw,
    payments,
    read,
)
from posd.simulator.settings import Settings
from posd.simulator.wire import (
    ACQUIRERS,
    CHIP,
    CONTACTLESS,
    FINALS,
    SENT,
    AccessMode,
    PaymentStatus,
    Processed,
    Refused,
    SettingsError,
    SimulatedOperation,
    process,
    total,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that the payments of one terminal share. `seed` determines all random values."""

    settings: Settings
    seed: str
    clock: Clock
    ledger: Ledger
    record: Record
    switchboard: Switchboard


class ManualControl(StrEnum):
    """Actions of a person, or of the acquirer, on the running payment.

    After a presented card the payment is sent to the acquirer, and waits there for an approval or a decline by hand.
    """

    PRESENT_CARD = "present-card"
    INSERT_CARD = "insert-card"
    APPROVE = "approve"
    DECLINE = "decline"
    #: The time for the card or the PIN has expired.
    REJECT = "reject"
    #: The cardholder cancels.
    CANCEL = "cancel"


#: `type` of failures of the terminal itself: the terminal platform's name (terminal API, Refusals).
PLATFORM = "SIMULATOR"
NO_CARD_PRESENTED = Failure("CARD_WAIT_EXHAUSTED", "No card was presented in time", PLATFORM)
NO_PIN_ENTERED = Failure("PIN_WAIT_EXHAUSTED", "The PIN was not entered in time", PLATFORM)
INSUFFICIENT_FUNDS = Failure("51", "Insufficient funds", "ACQUIRER")
#: Durations of terminal, cardholder and acquirer after a manual action, in terminal seconds.
_CONTACTLESS = (1.0, 3.0)
_PIN = (3.0, 9.0)
_ACQUIRER = (3.0, 12.0)
_TAPPED = PaymentStep(status=PaymentStatus.CARD_PRESENTED, reading_type=CONTACTLESS)
_INSERTED = PaymentStep(status=PaymentStatus.CARD_PRESENTED, reading_type=CHIP)
_REQUESTED = PaymentStep(status=PaymentStatus.APPROVAL_REQUESTED)
_APPROVED = PaymentStep(status=PaymentStatus.APPROVAL)
_DECLINED = PaymentStep(status=PaymentStatus.DECLINED, failure=INSUFFICIENT_FUNDS)
_CANCELED = PaymentStep(status=PaymentStatus.TERMINAL_CANCELED)
_WAITING = PaymentStep(after="for-ever")
_PRESENTED = {
    ManualControl.PRESENT_CARD: (
        _TAPPED,
        PaymentStep(after=_CONTACTLESS, status=PaymentStatus.APPROVAL_REQUESTED),
        _WAITING,
    ),
    ManualControl.INSERT_CARD: (_INSERTED, PaymentStep(after=_PIN, status=PaymentStatus.APPROVAL_REQUESTED), _WAITING),
}
_ANSWERED_LATER = {
    ManualControl.APPROVE: (_REQUESTED, PaymentStep(after=_ACQUIRER, status=PaymentStatus.APPROVAL)),
    ManualControl.DECLINE: (
        _REQUESTED,
        PaymentStep(after=_ACQUIRER, status=PaymentStatus.DECLINED, failure=INSUFFICIENT_FUNDS),
    ),
}
#: State -> manual action -> steps that replace those of the scenario. Other pairs are impossible.
REMAINDERS: Mapping[str, Mapping[ManualControl, tuple[PaymentStep, ...]]] = {
    PaymentStatus.TERMINAL_ACKNOWLEDGED: {
        **_PRESENTED,
        **{hand: (_TAPPED, *steps) for hand, steps in _ANSWERED_LATER.items()},
        ManualControl.REJECT: (PaymentStep(status=PaymentStatus.TERMINAL_REJECTED, failure=NO_CARD_PRESENTED),),
        ManualControl.CANCEL: (_CANCELED,),
    },
    PaymentStatus.CARD_PRESENTED: {
        **_PRESENTED,
        **_ANSWERED_LATER,
        ManualControl.REJECT: (PaymentStep(status=PaymentStatus.TERMINAL_REJECTED, failure=NO_PIN_ENTERED),),
        ManualControl.CANCEL: (_CANCELED,),
    },
    PaymentStatus.APPROVAL_REQUESTED: {
        ManualControl.APPROVE: (_APPROVED,),
        ManualControl.DECLINE: (_DECLINED,),
    },
}


def remainder(status: str | None, hand: ManualControl) -> tuple[PaymentStep, ...] | None:
    """Return the steps after a manual action in this state, or None if the action is impossible."""
    return None if status is None else REMAINDERS.get(status, {}).get(hand)


class Payment:
    """One payment: its state, and the steps of its scenario in turn, unless an abort or a manual action changes them.

    `name`: name of the scenario. `seed` determines all random values.
    """

    def __init__(
        self, parts: Parts, start: ReceivedStart, amount: Processed, name: str, scenario: Scenario, seed: str
    ) -> None:
        self.start = start
        self.amount = amount
        self.name = name
        self.scenario = scenario
        self.status: str | None = None
        self.reading_type: str | None = None
        #: The newest true event, even if another one was sent. Empty before the first event.
        self.newest = b""
        #: The true event before the newest.
        self.previous = b""
        #: Whether the payment was sent to the acquirer, so that an abort is impossible.
        self.sent = False
        #: The newest true final event, or empty.
        self.final = b""
        self._parts = parts
        self._seed = seed
        self._failure: Failure | None = None
        self._event_id = ""
        self._aborts = 0
        self._searches = 0
        self._rng = self.rng("course")
        self._ahead = deque(scenario.steps)
        #: Steps that replace all remaining steps after the first state.
        self._then: tuple[PaymentStep, ...] = ()
        self._canceling = False
        #: Event that ends the wait for the next step, because the steps changed or the step is due at once.
        self._disturbed = asyncio.Event()
        #: Number of next steps that are due at once.
        self._hurried = 0

    @property
    def transaction(self) -> str:
        """The client_transaction_id."""
        return self.start.client_transaction_id

    @property
    def ended(self) -> bool:
        """Whether the payment has a final event."""
        return bool(self.final)

    @property
    def abortable(self) -> bool:
        """Whether an abort still works (terminal API, Lifecycle)."""
        return not (self.sent or self.ended)

    def next_abort(self) -> tuple[Abort, Random]:
        """Return the reply to the next abort, and the random source for it."""
        self._aborts += 1
        return self.scenario.abort.nth(self._aborts), self.rng(f"abort/{self._aborts}")

    def next_search(self) -> tuple[Search, Random]:
        """Return the reply to the next search, and the random source for it."""
        self._searches += 1
        return self.scenario.search.nth(self._searches), self.rng(f"search/{self._searches}")

    def rng(self, what: str) -> Random:
        """Return the random source for one purpose. The same seed gives the same values."""
        return Random(f"{self._seed}/{what}")  # noqa: S311 - reproducible, not secret

    async def play(self, tasks: Tasks, free: Callable[[], None]) -> None:
        """Run all steps, even those after a final. `free` is called at each final.

        `tasks`: runs work after the last step.
        """
        while self._ahead:
            if await self._parts.clock.wait(self._disturbed, self._pause(self._ahead[0])):
                self._disturbed.clear()
                if not self._hurried:
                    continue  # the steps have changed
                self._hurried -= 1
                if self._hurried:
                    self._disturbed.set()
            step = self._ahead.popleft()
            if step.status is not None:
                self._enter(step, step.status)
                if self.ended:
                    free()
                if self._then:
                    self._ahead, self._then = deque(self._then), ()
            elif step.do is not None:
                try:
                    await self._do(step, step.do, tasks)
                except SettingsError as error:
                    _log.warning("a step of %s is left out: %s", self.name, error)

    def cancel(self, after: Span) -> None:
        """Replace all remaining steps by TERMINAL_CANCELED after `after`. Nothing can change that again."""
        if not self._canceling:
            self._canceling = True
            self._lead(PaymentStep(after=after, status=PaymentStatus.TERMINAL_CANCELED))

    def hurry(self) -> None:
        """Make the next step due at once.

        Before the first state, make two steps due, because the first state always comes.
        """
        self._hurried = 1 if self.status is not None else 2
        self._disturbed.set()

    def take(self, hand: ManualControl) -> bool:
        """Apply a manual action. Return False if it is impossible."""
        steps = None if self._canceling else remainder(self.status, hand)
        if steps is None:
            return False
        self._lead(*steps)
        return True

    def _lead(self, *steps: PaymentStep) -> None:
        """Replace the remaining steps. Before the first state, TERMINAL_ACKNOWLEDGED still comes first."""
        if self.status is None:
            self._then = steps
        else:
            self._ahead = deque(steps)
            self._hurried = 0
            self._disturbed.set()

    def _pause(self, step: PaymentStep) -> float | None:
        """Return the wait before a step, in terminal seconds. None: without limit."""
        match step.after:
            case "limit":
                return self._parts.settings.wait_limit
            case "for-ever":
                return None
            case span:
                return draw(span, self._rng)

    def _enter(self, step: PaymentStep, status: str) -> None:
        """Enter a state: record a final, then queue its event.

        With this order, after a kill an event may be missing, but a search finds every charge.
        """
        body = self._restate() if step.restates else self._happen(step, status)
        self._say(step, wire.encode(changed(body, step.set, step.remove)).decode())

    def _restate(self) -> dict[str, Any]:
        """Return the newest event with a new id and time."""
        self._event_id = messages.new_uuid(self._rng)
        body: dict[str, Any] = wire.decode(self.newest)
        return body | {"event_id": self._event_id, "occurred_at": self._now()}

    def _happen(self, step: PaymentStep, status: str) -> dict[str, Any]:
        """Set the state of the payment, and return the true event."""
        start, parts = self.start, self._parts
        self.reading_type = step.reading_type or self.reading_type
        self._failure = step.failure or self._failure
        authorized = self.amount.authorized
        if step.authorized_amount is not None:
            authorized = wire.from_main(Decimal(step.authorized_amount), parts.settings.answered_in)
        raw_response = (
            messages.approval(start, authorized, self.reading_type, parts.settings.edition, self._rng)
            if status == PaymentStatus.APPROVAL
            else None
        )
        body = messages.transaction_event(
            parts.settings,
            start,
            self.amount,
            event_id=self._event_id if step.same_event_id else messages.new_uuid(self._rng),
            occurred_at=self._now(),
            status=status,
            previous_status=self.status,
            reading_type=self.reading_type,
            failure=self._failure,
            raw_response=raw_response,
        )
        self.previous, self.newest = self.newest, wire.encode(body)
        self._event_id, self.status = body["event_id"], status
        self.sent = self.sent or status in SENT
        if status in FINALS:
            self.final = self.newest
            parts.record.add(start.operation.name, start.transaction_reference, body)
            parts.ledger.add_final(start.operation.name, body)
        return body

    def _now(self) -> str:
        """Return the present time of the terminal's clock."""
        return wire.timestamp(self._parts.settings.clock_offset)

    def _say(self, step: PaymentStep, told: str) -> None:
        """Queue all deliveries of the event of a step."""
        deliver, parts = step.deliver, self._parts
        url, status = self.start.events_webhook_url, str(self.status)
        if url is None or deliver.never:
            return
        times = [(deliver.late, False), *((deliver.late + seconds, True) for seconds in deliver.again)]
        for after, again in times:
            item = QueuedEvent(
                self._event_id,
                self.transaction,
                status,
                url,
                told if deliver.raw is None else deliver.raw,
                again=again,
                alone=again or after > 0,
                due=parts.clock.after(after) if after > 0 else None,
                distrusted=deliver.distrusted,
            )
            parts.switchboard.submit(item)
        parts.ledger.add("event", client_transaction_id=self.transaction, event_id=self._event_id, status=status)

    async def _do(self, step: PaymentStep, deed: TerminalAction, tasks: Tasks) -> None:
        switchboard = self._parts.switchboard
        match deed:
            case "unplug":
                await switchboard.unplug()
                if step.seconds:
                    tasks.begin(self._plug_after(step.seconds))
            case "plug":
                await switchboard.plug()
            case "power-cycle":
                await switchboard.power_cycle(step.seconds)
            case "move":
                await switchboard.move()
            case "certificate":
                assert step.certificate is not None  # noqa: S101 - `certificate` is always set with this `do`
                await switchboard.show_certificate(step.certificate)
            case _:
                assert_never(deed)

    async def _plug_after(self, seconds: float) -> None:
        await self._parts.clock.sleep(seconds)
        await self._parts.switchboard.plug()


# The terminal of these payments.


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
