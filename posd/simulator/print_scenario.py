"""A print scenario: what becomes of a print job at the terminal; one TOML file each (terminal API, Printing).

A job goes PENDING -> IN_PROGRESS -> COMPLETED or FAILED; its transitions are not published (terminal API, Printing),
these are the obvious ones. The file is the table below, and nothing else, as that of a payment scenario is.
"""

from enum import StrEnum
from typing import Any

import msgspec

from posd.simulator.scenario import Reply, Span, Strict


class PrintStatus(StrEnum):
    """The four states (terminal API, Printing)."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


#: Nothing happens to a job after these, and only these are told by webhook (terminal API, Printing).
ENDS = frozenset({PrintStatus.COMPLETED, PrintStatus.FAILED})


class Creation(Reply, frozen=True):
    """How the creation of a job is answered, and whether the job is taken (`taken`) whatever the answer says.

    `after_webhook`: the answer waits until the webhook was called: the webhook is faster.
    """

    taken: bool = True
    after_webhook: bool = False


class Jam(StrEnum):
    """What keeps a job in progress."""

    #: This job never ends; the printer goes on with the next one.
    FOR_EVER = "for-ever"
    #: Neither this job nor any other goes on until somebody puts paper in.
    NO_PAPER = "no-paper"


class Memory(StrEnum):
    """How a job that was taken is remembered."""

    #: In the state directory, as a device keeps its spool: a restart goes on with it.
    ON_FILE = "on-file"
    #: Until the terminal is switched off.
    UNTIL_STOPPED = "until-stopped"
    #: Not at all: it is never printed, and asked for it the terminal knows of none.
    NONE = "none"


class PrinterFault(Strict, frozen=True):
    """Why a job failed (terminal API, Printing); the codes are not published, so these are the simulator's own."""

    code: str
    message: str


class Call(Strict, frozen=True):
    """One call of the webhook, `after` so many terminal seconds.

    `set` and `remove` change members of what is told; `raw` is sent in place of it. `distrusted`: the terminal does not
    trust the receiver's certificate.
    """

    after: Span = 0.0
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    remove: tuple[str, ...] = ()
    raw: str | None = None
    distrusted: bool = False


class Person(Strict, frozen=True):
    """What a person does in the story: puts paper in once the job is shown as stuck, or switches the terminal off and
    on while the job waits for its turn.
    """

    puts_paper_in: bool = False
    restarts: bool = False


class PrintExpect(Strict, frozen=True):
    """What posd says of the job in the end.

    `phase` other than final: it stays open. `attention` is exactly what is open then; `passed` are attentions that must
    have been raised on the way. `papers` is how often it came out on paper. `start` is the HTTP status that the till's
    PUT is answered with.
    """

    status: str | None = None
    phase: str = "final"
    decided_by: str | None = None
    error_code: str | None = None
    attention: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    papers: int = 1
    start: int = 201


class PrintScenario(Strict, frozen=True, kw_only=True):
    """One file; what it does not name is as of a job that prints well.

    `summary` says what happens, `when` when it happens in a real shop, `advice` what the till should do. `takes` is how
    long the printer prints. `fault`: it says FAILED in the end; `paper` tells what came out, where that is not what the
    end says. `own_id`: the terminal answers with an id of its own, and knows the job by no other.
    """

    summary: str
    when: str
    advice: str = ""
    creation: Creation = Creation()
    takes: Span = (1.0, 3.0)
    jam: Jam | None = None
    fault: PrinterFault | None = None
    paper: bool | None = None
    own_id: bool = False
    memory: Memory = Memory.ON_FILE
    poll: Reply = Reply()
    webhooks: tuple[Call, ...] = (Call(),)
    person: Person = Person()
    expect: PrintExpect

    @property
    def prints(self) -> bool:
        """Whether a job that ended came out on paper."""
        return self.fault is None if self.paper is None else self.paper
