"""Scenarios: what a terminal does, says and fails to say of a payment, or of a print job; one TOML file each.

A file has the members of `Scenario` or `PrintScenario`, and nothing else: an unknown key or a wrong type is refused
with its name. Times are in terminal seconds (`--speed` divides them); two numbers are the shortest and the longest, of
which one is drawn by the seed.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from random import Random
from typing import Any, Literal, Self, TypeVar

import msgspec

from posd.simulator.journal import SettingsError
from posd.simulator.operations import Status
from posd.simulator.wire import Number

#: Terminal seconds: one number, or the shortest and the longest.
Span = float | tuple[float, float]
#: The amounts that choose a scenario lie between these, both included.
AMOUNTS = (Decimal("9000.01"), Decimal("9000.99"))


class Wait(StrEnum):
    """A time that is no number."""

    #: The waiting limit of the settings.
    LIMIT = "limit"
    #: Until a hand or an abort does something.
    FOR_EVER = "for-ever"


def draw(span: Span, rng: Random) -> float:
    """Draw a length in terminal seconds."""
    return rng.uniform(*span) if isinstance(span, tuple) else span


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    _check(number.is_finite(), f"amount {text!r} must be a number")
    return number


def _check_span(name: str, span: Span) -> None:
    shortest, longest = span if isinstance(span, tuple) else (span, span)
    _check(0 <= shortest <= longest < float("inf"), f"{name} must be seconds, or the shortest and the longest")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a scenario file."""


class Failure(Strict, frozen=True):
    """A `failure_reason`; the catalogue of codes is not published, so these are the simulator's own.

    Source: terminal API, Refusals.
    """

    type: str
    code: str
    message: str


class Fault(StrEnum):
    """How an answer goes wrong on its way: what was asked for was done, or not, all the same."""

    #: The connection is closed without an answer.
    LOST = "lost"
    #: No answer comes for as long as the caller waits.
    SILENT = "silent"
    #: The answer breaks off in the middle of its body.
    CUT = "cut"


class Refusal(Strict, frozen=True):
    """What a refusal says, in the words of the terminal's edition; with a `type` it is a LinkFailure in each edition.

    Source: terminal API, Refusals.
    """

    code: str
    message: str
    type: str | None = None


class Reply(Strict, frozen=True):
    """How a call is answered. What is not named is as usual.

    `status` and `body` replace the usual answer (`body` is sent unchanged, with `content_type`); `set` and `remove`
    change members of the usual one, named by their path with points (`terminal.serialNumber`), in a list of events
    those of each. A `status` that is an error bears an error object where no `body` is given: what `refusal` says. The
    answer comes `after` so many terminal seconds. `times`: only the first so many calls are answered so; 0: all.
    """

    after: Span = 0.0
    fault: Fault | None = None
    status: int | None = None
    body: str | None = None
    refusal: Refusal | None = None
    content_type: str = "application/json"
    set: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
    times: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError where a value cannot be."""
        _check_span("after", self.after)
        _check(self.status is None or 200 <= self.status <= 599, "status must be an HTTP status, 200 to 599")
        _check(self.times >= 0, "times must not be negative")
        refuses = self.refusal is None or (self.body is None and (self.status or 0) >= 400)
        _check(refuses, "refusal goes with a status of 400 or above, and without a body")

    def nth(self, call: int) -> Self:
        """Return how a call is answered, so or as usual; 1 is the first."""
        return self if self.times == 0 or call <= self.times else type(self)()


class Start(Reply, frozen=True):
    """How the start is answered, and whether the payment runs (`runs`), which the answer may deny.

    `after_event`: the acknowledgement waits until this status was delivered: the webhook is faster.
    """

    runs: bool = True
    after_event: str | None = None


class AbortEffect(StrEnum):
    """What an abort that was answered does to the payment."""

    #: TERMINAL_CANCELED follows, where it still can.
    CANCELS = "cancels"
    #: It was answered 200, and the payment goes on.
    IGNORED = "ignored"
    #: The next state is entered at once and all goes on: the card or the approval was faster. Before the first state
    #: the one after it is entered too.
    RACED = "raced"


class Abort(Reply, frozen=True):
    """How an abort is answered, and what it does; the cancellation follows `cancels_after`."""

    effect: AbortEffect = AbortEffect.CANCELS
    cancels_after: Span = (0.2, 0.5)

    def __post_init__(self) -> None:
        """Raise ValueError where a value cannot be."""
        super().__post_init__()
        _check_span("cancels_after", self.cancels_after)


class SearchFinds(StrEnum):
    """What a search finds; `found` of the answer, before `Reply` is applied to it."""

    #: The payment once it was sent to the acquirer, and every final.
    USUAL = "usual"
    #: Nothing, though there is something.
    NOTHING = "nothing"
    #: The newest event but one: an index that is behind.
    STALE = "stale"
    #: The payment from its first state on.
    ALL_STATES = "all-states"
    #: Another transaction alone.
    ANOTHER = "another"
    #: A final that contradicts the events: DECLINED for an approval, an approval for anything else.
    CONTRADICTION = "contradiction"


class SearchShape(StrEnum):
    """What the answer to a search looks like, before `Reply` is applied to it; the real one is not published."""

    #: A list of events.
    EVENTS = "events"
    #: A list in the words of a synchronous answer: camelCase, and no status but that in `rawResponse`.
    RAW_RESPONSE = "raw-response"
    #: An object with a page of the list, as the sister API has it.
    PAGED = "paged"


class Search(Reply, frozen=True):
    """How a search for the payment is answered."""

    finds: SearchFinds = SearchFinds.USUAL
    shape: SearchShape = SearchShape.EVENTS


class Deed(StrEnum):
    """What happens to the terminal itself, in a step that has one (`do`)."""

    #: It loses the network: it cannot be called, and keeps its events. `seconds`: for so long; 0: for good.
    UNPLUG = "unplug"
    PLUG = "plug"
    #: It loses power for `seconds` (0: for good) and starts again. The steps that follow are what it still remembers
    #: of the payment; where none follows, it has forgotten it.
    POWER_CYCLE = "power-cycle"
    #: It gets another address (another port), and announces it.
    MOVE = "move"
    #: It shows another certificate from now on (`certificate`).
    CERTIFICATE = "certificate"


class Certificate(StrEnum):
    """The certificate that the terminal shows."""

    OWN = "own"
    #: Of the same CA, with another key: a client that pinned the old one does not trust it.
    CHANGED = "changed"
    EXPIRED = "expired"
    SELF_SIGNED = "self-signed"
    WRONG_NAME = "wrong-name"


class Delivery(Strict, frozen=True):
    """How an event gets to the consumer. What is not named is as usual: at once, in order, with the usual retries.

    `late`: it sets out so many seconds later, and others overtake it. `again`: so many seconds after it set out it
    sets out once more, for each number. `never`: it is not sent. `distrusted`: the terminal does not trust the
    receiver's certificate, so each attempt fails. `raw` is sent in place of the event.
    """

    never: bool = False
    late: float = 0.0
    again: tuple[float, ...] = ()
    distrusted: bool = False
    raw: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a value cannot be."""
        _check(min(self.late, *self.again, 0.0) >= 0, "late and again must not be negative")


