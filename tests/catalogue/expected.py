"""Tables of a scenario file that only this test suite reads: actions of till and operator, and the end in posd."""

from typing import Any

import msgspec

from posd.simulator.scenario import PrintScenario, Scenario, Strict


class Till(Strict, frozen=True):
    """Actions of the till or of an operator.

    `abort`: status (or "started") at which the till aborts. `reconcile`: whether an operator searches after the last
    step.
    """

    abort: str | None = None
    reconcile: bool = False


class Expect(Strict, frozen=True):
    """Final state in posd with its default configuration (search and abort not confirmed).

    `result` None: the payment stays open, in `phase`. `attention`: exactly the open attentions. `passed`: attentions
    that must have been raised before. `evidence`: kind of the evidence. `charges`: how often money moved. `start`: HTTP
    status or problem code of the till's PUT. `abort`: HTTP status or problem code of the till's abort. `supersedes`:
    the earlier result that was corrected.
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


class Person(Strict, frozen=True):
    """Actions of a person at the terminal.

    The person adds paper when the job is shown as stuck, or restarts the terminal while the job waits for its turn.
    """

    puts_paper_in: bool = False
    restarts: bool = False


class PrintExpect(Strict, frozen=True):
    """Final state of the job in posd.

    `phase` other than final: the job stays open. `attention`: exactly the open attentions. `passed`: attentions that
    must have been raised before. `papers`: number of printed copies. `start`: HTTP status of the till's PUT.
    """

    status: str | None = None
    phase: str = "final"
    decided_by: str | None = None
    error_code: str | None = None
    attention: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    papers: int = 1
    start: int = 201


def expect_of(scenario: Scenario) -> Expect:
    """Return the end of a payment. Raise ValidationError for an unknown member or a wrong type."""
    return msgspec.convert(scenario.expect, Expect)


def print_expect_of(scenario: PrintScenario) -> PrintExpect:
    """Return the end of a print job. Raise ValidationError."""
    return msgspec.convert(scenario.expect, PrintExpect)


def person_of(scenario: PrintScenario) -> Person:
    """Return the actions of the person. Raise ValidationError."""
    return msgspec.convert(scenario.person, Person)


def shown(expect: Expect | PrintExpect, members: tuple[str, ...]) -> dict[str, Any]:
    """Return the members of an end that the local API shows, and the attentions."""
    return {name: getattr(expect, name) for name in members} | {"attention": set(expect.attention)}
