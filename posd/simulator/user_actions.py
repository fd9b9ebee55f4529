"""What a person, or the acquirer, does to the payment that runs: a table of what follows, by the state it is in.

A card that is presented leads to the acquirer, and there the payment waits for a hand that approves or declines.
"""

from collections.abc import Mapping
from enum import StrEnum

from posd.simulator.lifecycle import CHIP, CONTACTLESS, Status
from posd.simulator.scenario import Failure, Step, Wait


class Hand(StrEnum):
    """What can be done."""

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
