"""The terminal: one payment at a time, with the steps of its scenario (terminal API, Lifecycle)."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from random import Random
from typing import Any, Literal, TypeVar, assert_never

import msgspec

from posd.simulator import messages, wire
from posd.simulator import scenario as scenarios
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import QueuedEvent
from posd.simulator.ledger import Entry, Ledger, Record
from posd.simulator.network import Switchboard
from posd.simulator.scenario import Failure, PaymentStep, Reply, Scenario, Search
from posd.simulator.settings import Settings
from posd.simulator.wire import PaymentStatus, Refused, SettingsError

R = TypeVar("R", bound=Reply)

_log = logging.getLogger(__name__)


#: Action of a person, or of the acquirer, on the running payment. After a presented card the payment is sent to the
#: acquirer, and waits there for an approval or a decline by hand.
ManualControl = Literal[
    "present-card",
    "insert-card",
    "approve",
    "decline",
    # The time for the card or the PIN has expired.
    "reject",
    # The cardholder cancels.
    "cancel",
]
_Steps = Mapping[ManualControl, tuple[PaymentStep, ...]]


#: `type` of failures of the terminal itself: the terminal platform's name (terminal API, Refusals).
PLATFORM = "SIMULATOR"
NO_CARD_PRESENTED = Failure("CARD_WAIT_EXHAUSTED", "No card was presented in time", PLATFORM)
NO_PIN_ENTERED = Failure("PIN_WAIT_EXHAUSTED", "The PIN was not entered in time", PLATFORM)
INSUFFICIENT_FUNDS = Failure("51", "Insufficient funds", "ACQUIRER")
#: Durations of terminal, cardholder and acquirer after a manual action, in terminal seconds.
_CONTACTLESS = (1.0, 3.0)
_PIN = (3.0, 9.0)
_ACQUIRER = (3.0, 12.0)
_TAPPED = PaymentStep(status=PaymentStatus.CARD_PRESENTED, reading_type=wire.CONTACTLESS)
_INSERTED = PaymentStep(status=PaymentStatus.CARD_PRESENTED, reading_type=wire.CHIP)
_REQUESTED = PaymentStep(status=PaymentStatus.APPROVAL_REQUESTED)
_APPROVED = PaymentStep(status=PaymentStatus.APPROVAL)
_DECLINED = PaymentStep(status=PaymentStatus.DECLINED, failure=INSUFFICIENT_FUNDS)
_CANCELED = PaymentStep(status=PaymentStatus.TERMINAL_CANCELED)
_WAITING = PaymentStep(after="for-ever")
_PRESENTED: _Steps = {
    "present-card": (_TAPPED, PaymentStep(after=_CONTACTLESS, status=PaymentStatus.APPROVAL_REQUESTED), _WAITING),
    "insert-card": (_INSERTED, PaymentStep(after=_PIN, status=PaymentStatus.APPROVAL_REQUESTED), _WAITING),
}
_ANSWERED_LATER: _Steps = {
    "approve": (_REQUESTED, msgspec.structs.replace(_APPROVED, after=_ACQUIRER)),
    "decline": (_REQUESTED, msgspec.structs.replace(_DECLINED, after=_ACQUIRER)),
}
#: State -> manual action -> steps that replace those of the scenario. Other pairs are impossible.
REMAINDERS: Mapping[str, _Steps] = {
    PaymentStatus.TERMINAL_ACKNOWLEDGED: {
        **_PRESENTED,
        **{hand: (_TAPPED, *steps) for hand, steps in _ANSWERED_LATER.items()},
        "reject": (PaymentStep(status=PaymentStatus.TERMINAL_REJECTED, failure=NO_CARD_PRESENTED),),
        "cancel": (_CANCELED,),
    },
    PaymentStatus.CARD_PRESENTED: {
        **_PRESENTED,
        **_ANSWERED_LATER,
        "reject": (PaymentStep(status=PaymentStatus.TERMINAL_REJECTED, failure=NO_PIN_ENTERED),),
        "cancel": (_CANCELED,),
    },
    PaymentStatus.APPROVAL_REQUESTED: {
        "approve": (_APPROVED,),
        "decline": (_DECLINED,),
    },
}


@dataclass(eq=False, slots=True)
class Payment:
    """One payment: its state, and the steps of its scenario in turn, unless an abort or a manual action changes them.

    `name`: name of the scenario. `seed` determines all random values.
    """

    terminal: "PaymentTerminal"
    start: messages.ReceivedStart
    amount: wire.Processed
    name: str
    scenario: Scenario
    seed: str
    status: str | None = None
    reading_type: str | None = None
    #: The newest true event. The scenario may have sent it with changes. Empty before the first event.
    newest: bytes = b""
    #: The true event before `newest`.
    previous: bytes = b""
    #: Whether the payment was sent to the acquirer, so that an abort is impossible.
    sent: bool = False
    #: The newest true final event, or empty.
    final: bytes = b""
    _failure: Failure | None = None
    _event_id: str = ""
    #: Number of aborts, and of searches.
    _calls: Counter[str] = field(default_factory=Counter)
    #: Random source of the course of the payment.
    _rng: Random = field(init=False)
    #: The next steps.
    _ahead: deque[PaymentStep] = field(init=False)
    #: Steps that replace all remaining steps after the first state.
    _then: tuple[PaymentStep, ...] = ()
    _canceling: bool = False
    #: Event that ends the wait for the next step, because the steps changed or the step is due at once.
    _disturbed: asyncio.Event = field(default_factory=asyncio.Event)
    #: Number of next steps to take without waiting.
    _hurried: int = 0

    def __post_init__(self) -> None:
        self._rng = self.rng("course")
        self._ahead = deque(self.scenario.steps)

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

    def count(self, call: str, reply: R) -> tuple[R, Random]:
        """Count a call. Return its reply and its random source.

        A scenario may change the first `reply.times` replies only.
        """
        self._calls[call] += 1
        number = self._calls[call]
        return reply.nth(number), self.rng(f"{call}/{number}")

    def rng(self, what: str) -> Random:
        """Return the random source for one purpose. The same seed gives the same values."""
        return Random(f"{self.seed}/{what}")  # noqa: S311 - reproducible, not secret

    async def play(self, tasks: Tasks, free: Callable[[], None]) -> None:
        """Run all steps, even those after a final. `free` is called at each final.

        `tasks` runs work that continues after the last step.
        """
        while self._ahead:
            if await self.terminal.clock.wait(self._disturbed, self._pause(self._ahead[0])):
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

    def cancel(self, after: scenarios.Span) -> None:
        """Replace all remaining steps by TERMINAL_CANCELED after `after`.

        Later aborts and manual actions have no effect.
        """
        if not self._canceling:
            self._canceling = True
            self._lead(PaymentStep(after=after, status=PaymentStatus.TERMINAL_CANCELED))

    def hurry(self) -> None:
        """Make the next step due at once.

        Before the first state, make two steps due, because no payment skips the first state.
        """
        self._hurried = 1 if self.status is not None else 2
        self._disturbed.set()

    def take(self, hand: ManualControl) -> bool:
        """Apply a manual action. Return False if it is impossible."""
        steps = None if self._canceling else REMAINDERS.get(self.status or "", {}).get(hand)
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
                return self.terminal.settings.wait_limit
            case "for-ever":
                return None
            case span:
                return scenarios.draw(span, self._rng)

    def _enter(self, step: PaymentStep, status: str) -> None:
        """Enter a state: record a final, then queue its event.

        After a kill between these two steps the event is lost, but a search still finds the charge.
        """
        body = self._restate() if step.restates else self._happen(step, status)
        self._say(step, wire.encode(messages.changed(body, step.set, step.remove)).decode())

    def _restate(self) -> dict[str, Any]:
        """Return the newest event with a new id and time."""
        self._event_id = messages.new_uuid(self._rng)
        body: dict[str, Any] = wire.decode(self.newest)
        return body | {"event_id": self._event_id, "occurred_at": self._now()}

    def _happen(self, step: PaymentStep, status: str) -> dict[str, Any]:
        """Set the state of the payment, record a final, and return the true event (see `newest`)."""
        start, terminal = self.start, self.terminal
        self.reading_type = step.reading_type or self.reading_type
        self._failure = step.failure or self._failure
        amount = self.amount
        if step.authorized_amount is not None:
            authorized = wire.from_main(Decimal(step.authorized_amount), terminal.settings.answered_in)
            amount = replace(amount, authorized=authorized)
        body = messages.transaction_event(
            terminal.settings,
            start,
            amount,
            self._rng,
            event_id=self._event_id if step.same_event_id else None,
            occurred_at=self._now(),
            status=status,
            previous_status=self.status,
            reading_type=self.reading_type,
            failure=self._failure,
        )
        self.previous, self.newest = self.newest, wire.encode(body)
        self._event_id, self.status = body["event_id"], status
        self.sent = self.sent or status in wire.SENT
        if status in wire.FINALS:
            self.final = self.newest
            terminal.record.add(start.operation.name, start.transaction_reference, body)
            terminal.ledger.add_final(start.operation.name, body)
        return body

    def _now(self) -> str:
        """Return the present time of the terminal's clock."""
        return wire.timestamp(self.terminal.settings.clock_offset)

    def _say(self, step: PaymentStep, told: str) -> None:
        """Queue all deliveries of the event of a step."""
        deliver, terminal = step.deliver, self.terminal
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
                due=terminal.clock.after(after) if after > 0 else None,
                distrusted=deliver.distrusted,
            )
            terminal.switchboard.submit(item)
        terminal.ledger.add("event", client_transaction_id=self.transaction, event_id=self._event_id, status=status)

    async def _do(self, step: PaymentStep, deed: scenarios.TerminalAction, tasks: Tasks) -> None:
        switchboard = self.terminal.switchboard
        match deed:
            case "unplug":
                await switchboard.set_plugged(False)
                if step.seconds:
                    tasks.begin(self._plug_after(step.seconds))
            case "plug":
                await switchboard.set_plugged(True)
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
        await self.terminal.clock.sleep(seconds)
        await self.terminal.switchboard.set_plugged(True)


