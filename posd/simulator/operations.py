"""Operations of the terminal, one row each, and the states of a payment.

The words of the first four are the terminal API's. The wire names of post-tip, void and refund are not published; those
here are invented. The charge's path is published; the others are assumptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: Access mode of a call: over the terminal's own network, or through the service, with the serial in the path. Source:
#: terminal API, Events.
AccessMode = Literal["local", "cloud"]


@dataclass(frozen=True, slots=True)
class SimulatedOperation:
    """One operation. `Approvals` applies `originals`, `not_after` and `renews`."""

    #: In the acknowledgement (terminal API, Acknowledgement).
    name: str
    #: In the final event (terminal API, Events).
    reported_as: str
    #: Below `/terminal/v1/`, and below the serial in the cloud (terminal API, Calls to a terminal).
    path: str
    #: Word for an original after this operation.
    done: str = ""
    #: Operations whose approval its request must reference; empty: it takes no reference.
    originals: tuple[str, ...] = ()
    #: Operations on the same original after which it is impossible.
    not_after: tuple[str, ...] = ()
    #: Its own reference replaces the original's.
    renews: bool = False
    #: Its final event has the reference of the request (terminal API, Events).
    reports_reference: bool = False
    #: False: without an amount in the request, the original's counts.
    needs_amount: bool = True
    #: The cardholder can add a tip.
    takes_tip: bool = False


#: A further operation is one more row.
OPERATIONS = (
    SimulatedOperation("charge", "CHARGE", "async/charge", takes_tip=True),
    SimulatedOperation("pre-auth", "PREAUTH", "async/authorization", takes_tip=True),
    SimulatedOperation(
        "re-auth",
        "REAUTHORIZATION",
        "async/re_authorization",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        renews=True,
        reports_reference=True,
        takes_tip=True,
    ),
    SimulatedOperation(
        "capture",
        "CAPTURE",
        "async/capture",
        done="captured",
        originals=("pre-auth", "re-auth"),
        not_after=("capture", "void"),
        reports_reference=True,
        takes_tip=True,
    ),
    SimulatedOperation(
        "post-tip",
        "POST_TIP",  # invented
        "async/pos_tip",
        done="tipped",
        originals=("charge", "capture"),
        not_after=("void", "post-tip"),
    ),
    SimulatedOperation(
        "void",
        "VOID",  # invented
        "async/void",
        done="voided",
        originals=("charge", "capture", "pre-auth", "re-auth"),
        not_after=("capture", "void", "refund"),
        needs_amount=False,
    ),
    SimulatedOperation(
        "refund",
        "REFUND",  # invented
        "async/refund",
        done="refunded",
        originals=("charge", "capture"),
        not_after=("void",),
        needs_amount=False,
    ),
)
#: Name -> operation.
BY_NAME: Mapping[str, SimulatedOperation] = {operation.name: operation for operation in OPERATIONS}


class PaymentStatus(StrEnum):
    """The seven states of a payment (terminal API, Lifecycle)."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    CARD_PRESENTED = "CARD_PRESENTED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: No event follows these (terminal API, Lifecycle).
FINALS = frozenset(
    {PaymentStatus.APPROVAL, PaymentStatus.DECLINED, PaymentStatus.TERMINAL_REJECTED, PaymentStatus.TERMINAL_CANCELED}
)
#: States after the transfer to the acquirer: APPROVAL_REQUESTED is the point of no return (terminal API, Lifecycle).
SENT = frozenset({PaymentStatus.APPROVAL_REQUESTED, PaymentStatus.DECLINED, PaymentStatus.APPROVAL})
#: Results from the acquirer (terminal API, Lifecycle).
ACQUIRERS = frozenset({PaymentStatus.DECLINED, PaymentStatus.APPROVAL})
#: Values of `reading_type` (terminal API, Events) in the simulator's own scenarios and hands.
CONTACTLESS = "CONTACTLESS"
CHIP = "CHIP"
