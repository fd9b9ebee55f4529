"""What can happen to a print job at the terminal: one table of scenarios (spec 2.3, 3.2 and 6.4).

A job goes PENDING -> IN_PROGRESS -> COMPLETED or FAILED; its transitions are not published (spec 3.2), these are the
obvious ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from random import Random


class PrintStatus(StrEnum):
    """The four states (spec 3.2)."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


#: Nothing happens to a job after these, and only these are told by webhook (spec 6.4).
ENDS = frozenset({PrintStatus.COMPLETED, PrintStatus.FAILED})


class Pace(Enum):
    """How long the printer takes: the shortest and the longest, in terminal seconds."""

    #: Until it begins with the next job.
    PICK_UP = (0.1, 0.5)
    RECEIPT = (1.0, 3.0)
    #: Longer than anybody waits between two questions.
    SLOW = (60.0, 90.0)

    def seconds(self, rng: Random) -> float:
        """Draw a length in terminal seconds."""
        return rng.uniform(*self.value)


class Reply(Enum):
    """How the creation of a job is answered."""

    #: 202 at once.
    ACCEPTED = auto()
    #: 202, but only once the webhook was called: it is faster than the reply.
    AFTER_WEBHOOK = auto()
    #: The job is taken, and the connection closed without an answer.
    LOST = auto()
    #: 422, and nothing is taken.
    REFUSED = auto()


class Jam(Enum):
    """What keeps a job in progress."""

    #: This job never ends; the printer goes on with the next one.
    FOR_EVER = auto()
    #: Neither this job nor any other goes on until somebody puts paper in.
    NO_PAPER = auto()


class Memory(Enum):
    """How a job that was taken is remembered."""

    #: In the state directory, as a device keeps its spool: a restart goes on with it.
    ON_FILE = auto()
    #: Until the terminal is switched off.
    UNTIL_STOPPED = auto()
    #: Not at all: it is never printed, and asked for it the terminal knows of none.
    NONE = auto()


@dataclass(frozen=True, slots=True)
class PrinterFault:
    """Why a job failed (spec 2.3); the codes are not published, so these are the simulator's own."""

    code: str
    message: str


PAPER_JAM = PrinterFault("PAPER_JAM", "The paper is jammed")


@dataclass(frozen=True, slots=True)
class PrintScenario:
    """One row; what it does not name is as of a job that prints well.

    `calls` is how often the webhook is called once the job has ended. `own_id`: the terminal answers with an id of its
    own, and knows the job by no other. `wrong_id`: the webhook's body names a job that nobody knows.
    """

    reply: Reply = Reply.ACCEPTED
    pace: Pace = Pace.RECEIPT
    jam: Jam | None = None
    fault: PrinterFault | None = None
    calls: int = 1
    own_id: bool = False
    wrong_id: bool = False
    memory: Memory = Memory.ON_FILE


#: A further scenario is one more row.
PRINT_SCENARIOS: Mapping[str, PrintScenario] = {
    "completes": PrintScenario(),
    "fails": PrintScenario(fault=PAPER_JAM),
    "silent": PrintScenario(calls=0),
    "slow": PrintScenario(pace=Pace.SLOW),
    "stuck": PrintScenario(jam=Jam.FOR_EVER),
    "out-of-paper": PrintScenario(jam=Jam.NO_PAPER),
    "loses-reply": PrintScenario(reply=Reply.LOST),
    "calls-twice": PrintScenario(calls=2),
    "calls-before-reply": PrintScenario(reply=Reply.AFTER_WEBHOOK),
    "wrong-id": PrintScenario(wrong_id=True),
    "own-id": PrintScenario(own_id=True),
    "refuses": PrintScenario(reply=Reply.REFUSED),
    "forgets": PrintScenario(memory=Memory.NONE),
    "forgets-at-restart": PrintScenario(memory=Memory.UNTIL_STOPPED),
}

DEFAULT_PRINT_SCENARIO = "completes"
#: A job chooses its scenario by this and the name as its externalReference.
CHOICE = "print:"
