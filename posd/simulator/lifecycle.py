"""The seven states of a payment, as the terminal goes through them (terminal API, Lifecycle)."""

from enum import StrEnum


class Status(StrEnum):
    """The seven lifecycle states (terminal API, Lifecycle)."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    CARD_PRESENTED = "CARD_PRESENTED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: No event follows these (terminal API, Lifecycle).
FINALS = frozenset({Status.APPROVAL, Status.DECLINED, Status.TERMINAL_REJECTED, Status.TERMINAL_CANCELED})
#: From these on it is the acquirer's: APPROVAL_REQUESTED is the point of no return (terminal API, Lifecycle).
SENT = frozenset({Status.APPROVAL_REQUESTED, Status.DECLINED, Status.APPROVAL})

#: Values of `reading_type` (terminal API, Events) that the simulator's own scenarios and hands use.
CONTACTLESS = "CONTACTLESS"
CHIP = "CHIP"
