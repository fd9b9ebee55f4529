"""Hands: what a person or the acquirer does to the payment that runs, at every state."""

import pytest

from posd.simulator.operations import FINALS, Status
from posd.simulator.payment import Hand, remainder
from tests.simulator.conftest import Receiver, Stage, Till
from tests.simulator.own import CANCELED, NO, OK, REJECTED, WAITS, A, C, Q
from tests.support.tables import every

#: What is possible in each state; nothing is in any other.
POSSIBLE = {
    A: set(Hand),
    C: set(Hand),
    Q: {Hand.APPROVE, Hand.DECLINE},
}


@every("status", [None, *Status, "PIN_REQUESTED"])
@every("hand", Hand)
def test_what_is_possible_in_each_state(status: str | None, hand: Hand) -> None:
    steps = remainder(status, hand)
    assert (steps is not None) == (hand in POSSIBLE.get(str(status), set()))


#: Hands, each with the state in which it is used -> the states that follow TERMINAL_ACKNOWLEDGED, the reading type.
WAYS: list[tuple[list[tuple[Hand, str]], list[str], str | None]] = [
    ([(Hand.APPROVE, A)], [C, Q, OK], "CONTACTLESS"),
    ([(Hand.DECLINE, A)], [C, Q, NO], "CONTACTLESS"),
    ([(Hand.REJECT, A)], [REJECTED], None),
    ([(Hand.CANCEL, A)], [CANCELED], None),
    ([(Hand.PRESENT_CARD, A), (Hand.APPROVE, Q)], [C, Q, OK], "CONTACTLESS"),
    ([(Hand.PRESENT_CARD, A), (Hand.DECLINE, Q)], [C, Q, NO], "CONTACTLESS"),
    ([(Hand.INSERT_CARD, A), (Hand.APPROVE, Q)], [C, Q, OK], "CHIP"),
    ([(Hand.INSERT_CARD, A), (Hand.REJECT, C)], [C, REJECTED], "CHIP"),
    ([(Hand.INSERT_CARD, A), (Hand.CANCEL, C)], [C, CANCELED], None),
    ([(Hand.INSERT_CARD, A), (Hand.APPROVE, C)], [C, Q, OK], "CHIP"),
    ([(Hand.INSERT_CARD, A), (Hand.DECLINE, C)], [C, Q, NO], "CHIP"),
    ([(Hand.PRESENT_CARD, A), (Hand.INSERT_CARD, C), (Hand.APPROVE, Q)], [C, C, Q, OK], "CHIP"),
]


@pytest.mark.parametrize(("ways", "states", "reading_type"), WAYS)
async def test_the_way_that_hands_lead(
    stage: Stage, receiver: Receiver, ways: list[tuple[Hand, str]], states: list[str], reading_type: str | None
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


async def test_without_a_payment_or_in_the_wrong_state_a_hand_does_nothing(stage: Stage) -> None:
    async with stage.plays(WAITS, virtual=True) as till:
        hand = till.terminal.terminal.hand
        assert not hand(Hand.PRESENT_CARD)
        await till.charge()
        assert not hand(Hand.CANCEL)  # it has not begun yet
        lines = [(line["hand"], line["client_transaction_id"] is None, line["taken"]) for line in hands(till)]
        assert lines == [("present-card", True, False), ("cancel", False, False)]


async def test_once_a_payment_is_being_canceled_a_hand_does_nothing(stage: Stage) -> None:
    async with stage.plays("[abort]\ncancels_after = 10\n" + WAITS, virtual=True) as till:
        await till.charge()
        await till.advance(1.5)
        assert (await till.abort()).status_code == 200
        assert not till.terminal.terminal.hand(Hand.APPROVE)
        await till.advance(11)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [CANCELED]


async def test_at_the_acquirer_a_payment_that_a_hand_has_led_there_waits(stage: Stage) -> None:
    async with stage.plays(WAITS, virtual=True, wait_seconds=5) as till:
        await till.charge()
        await till.advance(1.5)
        assert till.terminal.terminal.hand(Hand.PRESENT_CARD)
        await till.advance(100_000)
        assert till.terminal.terminal.running is not None
        assert till.terminal.terminal.running.status == Q
        assert not till.terminal.terminal.hand(Hand.CANCEL)


def hands(till: Till) -> list[dict[str, object]]:
    return till.terminal.ledger.of("hand")
