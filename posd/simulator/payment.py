"""One payment at the terminal: how it stands, which scenario it takes, and the course that it runs."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from random import Random
from typing import Any, assert_never

import msgspec

from posd.simulator import messages, wire
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import Item
from posd.simulator.ledger import Ledger
from posd.simulator.messages import Device, Envelope, Event, StartRequest, changed
from posd.simulator.network import NotPossible
from posd.simulator.operations import CHIP, CONTACTLESS, FINALS, SENT, Status
from posd.simulator.record import Final, Record
from posd.simulator.scenario import (
    Abort,
    Certificate,
    Deed,
    Failure,
    Scenario,
    Search,
    Span,
    Step,
    Wait,
    by_amount,
    draw,
    payments,
    read,
)
from posd.simulator.settings import Settings
from posd.simulator.switchboard import Switchboard, Workings
from posd.simulator.wire import Processed, total

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Payment:
    """It changes as it goes; `name` is its scenario's, `seed` gives everything that is drawn for it."""

    start: StartRequest
    amount: Processed
    name: str
    scenario: Scenario
    seed: str
    status: str | None = None
    reading_type: str | None = None
    failure: Failure | None = None
    event_id: str = ""
    #: The newest event as it happened, though another may have been sent; empty before the first.
    newest: bytes = b""
    #: The one before it.
    previous: bytes = b""
    #: The acquirer has it: it cannot be aborted any more.
    sent: bool = False
    #: The newest final as it happened; empty where there is none.
    final: bytes = b""
    _aborts: int = 0
    _searches: int = 0

    @property
    def transaction(self) -> str:
        """The client_transaction_id."""
        return self.start.client_transaction_id

    @property
    def ended(self) -> bool:
        """It has come to a final."""
        return bool(self.final)

    def next_abort(self) -> tuple[Abort, Random]:
        """Return how the next abort is answered, and what to draw for it from."""
        self._aborts += 1
        return self.scenario.abort.nth(self._aborts), self.rng(f"abort/{self._aborts}")

    def next_search(self) -> tuple[Search, Random]:
        """Return how the next search is answered, and what to draw for it from."""
        self._searches += 1
        return self.scenario.search.nth(self._searches), self.rng(f"search/{self._searches}")

    def rng(self, what: str) -> Random:
        """Return what to draw from for one thing: always the same from the same seed."""
        return Random(f"{self.seed}/{what}")  # noqa: S311 - reproducible, not secret


@dataclass(frozen=True, slots=True)
class Parts:
    """What the payments of one terminal work with; `seed` gives everything that is drawn for them."""

    settings: Settings
    device: Device
    envelope: Envelope
    seed: str
    clock: Clock
    ledger: Ledger
    record: Record
    workings: Workings
    switchboard: Switchboard


class Choice:
    """Which scenario a payment takes: armed live > named in its metadata > chosen by its amount > of the settings."""

    def __init__(self, settings: Settings, switchboard: Switchboard) -> None:
        """Raise SettingsError where the user's own scenario cannot be read."""
        own = settings.scenario_file
        #: Those that ship, and the user's own one by its file's name.
        self.scenarios: Mapping[str, Scenario] = payments() if own is None else {**payments(), own.stem: read(own)}
        #: The scenario that the next payment will take, before that of its request; None where it is free.
        self.armed: str | None = None
        self._default = settings.scenario_name
        self._switchboard = switchboard
        #: The one that was let begin.
        self._begun: Scenario | None = None
        self._beginning = asyncio.Lock()

    def arm(self, name: str | None) -> None:
        """Choose the scenario of the next payment; None leaves it free again. Raises KeyError where there is none."""
        if name is not None and name not in self.scenarios:
            raise KeyError(name)
        self.armed = name

    def choose(self, start: StartRequest) -> tuple[str, str]:
        """Return the name of the scenario of a payment that begins, and what has chosen it."""
        armed, self.armed = self.armed, None
        if armed is not None:
            return armed, "armed"
        if start.scenario is not None:
            return start.scenario, "metadata"
        name = None if start.amount is None else by_amount(total(start.amount), self.scenarios)  # in the main unit
        return (self._default, "option") if name is None else (name, "amount")

    async def begin(self) -> None:
        """Let the scenario of the next payment begin where it begins before the start; end what one before began.

        Raises NotPossible where the terminal cannot do that.
        """
        async with self._beginning:
            before, wanted = self._begun, self.scenarios[self.armed or self._default]
            shown = before.certificate if before else None
            if wanted.certificate is not shown:
                await self._switchboard.show_certificate(wanted.certificate or Certificate.OWN)
            if wanted.away:
                await self._switchboard.unplug()
            elif before is not None and before.away:
                await self._switchboard.plug()
            self._begun = wanted


class Hand(StrEnum):
    """What a person, or the acquirer, can do to the payment that runs.

    A card that is presented leads to the acquirer, and there the payment waits for a hand that approves or declines.
    """

    PRESENT_CARD = "present-card"
    INSERT_CARD = "insert-card"
    APPROVE = "approve"
    DECLINE = "decline"
    #: The wait for the card, or for the PIN, has run out.
    REJECT = "reject"
    #: The cardholder cancels.
    CANCEL = "cancel"