class Step(Strict, frozen=True):
    """After `after`, the payment enters `status` and says so, or `do` happens; one of the two.

    A step that is waited for "for-ever" needs neither: only a hand or an abort leads on from there. `reading_type` and
    `failure` are new from here on. `status` may be one that is not published. `authorized_amount` is what the acquirer
    approves, where that is not what was asked for. `set` and `remove` change members of the event, named by their path
    with points: what is told, not what is true. `same_event_id`: the event bears the id of the one before.
    `restates`: nothing happens, the event before is told once more as a new one, under an id of its own. Two finals in
    one scenario are two ends of it: an approval after a cancellation is money taken.
    """

    after: Span | Wait = 0.0
    status: str | None = None
    reading_type: str | None = None
    failure: Failure | None = None
    authorized_amount: str | None = None
    set: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
    same_event_id: bool = False
    restates: bool = False
    deliver: Delivery = Delivery()
    do: Deed | None = None
    seconds: float = 0.0
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        """Raise ValueError where a value cannot be."""
        if not isinstance(self.after, Wait):
            _check_span("after", self.after)
        happens = (self.status is not None) + (self.do is not None)
        _check(happens == 1 or (happens == 0 and self.after is Wait.FOR_EVER), "a step has either status or do")
        _check((self.certificate is None) == (self.do is not Deed.CERTIFICATE), "certificate goes with its do, alone")
        if self.authorized_amount is not None:
            _check(self.status == Status.APPROVAL and not self.restates, "authorized_amount goes with an APPROVAL")
            _check(_decimal(self.authorized_amount) > 0, "authorized_amount must be above 0")
        timed = self.do in (Deed.UNPLUG, Deed.POWER_CYCLE)
        _check(self.seconds == 0 or (timed and self.seconds > 0), "seconds goes with unplug and power-cycle")


class Till(Strict, frozen=True):
    """What the till, or a person, does in the story. `abort`: once this status is known (or "started"); `reconcile`:
    a person asks once the steps are over.
    """

    abort: str | None = None
    reconcile: bool = False


class Expect(Strict, frozen=True):
    """What posd says in the end, with its default configuration (search and abort not confirmed).

    `result` None: it stays open, in `phase`. `attention` is exactly what is open then; `passed` are attentions that
    must have been raised on the way. `evidence` is a kind of evidence that it rests on. `charges` is how often money
    moved. `start` is the HTTP status, or the problem's code, that the till's PUT is answered with; `abort` the same of
    its abort. `supersedes` is the result that was concluded before and is corrected.
    """

    result: str | None = None
    phase: str = "final"
    status: str | None = None
    attention: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    evidence: str | None = None
    charges: int = 0
    start: int | str = 201
    abort: int | str | None = None
    next_step: str | None = None
    supersedes: str | None = None


class Story(Strict, frozen=True, kw_only=True):
    """What each file has: what happens, when it happens in a real shop, and what the till should do (`advice`)."""

    summary: str
    when: str
    advice: str = ""


