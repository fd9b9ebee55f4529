"""The course of one payment: the steps of its scenario in turn, unless an abort or a hand leads elsewhere."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

from posd.simulator.clock import Clock
from posd.simulator.event_log import Notices
from posd.simulator.lifecycle import Status
from posd.simulator.payment import Payment
from posd.simulator.scenario import Deed, Span, Step, Wait, draw
from posd.simulator.switches import NotPossible, Switches
from posd.simulator.user_actions import Hand, remainder

_log = logging.getLogger(__name__)

#: Starts something that goes on beside the course, and after it.
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Course:
    """Plays one payment."""

    def __init__(
        self,
        payment: Payment,
        notices: Notices,
        switches: Switches,
        clock: Clock,
        *,
        wait_limit: float | None,
        spawn: Spawn,
        free: Callable[["Course"], None],
    ) -> None:
        """`wait_limit` is in terminal seconds, None without end. `free` is called at each final."""
        self.payment = payment
        self._rng = payment.rng("course")
        self._notices = notices
        self._switches = switches
        self._clock = clock
        self._wait_limit = wait_limit
        self._spawn = spawn
        self._free = free
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
            if await self._clock.wait(self._disturbed, self._pause(self._ahead[0])):
                self._disturbed.clear()
                if not self._hurried:
                    continue  # with what is ahead now
                self._hurried -= 1
                if self._hurried:
                    self._disturbed.set()
            step = self._ahead.popleft()
            if step.status is not None:
                self._notices.enter(self.payment, step, step.status, self._rng)
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
                return self._wait_limit
            case Wait.FOR_EVER:
                return None
            case span:
                return draw(span, self._rng)

    async def _do(self, step: Step, deed: Deed) -> None:
        match deed:
            case Deed.UNPLUG:
                await self._switches.unplug()
                if step.seconds:
                    self._spawn(self._plug_after(step.seconds))
            case Deed.PLUG:
                await self._switches.plug()
            case Deed.POWER_CYCLE:
                await self._switches.power_cycle(step.seconds)
            case Deed.MOVE:
                await self._switches.move()
            case Deed.CERTIFICATE:
                assert step.certificate is not None  # noqa: S101 - the two go together
                await self._switches.show_certificate(step.certificate)
            case _:
                assert_never(deed)

    async def _plug_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._switches.plug()
