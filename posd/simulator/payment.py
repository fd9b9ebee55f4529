"""One payment on the terminal: its state, scenario and steps."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from random import Random
from typing import Any, assert_never

from posd.simulator import messages, wire
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import QueuedEvent
from posd.simulator.ledger import Ledger, Record
from posd.simulator.messages import ReceivedStart, changed
from posd.simulator.scenario import (
    Abort,
    Failure,
    PaymentStep,
    Scenario,
    Search,
    Span,
    TerminalAction,
    draw,
)
from posd.simulator.settings import Settings
from posd.simulator.switchboard import Switchboard
from posd.simulator.wire import CHIP, CONTACTLESS, FINALS, SENT, PaymentStatus, Processed, SettingsError

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