# The terminal, which runs the payments.


@dataclass(eq=False, slots=True)
class PaymentTerminal:
    """Part of a terminal that replies to starts, aborts and searches, and runs payments.

    `seed` determines all random values.

    The scenario of a payment is the first of: armed, named in the metadata, chosen by the amount, configured. A reply
    and its effects are computed without an await, so that no other request comes between them.
    """

    settings: Settings
    seed: str
    clock: Clock
    ledger: Ledger
    record: Record
    switchboard: Switchboard
    #: Scenario of the next payment, which overrides the choice of the request. None: no choice.
    armed: str | None = None
    #: Bodies of all start requests and searches as text before their check, oldest first.
    requests: list[str] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    #: The running payment. It has no final yet, and more steps follow.
    running: Payment | None = None
    #: The shipped scenarios, and the user's own scenario under its file's name.
    _scenarios: dict[str, Scenario] = field(init=False)
    #: The terminal is prepared for this scenario.
    _prepared: Scenario | None = None
    _preparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _started: int = 0
    #: Tasks that run payments, and their background work.
    _tasks: Tasks = field(default_factory=Tasks)
    #: Id in lower case -> payment whose scenario has its own reply to a search.
    _found_otherwise: dict[str, Payment] = field(default_factory=dict)
    #: Id in lower case -> number of starts.
    _starts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Raise SettingsError if the user's own scenario cannot be read."""
        self._scenarios = dict(scenarios.payments())
        own = self.settings.scenario_file
        if own is not None:
            self._scenarios[own.stem] = scenarios.read(own)

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
        switchboard = self.switchboard
        async with self._preparing:
            before, wanted = self._prepared, self._scenarios[self.armed or self.settings.scenario_name]
            shown = before.certificate if before else None
            if wanted.certificate is not shown:
                await switchboard.show_certificate(wanted.certificate or "own")
            if wanted.away:
                await switchboard.set_plugged(False)
            elif before is not None and before.away:
                await switchboard.set_plugged(True)
            self._prepared = wanted

    def _choose(self, start: messages.ReceivedStart) -> tuple[str, str]:
        """Return the name of the scenario of a new payment, and the source of the choice."""
        armed, self.armed = self.armed, None
        if armed is not None:
            return armed, "armed"
        if start.scenario is not None:
            return start.scenario, "metadata"
        total = None if start.amount is None else wire.total(start.amount)  # in the main unit
        name = None if total is None else scenarios.by_amount(total, self._scenarios)
        return (self.settings.scenario_name, "option") if name is None else (name, "amount")

    def start(self, body: bytes, operation: wire.SimulatedOperation, access_mode: wire.AccessMode) -> messages.Answer:
        """Start an asynchronous operation. Return the reply: 200 with the acknowledgement, 400, 409, 422, or the
        scenario's.

        A repeated id is accepted, because the terminal API promises no deduplication. The ledger then shows the
        caller's mistake.

        Source: terminal API, Calls to a terminal.
        """
        self.requests.append(body.decode("utf-8", "replace"))
        asked = {"operation": operation.name, "access_mode": access_mode, **messages.claims(body, messages.START_IDS)}
        add_start = partial(self.ledger.add, "start", **asked)
        try:
            start, amount = self._admit(body, operation)
        except Refused as refused:
            add_start(http_status=refused.status, code=refused.code, scenario=None, chosen_by=None, runs=False)
            return messages.plain(messages.refusal(self.settings, refused, asked["client_transaction_id"]))
        name, chosen_by = self._choose(start)
        self._started += 1
        # Each payment has a seed of its own, so other payments do not change its random values.
        seed = f"{self.seed}/{start.client_transaction_id}/{self._started}"
        payment = Payment(self, start, amount, name, self._scenarios[name], seed)
        self._starts[payment.transaction.lower()] += 1
        reply = payment.scenario.start.nth(self._starts[payment.transaction.lower()])
        rng = payment.rng("start")
        usual = HTTPStatus.OK, messages.acknowledgement(self.settings, start, messages.new_uuid(rng))
        told = None
        if reply.after_event is not None and start.events_webhook_url is not None:
            told = self.ledger.next(_delivered(payment, reply.after_event))
        answer = messages.apply(self.settings, reply, usual, rng, payment.transaction, told)
        add_start(http_status=answer.http_status, code=None, scenario=name, chosen_by=chosen_by, runs=reply.runs)
        if reply.runs:
            self._run(payment)
        else:
            self.ledger.add("over", client_transaction_id=payment.transaction)
        return answer

    def _admit(self, body: bytes, operation: wire.SimulatedOperation) -> tuple[messages.ReceivedStart, wire.Processed]:
        """Check a request against the running payment and the approvals. Return it with its processed amount.

        The reference is checked while no payment runs. So the approvals do not change until this payment ends.
        """
        settings = self.settings
        start = messages.read_start(body, operation, self._scenarios, settings.amount_unit)
        if self.running is not None:
            raise Refused(HTTPStatus.CONFLICT, "TERMINAL_BUSY", "another payment is running on this terminal")
        if settings.edition == "2026" and not operation.originals and wire.total(start.amount or {}) == 0:
            raise Refused(422, "PAR-003", "the amount must be above 0", kind="PARAMETER", param="amount")
        reference = start.transaction_reference
        original = None if reference is None else self.record.original(operation, reference)
        if start.amount is not None:
            tip = settings.tip if operation.takes_tip else None
            processed = wire.process(start.amount, currency=settings.currency, tip=tip)
            return start, processed.told_in(settings.answered_in)
        assert original is not None  # noqa: S101 - an operation without an amount has an original
        return start, original.amount

    def abort(self) -> messages.Answer:
        """Abort the running payment. Return the reply: 200 if TERMINAL_CANCELED will follow, 409 if nothing can be
        aborted, or the scenario's.

        The reply to an abort after APPROVAL_REQUESTED is not published. Here it is a 409 as from an idle terminal, with
        another code. The payment continues (terminal API, Lifecycle).
        """
        payment, effect = self.running, None
        if payment is None:
            idle = Refused(HTTPStatus.CONFLICT, "NOTHING_RUNNING", "no payment is running")
            answer = messages.plain(messages.refusal(self.settings, idle))
        else:
            reply, rng = payment.count("abort", payment.scenario.abort)
            if payment.abortable:
                effect = reply.effect
                usual = messages.coded(HTTPStatus.OK, "ABORTED", "the payment is being canceled")
            else:
                late = Refused(HTTPStatus.CONFLICT, "PAST_POINT_OF_NO_RETURN", "sent to the acquirer")
                usual = messages.refusal(self.settings, late, payment.transaction)
            if effect == "cancels":
                payment.cancel(reply.cancels_after)
            elif effect == "raced":
                payment.hurry()
            answer = messages.apply(self.settings, reply, usual, rng, payment.transaction)
        transaction = payment.transaction if payment else None
        self.ledger.add("abort", client_transaction_id=transaction, http_status=answer.http_status, effect=effect)
        return answer

    def hand(self, hand: ManualControl) -> bool:
        """Apply a manual action to the running payment. Return False if it is impossible."""
        payment = self.running
        taken = payment is not None and payment.take(hand)
        transaction = payment.transaction if payment else None
        self.ledger.add("hand", hand=hand, client_transaction_id=transaction, taken=taken)
        return taken

    def search(self, body: bytes) -> messages.Answer:
        """Reply to an online search: 200 with a list of the newest event of the transaction, or with an empty list.

        A search finds the running payment after it was sent to the acquirer, and every final, even of earlier runs of
        the simulator. An invalid body has the reply 400 or 422. The real reply is not published. A scenario can change
        the reply while this process runs.
        """
        self.searches.append(body.decode("utf-8", "replace"))
        try:
            transaction = messages.read_search(body)
        except Refused as refused:
            claimed = messages.claims(body, messages.START_IDS)["client_transaction_id"]
            self.ledger.add("search", client_transaction_id=claimed, http_status=refused.status, found=0)
            return messages.plain(messages.refusal(self.settings, refused, claimed))
        event = self._newest(transaction)
        reply, rng = Search(), Random(0)  # noqa: S311 - an ordinary search uses no random values
        payment = self._found_otherwise.get(transaction.lower())
        if payment is not None:
            reply, rng = payment.count("search", payment.scenario.search)
            event = find(reply.finds, payment, event)
        found = [] if event is None else [event]
        answer = messages.apply(self.settings, reply, (HTTPStatus.OK, shaped(reply.shape, found)), rng, transaction)
        self.ledger.add("search", client_transaction_id=transaction, http_status=answer.http_status, found=len(found))
        return answer

    def _newest(self, transaction: str) -> bytes | None:
        payment = self.running
        if payment is not None and payment.sent and payment.transaction.lower() == transaction.lower():
            return payment.newest
        return self.record.newest(transaction)

    async def stop(self) -> None:
        """Stop. A running payment is lost, as without power. The terminal can be used again."""
        await self._tasks.stop()
        if self.running is not None:  # its task was cancelled before it began
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
            self.ledger.add("forgotten", client_transaction_id=payment.transaction, status=payment.status)
        self.ledger.add("over", client_transaction_id=payment.transaction)

    def _free(self, payment: Payment) -> None:
        """Accept the next payment, even if steps of this payment still follow."""
        if self.running is payment:
            self.running = None


