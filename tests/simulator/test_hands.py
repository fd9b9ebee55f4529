"""Hands: what a person or the acquirer does to the payment that runs, at every state."""

import pytest

from posd.simulator.operations import FINALS, PaymentStatus
from posd.simulator.payment import ManualControl, remainder
from tests.simulator.conftest import Receiver, Stage
from tests.simulator.own import CANCELED, NO, OK, REJECTED, WAITS, A, C, Q
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


#: Hands, each with the state in which it is used -> the states that follow TERMINAL_ACKNOWLEDGED, the reading type.
WAYS: list[tuple[list[tuple[ManualControl, str]], list[str], str | None]] = [
    ([(ManualControl.APPROVE, A)], [C, Q, OK], "CONTACTLESS"),
    ([(ManualControl.DECLINE, A)], [C, Q, NO], "CONTACTLESS"),
    ([(ManualControl.REJECT, A)], [REJECTED], None),
    ([(ManualControl.CANCEL, A)], [CANCELED], None),
    ([(ManualControl.PRESENT_CARD, A), (ManualControl.APPROVE, Q)], [C, Q, OK], "CONTACTLESS"),
    ([(ManualControl.PRESENT_CARD, A), (ManualControl.DECLINE, Q)], [C, Q, NO], "CONTACTLESS"),
    ([(ManualControl.INSERT_CARD, A), (ManualControl.APPROVE, Q)], [C, Q, OK], "CHIP"),
    ([(ManualControl.INSERT_CARD, A), (ManualControl.REJECT, C)], [C, REJECTED], "CHIP"),
    ([(ManualControl.INSERT_CARD, A), (ManualControl.CANCEL, C)], [C, CANCELED], None),
    ([(ManualControl.INSERT_CARD, A), (ManualControl.APPROVE, C)], [C, Q, OK], "CHIP"),
    ([(ManualControl.INSERT_CARD, A), (ManualControl.DECLINE, C)], [C, Q, NO], "CHIP"),
    (
        [(ManualControl.PRESENT_CARD, A), (ManualControl.INSERT_CARD, C), (ManualControl.APPROVE, Q)],
        [C, C, Q, OK],
        "CHIP",
    ),
]


@pytest.mark.parametrize(("ways", "states", "reading_type"), WAYS)
async def test_the_way_that_hands_lead(
    stage: Stage, receiver: Receiver, ways: list[tuple[ManualControl, str]], states: list[str], reading_type: str | None
) -> None:
    async with stage.plays(WAITS, virtual=True) as till:
        terminal = till.terminal
        await till.charge(events_webhook_url=receiver.url)
        await till.advance(1.5)
        for hand, status in ways:
            while terminal.terminal.running is not None and terminal.terminal.running.status != status:
                await till.advance(1)
            assert terminal.terminal.hand(hand), (hand, status)
            await till.advance(0)
        await till.advance(60)
        await receiver.wait_for(1 + len(states))
        taken = [(line["hand"], line["taken"]) for line in terminal.ledger.of("hand")]
        assert taken == [(hand, True) for hand, _ in ways]
        assert [line["status"] in FINALS for line in terminal.ledger.of("final")] == [True]
    assert receiver.statuses == [A, *states]
    last = receiver.deliveries[-1].event
    assert last.get("reading_type") == reading_type
    assert ("failure_reason" in last) == (states[-1] in (NO, REJECTED))
