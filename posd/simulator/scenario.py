"""Scenarios: behaviour of a terminal for a payment or a print job. Each scenario is a TOML file.

A file has only the members of `Scenario` or `PrintScenario`. An unknown key or a value of a wrong type is refused.
Times are in terminal seconds (`--speed` divides them). Two numbers are the shortest and the longest time. The seed
determines a value between them.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from posd.simulator.wire import Number, PaymentStatus, SettingsError

Seconds = Annotated[float, msgspec.Meta(ge=0)]
#: Terminal seconds: one number, or the shortest and the longest. msgspec 0.22 cannot read constrained numbers here.
Span = float | tuple[float, float]
#: Range of the amounts that choose a scenario, both included.
AMOUNTS = (Decimal("9000.01"), Decimal("9000.99"))


#: Wait without a fixed duration.
Wait = Literal[
    # The waiting limit of the settings.
    "limit",
    # Until a manual action or an abort.
    "for-ever",
]


def draw(span: Span, rng: Random) -> float:
    """Draw a duration in terminal seconds."""
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
    _check(0 <= shortest <= longest < float("inf"), f"{name} must be seconds: one number, or [least, most]")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a scenario file."""


class Failure(Strict, frozen=True):
    """A `failure_reason`, the content of a refusal, or the reason of a failed print job.

    The real codes are not published, so these are the simulator's own. A refusal has the form of the terminal's
    edition. With a `type` it is a LinkFailure in every edition.

    Source: terminal API, Refusals, Printing.
    """

    code: str
    message: str
    type: str | None = None


#: Failure of a reply on its way, independent of the effect of the call.
Fault = Literal[
    # The connection is closed without a reply.
    "lost",
    # No reply arrives for as long as the caller waits.
    "silent",
    # The reply breaks off in the middle of its body.
    "cut",
]


class Reply(Strict, frozen=True):
    """Reply to a call. Without these members, the simulator sends its usual reply.

    `status` and `body` replace those of the usual reply. `body` is sent unchanged, with `content_type`. `set` and
    `remove` change members, each named by its dotted path (`terminal.serialNumber`). In a list of events, each event is
    changed. An error `status` without a `body` has an error object as body, from `refusal`. `after`: delay in terminal
    seconds. `times`: number of calls with this reply; 0: all.
    """

    after: Span = 0.0
    fault: Fault | None = None
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    body: str | None = None
    refusal: Failure | None = None
    content_type: str = "application/json"
    set: dict[str, Any] = {}
    remove: tuple[str, ...] = ()
    times: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        _check_span("after", self.after)
        refuses = self.refusal is None or (self.body is None and (self.status or 0) >= 400)
        _check(refuses, "refusal goes with a status of 400 or above, and without a body")

    def nth(self, call: int) -> Self:
        """Return the reply to call number `call` (1 is the first): this reply or the usual one."""
        return self if self.times == 0 or call <= self.times else type(self)()


class Start(Reply, frozen=True):
    """Reply to the start. `runs`: whether the payment runs, even if the reply denies it.

    `after_event`: status whose event is delivered before the acknowledgement.
    """

    runs: bool = True
    after_event: str | None = None


#: Effect of an abort on the payment.
AbortEffect = Literal[
    # TERMINAL_CANCELED follows, if it is still possible.
    "cancels",
    # The reply is 200, and the payment continues.
    "ignored",
    # The next state is entered at once and the payment continues, because the card or the approval was faster. Before
    # the first state, two states are entered.
    "raced",
]


class Abort(Reply, frozen=True):
    """Reply to an abort, and its effect. `cancels_after`: time until the cancellation."""

    effect: AbortEffect = "cancels"
    cancels_after: Span = (0.2, 0.5)

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        super().__post_init__()
        _check_span("cancels_after", self.cancels_after)


#: Result of a search, before `Reply` changes it.
SearchFinds = Literal[
    # The newest event of a payment that was sent to the acquirer, and every final.
    "usual",
    # No event, although there is one.
    "nothing",
    # The event before the newest, as from a late index.
    "stale",
    # The newest event, even before the payment was sent to the acquirer.
    "all-states",
    # Only another transaction.
    "another",
    # A final that contradicts the events: DECLINED for an approval, an approval for anything else.
    "contradiction",
]


#: Form of a search's reply, before `Reply` changes it. The real form is not published.
SearchShape = Literal[
    # A list of events.
    "events",
    # A list in the form of a synchronous reply: camelCase, with a status only in `rawResponse`.
    "raw-response",
    # An object with a page of the list, as in the sister API.
    "paged",
]