class Scenario(Story, frozen=True, kw_only=True):
    """What happens to a payment.

    `amount` chooses it by the amount of the payment (9000.01 to 9000.99). `certificate` is shown before the start:
    such a scenario, and one with `away`, can be chosen only by option or live, for the call itself does not come
    through. `away`: the terminal cannot be reached.
    """

    amount: str | None = None
    certificate: Certificate | None = None
    away: bool = False
    start: Start = Start()
    steps: tuple[Step, ...]
    abort: Abort = Abort()
    search: Search = Search()
    till: Till = Till()
    expect: Expect

    def __post_init__(self) -> None:
        """Raise ValueError where a value cannot be."""
        if self.amount is not None:
            _check(not self.out_of_reach, "a scenario with certificate or away cannot be chosen by amount")
            lowest, highest = AMOUNTS
            _check(lowest <= _decimal(self.amount) <= highest, f"amount must be {lowest} to {highest}")
        first = next((step for step in self.steps if step.status is not None), Step(status=""))
        _check(not (first.restates or first.same_event_id), "the first state has no event before it")

    @property
    def out_of_reach(self) -> bool:
        """It begins before the start: the request itself cannot choose it."""
        return self.away or self.certificate is not None


class PrintStatus(StrEnum):
    """The four states of a print job (terminal API, Printing).

    A job goes PENDING -> IN_PROGRESS -> COMPLETED or FAILED; these transitions are the obvious ones, none is published.
    """

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


#: Nothing happens to a job after these, and only these are told by webhook (terminal API, Printing).
ENDS = frozenset({PrintStatus.COMPLETED, PrintStatus.FAILED})


class Creation(Reply, frozen=True):
    """How the creation of a job is answered, and whether the job is taken (`taken`), which the answer may deny.

    `after_webhook`: the answer waits until the webhook was called: the webhook is faster.
    """

    taken: bool = True
    after_webhook: bool = False


class Jam(StrEnum):
    """What keeps a job in progress."""

    #: This job never ends; the printer goes on with the next one.
    FOR_EVER = "for-ever"
    #: Neither this job nor any other goes on until a person puts paper in.
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


class PrintScenario(Story, frozen=True, kw_only=True):
    """What happens to a print job; what the file does not name is as of a job that prints well.

    `takes` is how long the printer prints. `fault`: it says FAILED in the end; `paper` tells what came out, where that
    is not what the end says. `own_id`: the terminal answers with an id of its own, and knows the job by no other.
    """

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


# The scenarios that ship with the simulator, one TOML file each, and the user's own.

#: What happens to a payment for which nothing else was chosen, and to such a print job.
DEFAULT_SCENARIO = "approve-contactless"
DEFAULT_PRINT_SCENARIO = "completes"
#: A print job chooses its scenario by this and the name as its externalReference.
CHOICE = "print:"
_SUFFIX = ".toml"

Kind = Literal["payment", "print"]
_Story = TypeVar("_Story", bound=Story)


@cache
def payments() -> Mapping[str, Scenario]:
    """Return the payment scenarios that ship with the simulator, by name and in the order of the names.

    Raises SettingsError where a file cannot be read, or where two have the same amount.
    """
    scenarios = {name: read(file) for name, file in sorted(_shipped("payment").items())}
    by_amount: dict[Decimal, str] = {}
    for name, scenario in scenarios.items():
        if scenario.amount is not None:
            other = by_amount.setdefault(Decimal(scenario.amount), name)
            if other != name:
                raise SettingsError(f"the scenarios {other} and {name} have the same amount {scenario.amount}")
    return scenarios


@cache
def prints() -> Mapping[str, PrintScenario]:
    """Return the print scenarios that ship with the simulator, by name. Raises SettingsError, as `payments`."""
    return {name: _read(file, PrintScenario) for name, file in _shipped("print").items()}


def text(name: str, kind: Kind = "payment") -> str:
    """Return the file of a scenario that ships with the simulator, unchanged."""
    return _shipped(kind)[name].read_text(encoding="utf-8")


def read(file: Path | Traversable) -> Scenario:
    """Read the file of a payment scenario. Raises SettingsError: the file, the key and what is wrong with it."""
    return _read(file, Scenario)


def by_amount(amount: Number, scenarios: Mapping[str, Scenario]) -> str | None:
    """Return the name of the scenario that an amount chooses, the last one of several; None where there is none."""
    names = {Decimal(item.amount): name for name, item in scenarios.items() if item.amount is not None}
    return names.get(Decimal(amount))


def _read(file: Path | Traversable, kind: type[_Story]) -> _Story:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=kind)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"cannot read the scenario {file}: {error}") from error


def _shipped(kind: Kind) -> dict[str, Traversable]:
    """Return the files by the names of the scenarios, in the order of the files' names."""
    directory = files("posd.simulator") / "scenarios" / kind
    found = sorted((file for file in directory.iterdir() if file.name.endswith(_SUFFIX)), key=lambda file: file.name)
    return {file.name.removesuffix(_SUFFIX): file for file in found}