#: `type` of failures that originate in the terminal: the terminal platform's name (terminal API, Refusals).
PLATFORM = "SIMULATOR"
NO_CARD_PRESENTED = Failure(PLATFORM, "CARD_WAIT_EXHAUSTED", "No card was presented in time")
NO_PIN_ENTERED = Failure(PLATFORM, "PIN_WAIT_EXHAUSTED", "The PIN was not entered in time")
INSUFFICIENT_FUNDS = Failure("ACQUIRER", "51", "Insufficient funds")
#: How long terminal, cardholder and acquirer take where a hand has started them, in terminal seconds.
_CONTACTLESS = (1.0, 3.0)
_PIN = (3.0, 9.0)
_ACQUIRER = (3.0, 12.0)
_TAPPED = Step(status=Status.CARD_PRESENTED, reading_type=CONTACTLESS)
_INSERTED = Step(status=Status.CARD_PRESENTED, reading_type=CHIP)
_REQUESTED = Step(status=Status.APPROVAL_REQUESTED)
_APPROVED = Step(status=Status.APPROVAL)
_DECLINED = Step(status=Status.DECLINED, failure=INSUFFICIENT_FUNDS)
_CANCELED = Step(status=Status.TERMINAL_CANCELED)
_WAITING = Step(after=Wait.FOR_EVER)
_PRESENTED = {
    Hand.PRESENT_CARD: (_TAPPED, Step(after=_CONTACTLESS, status=Status.APPROVAL_REQUESTED), _WAITING),
    Hand.INSERT_CARD: (_INSERTED, Step(after=_PIN, status=Status.APPROVAL_REQUESTED), _WAITING),
}
_ANSWERED_LATER = {
    Hand.APPROVE: (_REQUESTED, Step(after=_ACQUIRER, status=Status.APPROVAL)),
    Hand.DECLINE: (_REQUESTED, Step(after=_ACQUIRER, status=Status.DECLINED, failure=INSUFFICIENT_FUNDS)),
}
#: State -> hand -> the steps that follow, instead of those of the scenario. What is not here is not possible.
REMAINDERS: Mapping[str, Mapping[Hand, tuple[Step, ...]]] = {
    Status.TERMINAL_ACKNOWLEDGED: {
        **_PRESENTED,
        **{hand: (_TAPPED, *steps) for hand, steps in _ANSWERED_LATER.items()},
        Hand.REJECT: (Step(status=Status.TERMINAL_REJECTED, failure=NO_CARD_PRESENTED),),
        Hand.CANCEL: (_CANCELED,),
    },
    Status.CARD_PRESENTED: {
        **_PRESENTED,
        **_ANSWERED_LATER,
        Hand.REJECT: (Step(status=Status.TERMINAL_REJECTED, failure=NO_PIN_ENTERED),),
        Hand.CANCEL: (_CANCELED,),
    },
    Status.APPROVAL_REQUESTED: {
        Hand.APPROVE: (_APPROVED,),
        Hand.DECLINE: (_DECLINED,),
    },
}


def remainder(status: str | None, hand: Hand) -> tuple[Step, ...] | None:
    """Return the steps that follow where a hand does something in this state; None where it cannot."""
    return None if status is None else REMAINDERS.get(status, {}).get(hand)


