"""The bad days of the simulated terminal's catalogue: which of them a run plays, and what each makes true.

The terminal's ledger stays the truth about money. A scenario falsifies what is delivered and what a search finds, never
the ledger. Where a terminal contradicts itself, posd cannot agree with it: then posd has to want attention.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from posd.simulator.operations import FINALS, PaymentStatus
from posd.simulator.scenario import AbortEffect, Scenario, SearchFinds, Span, TerminalAction, Wait, payments

#: Scenarios of ordinary days, and how often each is played; all others of the catalogue are bad days.
ORDINARY = {
    "approve-contactless": 34,
    "approve-chip-pin": 14,
    "approve-third-presentation": 10,
    "decline": 12,
    "reject-before-card": 6,
    "reject-after-card": 6,
    "cancel-by-cardholder": 8,
    "wait-for-abort": 10,
}
#: What waits for a person at the terminal: there is none here.
NEEDS_HANDS = frozenset({"by-hand"})
#: A scenario that may last longer than this is not played, in terminal seconds; one that may last longer than the
#: second number is not played where people are slow or the run is short.
MOST_SECONDS, MOST_SECONDS_IN_A_HURRY = 1000.0, 150.0
#: What posd raises where a terminal contradicts itself, or has contradicted what was inferred.
CONTRADICTED = frozenset(
    {"conflicting_final", "outcome_corrected", "serial_mismatch", "missing_reference", "amount_differs"}
    | {"event_id_reused", "quarantined_event", "illegal_transition", "unknown_status"}
)
#: The states that are published (spec 3.1).
STATES = frozenset(PaymentStatus)
#: What a search finds that is the truth, as far as it goes.
HONEST = frozenset({SearchFinds.USUAL, SearchFinds.ALL_STATES})


@dataclass(frozen=True)
class BadDay:
    """What a scenario makes true."""

    #: When the till aborts: None, "started" or "card".
    abort: str | None
    #: How long it may last, in terminal seconds.
    seconds: float
    #: What it can raise, beside what any payment of a run can raise.
    attention: frozenset[str]
    #: What is told of the end, by an event or to a search, can contradict the ledger.
    falsified: bool
    #: It has two ends.
    two_ends: bool
    #: The terminal can keep its end to itself: posd has no way to know of it.
    silent: bool
    #: posd may be told, wrongly, that nothing was charged: a basket could be charged twice, and it is no fault of posd.
    misleads: bool
    #: The terminal says that it runs nothing while it does, or a search that there is nothing where there is something.
    #: A configuration that vouches for both (`confirmed`) is not made for such a terminal.
    denies: bool


@cache
def bad_days() -> Mapping[str, BadDay]:
    """Return the bad days that can be played, by the names of their scenarios."""
    days = {
        name: _bad_day(scenario)
        for name, scenario in sorted(payments().items())
        if name not in ORDINARY and name not in NEEDS_HANDS and _recovers(scenario)
    }
    return {name: day for name, day in days.items() if day.seconds <= MOST_SECONDS}


def refuses(status: int | None) -> bool:
    """Whether an answer to a start refuses it: then it did not start, if the terminal is to be believed (design 4)."""
    return status is not None and 300 <= status < 500 and status != HTTPStatus.REQUEST_TIMEOUT


def _recovers(scenario: Scenario) -> bool:
    """Whether the terminal can be chosen by metadata, and is as before when it is over."""
    if scenario.away or scenario.certificate is not None:
        return False
    plugged = True
    for step in scenario.steps:
        match step.do:
            case TerminalAction.CERTIFICATE:
                return False
            case TerminalAction.UNPLUG if not step.seconds:
                plugged = False
            case TerminalAction.PLUG:
                plugged = True
            case TerminalAction.POWER_CYCLE if not step.seconds:
                return False
    return plugged


def _bad_day(scenario: Scenario) -> BadDay:
    expect, search = scenario.expect, scenario.search
    attention = frozenset(expect.attention) | frozenset(expect.passed)
    if any("raw_response.authorized_amount" in step.set for step in scenario.steps):
        attention |= {"amount_differs"}  # the scenario was made for another amount than is paid here
    if "amount_differs" in attention:
        attention |= {"approval_unlikely"}  # by how much it differs, the amount of the payment decides
    if any(step.status is not None and step.status not in STATES for step in scenario.steps):
        attention |= {"illegal_transition"}  # a till's abort can follow: no state of the lifecycle comes after that one
    if "quarantined_event" in attention:
        attention |= {"damaged_event"}  # where posd can read what it needs
    ends = [step for step in scenario.steps if step.status in FINALS and not step.restates]
    sound = search.finds in HONEST and not (search.fault or search.status or search.body is not None or search.remove)
    falsified = search.finds is SearchFinds.CONTRADICTION or any(
        name.split(".")[0] == "raw_response" for step in ends for name in (*step.set, *step.remove)
    )
    refused_but_runs = scenario.start.runs and refuses(scenario.start.status)
    return BadDay(
        abort={None: None, "started": "started", "TERMINAL_ACKNOWLEDGED": "started"}.get(scenario.till.abort, "card"),
        seconds=sum(
            _most(step.after) + step.seconds + step.deliver.late + max(step.deliver.again, default=0.0)
            for step in scenario.steps
        ),
        attention=attention,
        falsified=falsified,
        two_ends=len(ends) > 1,
        silent=not sound or expect.result is None,
        misleads=refused_but_runs or falsified or len(ends) > 1 or bool(attention & CONTRADICTED),
        denies=search.finds is SearchFinds.NOTHING
        or (scenario.abort.effect is AbortEffect.IGNORED and scenario.abort.status == HTTPStatus.CONFLICT),
    )


def _most(span: Span | Wait) -> float:
    """The longest that a step is waited for, in terminal seconds; the limit of the settings is a minute."""
    match span:
        case Wait.LIMIT:
            return 60.0
        case Wait.FOR_EVER:
            return float("inf")
        case (_, longest):
            return longest
        case seconds:
            assert isinstance(seconds, int | float)
            return float(seconds)