def _delivered(payment: Payment, status: str) -> Callable[[Entry], bool]:
    """Return a function that checks whether a ledger entry reports the delivery of the event with this status."""
    delivered = {"kind": "attempt", "client_transaction_id": payment.transaction, "status": status}

    def look(entry: Entry) -> bool:
        return delivered.items() <= entry.items() and entry["result"] in range(200, 300)

    return look


#: `failure_reason` of a search's event that contradicts an approval.
CONTRADICTED = Failure("05", "Do not honor", "ACQUIRER")


def find(finds: scenarios.SearchFinds, payment: Payment, usual: bytes | None) -> bytes | None:
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
            return _contradicting(payment) if payment.ended else usual


def shaped(shape: scenarios.SearchShape, found: list[bytes]) -> Any:
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
    status = {"transaction_status": event["status"]} if event["status"] in wire.ACQUIRERS else {}
    left_out = ("status", "previous_status", "raw_response")
    return {
        **{name: value for name, value in event.items() if name not in left_out},
        "terminal": {"serialNumber": event["terminal"]["serial_number"], "model": event["terminal"]["model"]},
        "approved": event["status"] == PaymentStatus.APPROVAL,
        "rawResponse": event.get("raw_response", {}) | status,
    }


def _of_another(event: bytes) -> bytes:
    """Return the event as if it were of another transaction. That transaction is always the same."""
    body: dict[str, Any] = wire.decode(event)
    other = messages.new_uuid(_rng(body["client_transaction_id"]))
    paths = ["client_transaction_id"] + (["operation.client_transaction_id"] if "operation" in body else [])
    return wire.encode(messages.changed(body, dict.fromkeys(paths, other), ()))


def _contradicting(payment: Payment) -> bytes:
    """Return a final event that contradicts the newest one. The returned event is always the same."""
    final: dict[str, Any] = wire.decode(payment.final)
    rng = _rng(final["event_id"])
    approved = final["status"] == PaymentStatus.APPROVAL
    event = messages.transaction_event(
        payment.terminal.settings,
        payment.start,
        payment.amount,
        rng,
        occurred_at=final["occurred_at"],
        status=PaymentStatus.DECLINED if approved else PaymentStatus.APPROVAL,
        previous_status=PaymentStatus.APPROVAL_REQUESTED,
        reading_type=payment.reading_type,
        failure=CONTRADICTED if approved else None,
    )
    return wire.encode(event)


def _rng(seed: str) -> Random:
    return Random(f"{seed}/search")  # noqa: S311 - reproducible, not secret