class Course:
    """Plays one payment: the steps of its scenario in turn, unless an abort or a hand leads elsewhere."""

    def __init__(self, payment: Payment, parts: Parts, tasks: Tasks, free: Callable[["Course"], None]) -> None:
        """`tasks` are for what goes on after the course. `free` is called at each final."""
        self.payment = payment
        self._parts = parts
        self._tasks = tasks
        self._free = free
        self._rng = payment.rng("course")
        self._ahead = deque(payment.scenario.steps)
        #: What takes the place of all that is ahead once the first state was entered.
        self._then: tuple[Step, ...] = ()
        self._canceling = False
        #: The wait for the next step is over: other steps are ahead, or it is to be taken at once.
        self._disturbed = asyncio.Event()
        #: How many of the steps to come are taken at once.
        self._hurried = 0

    @property
    def abortable(self) -> bool:
        """An abort still works (terminal API, Lifecycle)."""
        return not (self.payment.sent or self.payment.ended)

    async def play(self) -> None:
        """Take every step, to the last; those after a final too."""
        while self._ahead:
            if await self._parts.clock.wait(self._disturbed, self._pause(self._ahead[0])):
                self._disturbed.clear()
                if not self._hurried:
                    continue  # with what is ahead now
                self._hurried -= 1
                if self._hurried:
                    self._disturbed.set()
            step = self._ahead.popleft()
            if step.status is not None:
                self._enter(step, step.status)
                if self.payment.ended:
                    self._free(self)
                if self._then:
                    self._ahead, self._then = deque(self._then), ()
            elif step.do is not None:
                try:
                    await self._do(step, step.do)
                except NotPossible as error:
                    _log.warning("a step of %s is left out: %s", self.payment.name, error)

    def cancel(self, after: Span) -> None:
        """Let nothing but TERMINAL_CANCELED follow, after a while; once that is ahead, nothing changes it."""
        if not self._canceling:
            self._canceling = True
            self._lead(Step(after=after, status=Status.TERMINAL_CANCELED))

    def hurry(self) -> None:
        """Take the next step at once; before the first state, which always comes, the one after it too."""
        self._hurried = 1 if self.payment.status is not None else 2
        self._disturbed.set()

    def take(self, hand: Hand) -> bool:
        """Let a hand lead on from here; False where it cannot."""
        steps = None if self._canceling else remainder(self.payment.status, hand)
        if steps is None:
            return False
        self._lead(*steps)
        return True

    def _lead(self, *steps: Step) -> None:
        """Put other steps ahead; before the first state they wait for it, for TERMINAL_ACKNOWLEDGED always comes."""
        if self.payment.status is None:
            self._then = steps
        else:
            self._ahead = deque(steps)
            self._hurried = 0
            self._disturbed.set()

    def _pause(self, step: Step) -> float | None:
        """Return how long this step is waited for, in terminal seconds; None: for ever."""
        match step.after:
            case Wait.LIMIT:
                return self._parts.settings.wait_limit
            case Wait.FOR_EVER:
                return None
            case span:
                return draw(span, self._rng)

    def _enter(self, step: Step, status: str) -> None:
        """Enter a state: write finals down as they are, then say so to the consumer as the step has it.

        In this order: killed in between, the terminal may leave an event unsaid, but has no charge that a search does
        not find.
        """
        body = self._restate() if step.restates else self._happen(step, status)
        self._say(step, wire.encode(changed(body, step.set, step.remove)).decode())

    def _restate(self) -> dict[str, Any]:
        """Return the newest event as a new one."""
        self.payment.event_id = messages.new_uuid(self._rng)
        body: dict[str, Any] = wire.decode(self.payment.newest)
        return body | {"event_id": self.payment.event_id, "occurred_at": self._now()}

    def _happen(self, step: Step, status: str) -> dict[str, Any]:
        """Let the payment be in a state, and return the event as it happened."""
        payment, start, parts = self.payment, self.payment.start, self._parts
        payment.reading_type = step.reading_type or payment.reading_type
        payment.failure = step.failure or payment.failure
        authorized = payment.amount.authorized
        if step.authorized_amount is not None:
            authorized = wire.from_main(Decimal(step.authorized_amount), parts.settings.answered_in)
        raw_response = (
            messages.approval(start, authorized, payment.reading_type, parts.envelope.edition, self._rng)
            if status == Status.APPROVAL
            else None
        )
        event = Event(
            event_id=payment.event_id if step.same_event_id else messages.new_uuid(self._rng),
            occurred_at=self._now(),
            status=status,
            previous_status=payment.status,
            reading_type=payment.reading_type,
            failure=payment.failure,
            raw_response=raw_response,
        )
        body = messages.transaction_event(parts.device, start, payment.amount, event)
        payment.previous, payment.newest = payment.newest, wire.encode(body)
        payment.event_id, payment.status = event.event_id, status
        payment.sent = payment.sent or status in SENT
        if status in FINALS:
            payment.final = payment.newest
            final = Final(start.operation.name, start.transaction_reference, msgspec.Raw(payment.newest))
            parts.record.add(final, body)
            parts.ledger.add_final(final.operation, body)
        return body

    def _now(self) -> str:
        """Return this moment by the terminal's clock."""
        return wire.timestamp(self._parts.settings.clock_offset)

    def _say(self, step: Step, told: str) -> None:
        """Queue the event of a step, as often as it is sent."""
        payment, deliver, parts = self.payment, step.deliver, self._parts
        url, status = payment.start.events_webhook_url, str(payment.status)
        if url is None or deliver.never:
            return
        times = [(deliver.late, False), *((deliver.late + seconds, True) for seconds in deliver.again)]
        for after, again in times:
            item = Item(
                payment.event_id,
                payment.transaction,
                status,
                url,
                told if deliver.raw is None else deliver.raw,
                again=again,
                alone=again or after > 0,
                due=parts.clock.after(after) if after > 0 else None,
                distrusted=deliver.distrusted,
            )
            parts.workings.submit(item)
        parts.ledger.add("event", client_transaction_id=payment.transaction, event_id=payment.event_id, status=status)

    async def _do(self, step: Step, deed: Deed) -> None:
        switchboard = self._parts.switchboard
        match deed:
            case Deed.UNPLUG:
                await switchboard.unplug()
                if step.seconds:
                    self._tasks.begin(self._plug_after(step.seconds))
            case Deed.PLUG:
                await switchboard.plug()
            case Deed.POWER_CYCLE:
                await switchboard.power_cycle(step.seconds)
            case Deed.MOVE:
                await switchboard.move()
            case Deed.CERTIFICATE:
                assert step.certificate is not None  # noqa: S101 - the two go together
                await switchboard.show_certificate(step.certificate)
            case _:
                assert_never(deed)

    async def _plug_after(self, seconds: float) -> None:
        await self._parts.clock.sleep(seconds)
        await self._parts.switchboard.plug()
