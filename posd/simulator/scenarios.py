"""What can happen to a payment at the terminal: one table of scenarios, each a list of steps (spec 3.1).

A step is a pause and the state that the terminal enters after it. The POS can abort in any pause until
APPROVAL_REQUESTED has been entered; that needs no scenario of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from random import Random


class Status(StrEnum):
    """The seven lifecycle states (spec 3.1)."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    CARD_PRESENTED = "CARD_PRESENTED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: No event follows these (spec 3.1, rule 1).
FINALS = frozenset({Status.APPROVAL, Status.DECLINED, Status.TERMINAL_REJECTED, Status.TERMINAL_CANCELED})
#: Where an abort still works; APPROVAL_REQUESTED is the point of no return (spec 3.1, rule 2).
ABORTABLE = frozenset({None, Status.TERMINAL_ACKNOWLEDGED, Status.CARD_PRESENTED})


class Pause(Enum):
    """How long people, terminal and acquirer take: the shortest and the longest, in terminal seconds.

    The first event's is the spec's (2.2); the others are chosen so that an approved cycle of four events takes 8 to
    33 s, a rejection about 11 s and a cancellation about 2.5 s (spec 3.1, rule 6).
    """

    FIRST_EVENT = (1.0, 2.0)
    CARD = (3.0, 10.0)
    CARD_AGAIN = (2.0, 4.0)
    CONTACTLESS = (1.0, 3.0)
    PIN = (3.0, 9.0)
    ACQUIRER = (3.0, 12.0)
    NO_CARD = (9.0, 10.0)
    NO_PIN = (4.0, 6.0)
    CARDHOLDER_CANCELS = (0.8, 1.2)
    ABORT = (0.2, 0.5)
    #: For ever, or until the limit in the settings.
    WAIT_LIMIT = None

    def seconds(self, rng: Random, wait_limit: float | None) -> float | None:
        """Draw a length in terminal seconds; None means without end."""
        return wait_limit if self.value is None else rng.uniform(*self.value)


#: `type` of failures that originate in the terminal: the terminal platform's name (spec 7).
PLATFORM = "SIMULATOR"


@dataclass(frozen=True, slots=True)
class Failure:
    """A `failure_reason` (spec 7); the catalogue of codes is not published, so these are the simulator's own."""

    type: str
    code: str
    message: str


NO_CARD_PRESENTED = Failure(PLATFORM, "CARD_WAIT_EXHAUSTED", "No card was presented in time")
NO_PIN_ENTERED = Failure(PLATFORM, "PIN_WAIT_EXHAUSTED", "The PIN was not entered in time")
INSUFFICIENT_FUNDS = Failure("ACQUIRER", "51", "Insufficient funds")

CONTACTLESS = "CONTACTLESS"
CHIP = "CHIP"


@dataclass(frozen=True, slots=True)
class Step:
    """After `pause` the terminal enters `status`; `reading_type` and `failure` are new from here on."""

    pause: Pause
    status: Status
    reading_type: str | None = None
    failure: Failure | None = None


_ACKNOWLEDGED = Step(Pause.FIRST_EVENT, Status.TERMINAL_ACKNOWLEDGED)
_TAPPED = Step(Pause.CARD, Status.CARD_PRESENTED, CONTACTLESS)
_INSERTED = Step(Pause.CARD, Status.CARD_PRESENTED, CHIP)
_INSERTED_AGAIN = Step(Pause.CARD_AGAIN, Status.CARD_PRESENTED, CHIP)
_APPROVED = Step(Pause.ACQUIRER, Status.APPROVAL)

SCENARIOS: Mapping[str, tuple[Step, ...]] = {
    "approve-contactless": (
        _ACKNOWLEDGED,
        _TAPPED,
        Step(Pause.CONTACTLESS, Status.APPROVAL_REQUESTED),
        _APPROVED,
    ),
    "approve-chip-pin": (
        _ACKNOWLEDGED,
        _INSERTED,
        Step(Pause.PIN, Status.APPROVAL_REQUESTED),
        _APPROVED,
    ),
    "approve-third-presentation": (
        _ACKNOWLEDGED,
        _TAPPED,
        _INSERTED_AGAIN,
        _INSERTED_AGAIN,
        Step(Pause.PIN, Status.APPROVAL_REQUESTED),
        _APPROVED,
    ),
    "decline": (
        _ACKNOWLEDGED,
        _TAPPED,
        Step(Pause.CONTACTLESS, Status.APPROVAL_REQUESTED),
        Step(Pause.ACQUIRER, Status.DECLINED, failure=INSUFFICIENT_FUNDS),
    ),
    "reject-before-card": (
        _ACKNOWLEDGED,
        Step(Pause.NO_CARD, Status.TERMINAL_REJECTED, failure=NO_CARD_PRESENTED),
    ),
    "reject-after-card": (
        _ACKNOWLEDGED,
        _INSERTED,
        Step(Pause.NO_PIN, Status.TERMINAL_REJECTED, failure=NO_PIN_ENTERED),
    ),
    "cancel-by-cardholder": (
        _ACKNOWLEDGED,
        Step(Pause.CARDHOLDER_CANCELS, Status.TERMINAL_CANCELED),
    ),
    "wait-for-abort": (
        _ACKNOWLEDGED,
        Step(Pause.WAIT_LIMIT, Status.TERMINAL_REJECTED, failure=NO_CARD_PRESENTED),
    ),
}

DEFAULT_SCENARIO = "approve-contactless"
#: What ends a payment that the POS aborted.
ABORTED = Step(Pause.ABORT, Status.TERMINAL_CANCELED)