class Search(Reply, frozen=True):
    """Reply to a search for the payment."""

    finds: SearchFinds = "usual"
    shape: SearchShape = "events"


#: Action of the terminal itself, as `do` in a step.
TerminalAction = Literal[
    # The terminal loses the network. Calls fail, and events wait. `seconds`: duration; 0: permanently.
    "unplug",
    "plug",
    # The terminal loses power for `seconds` (0: permanently) and restarts. The payment continues with the following
    # steps. Without further steps, the payment is lost.
    "power-cycle",
    # The terminal changes its address (port), and announces it.
    "move",
    # The terminal shows another certificate (`certificate`).
    "certificate",
]


#: Certificate that the terminal shows.
Certificate = Literal[
    "own",
    # From the same CA, with another key. A client that pinned the old certificate does not trust it.
    "changed",
    "expired",
    "self-signed",
    "wrong-name",
]


class Delivery(Strict, frozen=True):
    """Delivery of an event. Without these members the event is delivered at once, in order, with the usual retries.

    `late`: delay in seconds, so that later events overtake it. `again`: times of further deliveries, in seconds after
    the first. `never`: the event is not sent. `distrusted`: the terminal does not trust the receiver's certificate, so
    each attempt fails. `raw`: text that is sent in place of the event.
    """

    never: bool = False
    late: Seconds = 0.0
    again: tuple[Seconds, ...] = ()
    distrusted: bool = False
    raw: str | None = None


class PaymentStep(Strict, frozen=True):
    """Step of a scenario. After the time `after`, the payment enters `status` and reports it, or the action `do` runs.

    A step with `after` "for-ever" needs neither `status` nor `do`, because only a manual action or an abort ends it.
    `reading_type` and `failure` apply from this step on. `status` may be unpublished. `authorized_amount`: the approved
    amount, if it differs from the requested one. `set` and `remove` change members of the sent event, each named by its
    dotted path (`a.b`). The payment's real state does not change. `same_event_id`: the event has the id of the previous
    one. `restates`: the previous event is sent again under a new id. A scenario may have two finals, and both count: an
    approval after a cancellation takes money.
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
    do: TerminalAction | None = None
    seconds: Seconds = 0.0
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        if not isinstance(self.after, str):
            _check_span("after", self.after)
        happens = (self.status is not None) + (self.do is not None)
        _check(happens == 1 or (happens == 0 and self.after == "for-ever"), "a step has either status or do")
        _check(
            (self.certificate is None) == (self.do != "certificate"),
            'certificate and do = "certificate" belong together',
        )
        if self.authorized_amount is not None:
            _check(
                self.status == PaymentStatus.APPROVAL and not self.restates, "authorized_amount goes with an APPROVAL"
            )
            _check(_decimal(self.authorized_amount) > 0, "authorized_amount must be above 0")
        timed = self.do in ("unplug", "power-cycle")
        _check(self.seconds == 0 or timed, "seconds goes with unplug and power-cycle")


class Story(Strict, frozen=True, kw_only=True):
    """Members of every scenario.

    `summary`: what happens. `when`: when it happens in a real shop. `advice`: what the till should do.

    `expect`: the final state in posd. Only a test suite reads it, so its members are not checked here.
    """

    summary: str
    when: str
    advice: str = ""
    expect: dict[str, Any] = {}


class Scenario(Story, frozen=True, kw_only=True):
    """Scenario of a payment.

    `amount`: the amount that chooses the scenario (9000.01 to 9000.99). `certificate`: certificate that the terminal
    shows before the start. `away`: the terminal is unreachable. With `certificate` or `away`, only an option or the
    control API can choose the scenario, because the call itself fails. `till`: actions of the till, which only a test
    suite reads.
    """

    amount: str | None = None
    certificate: Certificate | None = None
    away: bool = False
    start: Start = Start()
    steps: tuple[PaymentStep, ...]
    abort: Abort = Abort()
    search: Search = Search()
    till: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value."""
        if self.amount is not None:
            _check(not self.out_of_reach, "a scenario with certificate or away cannot be chosen by amount")
            lowest, highest = AMOUNTS
            _check(lowest <= _decimal(self.amount) <= highest, f"amount must be {lowest} to {highest}")
        first = next((step for step in self.steps if step.status is not None), PaymentStep(status=""))
        _check(not (first.restates or first.same_event_id), "the first state has no event before it")

    @property
    def out_of_reach(self) -> bool:
        """Whether the scenario begins before the start, so that no request can choose it."""
        return self.away or self.certificate is not None


