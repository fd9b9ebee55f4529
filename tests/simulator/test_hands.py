"""Hands: what a person or the acquirer does to the payment that runs, at every state."""

from posd.simulator.payment import ManualControl, remainder
from posd.simulator.wire import PaymentStatus
from tests.simulator.own import A, C, Q
from tests.support.tables import every

#: What is possible in each state; nothing is in any other.
POSSIBLE = {
    A: set(ManualControl),
    C: set(ManualControl),
    Q: {ManualControl.APPROVE, ManualControl.DECLINE},
}


@every("status", [None, *PaymentStatus, "PIN_REQUESTED"])
@every("hand", ManualControl)
def test_what_is_possible_in_each_state(status: str | None, hand: ManualControl) -> None:
    steps = remainder(status, hand)
    assert (steps is not None) == (hand in POSSIBLE.get(str(status), set()))
