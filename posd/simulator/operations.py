"""The operations that the terminal runs, one row each, and the states of a payment.

The words of the first four are the terminal API's. What a post-tip, a void and a refund are called on the wire is not
published: theirs are made up here. Of the paths the charge's is published; the others are assumptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: How the terminal is called: on its own network, or through the service, which names it by its serial.
#: Source: terminal API, Events.
AccessMode = Literal["local", "cloud"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `originals`, `not_after` and `renews` are read by `Approvals`, where the rules stand."""

    #: In the acknowledgement (terminal API, Acknowledgement).
    name: str
    #: In the final event (terminal API, Events).
    reported_as: str
    #: Below `/terminal/v1/`, and below the serial in the cloud (terminal API, Calls to a terminal).
    path: str
    #: What has become of an original to which it was done.
    done: str = ""
    #: The operations to whose approval its request must refer; where there are none, it takes no reference.
    originals: tuple[str, ...] = ()
    #: The operations that leave it nothing to do, once one of them was done to the same original.
    not_after: tuple[str, ...] = ()
    #: Its own reference takes the place of the original's.
    renews: bool = False
    #: Its final event has the reference that the request sent (terminal API, Events).
    reports_reference: bool = False
    #: Without an amount in the request the original's counts.
    needs_amount: bool = True
    #: The cardholder can add a tip.
    takes_tip: bool = False


#: A further operation is one more row.
OPERATIONS = (
    Operation("charge", "CHARGE", "async/charge", takes_tip=True),
    Operation("pre-auth", "PREAUTH", "async/authorization", takes_tip=True),
    Operation(
        "re-auth",
        "REAUTHORIZATION",
        "async/re_authorization",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        renews=True,
        reports_reference=True,
        takes_tip=True,
    ),
    Operation(
        "capture",
        "CAPTURE",
        "async/capture",
        done="captured",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        reports_reference=True,
        takes_tip=True,
    ),
    Operation(
        "post-tip",
        "POST_TIP",  # made up
        "async/pos_tip",
        done="tipped",
        originals=("charge", "capture"),
        not_after=("void", "post-tip"),
    ),
    Operation(
        "void",
        "VOID",  # made up
        "async/void",
        done="voided",
        originals=("charge", "capture", "pre-auth", "re-auth"),
        not_after=("capture", "void", "refund"),
        needs_amount=False,
    ),
    Operation(
        "refund",
        "REFUND",  # made up
        "async/refund",
        done="refunded",
        originals=("charge", "capture"),
        not_after=("void",),
        needs_amount=False,
    ),
)
#: Name -> operation.
BY_NAME: Mapping[str, Operation] = {operation.name: operation for operation in OPERATIONS}


class Status(StrEnum):
    """The seven states of a payment, as the terminal goes through them (terminal API, Lifecycle)."""

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
#: What the acquirer answered (terminal API, Lifecycle).
ACQUIRERS = frozenset({Status.DECLINED, Status.APPROVAL})
#: Values of `reading_type` (terminal API, Events) that the simulator's own scenarios and hands use.
CONTACTLESS = "CONTACTLESS"
CHIP = "CHIP"