#: State of a print job (terminal API, Printing). The transitions are an assumption: PENDING -> IN_PROGRESS -> COMPLETED
#: or FAILED.
PrintStatus = Literal["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED"]
#: Last states of a job. Only these are reported by webhook (terminal API, Printing).
ENDS = frozenset({"COMPLETED", "FAILED"})


class Creation(Reply, frozen=True):
    """Reply to the creation of a job. `taken`: whether the job is accepted, even if the reply denies it.

    `after_webhook`: the reply waits for the call of the webhook.
    """

    taken: bool = True
    after_webhook: bool = False


#: Reason why a job stays in progress.
Jam = Literal[
    # This job never ends. The printer continues with the next job.
    "for-ever",
    # No job continues until a person adds paper.
    "no-paper",
]


#: Storage of an accepted job.
Memory = Literal[
    # In the state directory. A restart continues the job.
    "on-file",
    # Until the terminal is switched off.
    "until-stopped",
    # Not stored: the job is never printed, and a query does not find it.
    "none",
]


class Call(Strict, frozen=True):
    """One call of the webhook, after `after` terminal seconds.

    `set` and `remove` change its members; `raw` replaces its body. `distrusted`: the terminal does not trust the
    receiver's certificate.
    """

    after: Span = 0.0
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    remove: tuple[str, ...] = ()
    raw: str | None = None
    distrusted: bool = False


class PrintScenario(Story, frozen=True, kw_only=True):
    """Scenario of a print job. Without members the job is printed without a fault.

    `takes`: duration of the printing. `fault`: the job ends FAILED, for this reason. `paper`: whether paper was
    printed, if that contradicts the end state. `own_id`: the terminal assigns its own id, and finds the job only by
    that id. `person`: actions of a person, which only a test suite reads.
    """

    creation: Creation = Creation()
    takes: Span = (1.0, 3.0)
    jam: Jam | None = None
    fault: Failure | None = None
    paper: bool | None = None
    own_id: bool = False
    memory: Memory = "on-file"
    poll: Reply = Reply()
    webhooks: tuple[Call, ...] = (Call(),)
    person: dict[str, Any] = {}

    @property
    def prints(self) -> bool:
        """Whether an ended job was printed."""
        return self.fault is None if self.paper is None else self.paper


# Scenarios that ship with the simulator (one TOML file each), and the user's own scenario.

#: Scenario of a payment, and of a print job, for which none is chosen.
DEFAULT_SCENARIO = "approve-contactless"
DEFAULT_PRINT_SCENARIO = "completes"
#: Prefix of a scenario's name in the externalReference of a print job.
CHOICE = "print:"
_SUFFIX = ".toml"

Kind = Literal["payment", "print"]
_Story = TypeVar("_Story", bound=Story)


@cache
def payments() -> Mapping[str, Scenario]:
    """Return the shipped payment scenarios by name, in the order of the names.

    Raise SettingsError if a file cannot be read, or two have the same amount.
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
    """Return the shipped print scenarios, by name. Raise SettingsError as `payments` does."""
    return {name: _read(file, PrintScenario) for name, file in _shipped("print").items()}


def text(name: str, kind: Kind = "payment") -> str:
    """Return the file of a shipped scenario, unchanged."""
    return _shipped(kind)[name].read_text(encoding="utf-8")


def read(file: Path | Traversable) -> Scenario:
    """Read the file of a payment scenario. Raise SettingsError with the file, the key and the fault."""
    return _read(file, Scenario)


def by_amount(amount: Number, scenarios: Mapping[str, Scenario]) -> str | None:
    """Return the name of the scenario that an amount chooses, or None.

    If several have the amount, return the last one.
    """
    names = {Decimal(item.amount): name for name, item in scenarios.items() if item.amount is not None}
    return names.get(Decimal(amount))


def _read(file: Path | Traversable, kind: type[_Story]) -> _Story:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=kind)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"cannot read the scenario {file}: {error}") from error


def _shipped(kind: Kind) -> dict[str, Traversable]:
    """Return the files by name of the scenario, in the order of the file names."""
    directory = files("posd.simulator") / "scenarios" / kind
    found = sorted((file for file in directory.iterdir() if file.name.endswith(_SUFFIX)), key=lambda file: file.name)
    return {file.name.removesuffix(_SUFFIX): file for file in found}
