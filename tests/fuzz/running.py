"""Running a target: a batch of cases, whose failure is shrunk."""

import warnings
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.fuzz.target import Case, Target


class Failure(NamedTuple):
    """The smallest case that was found to break an invariant, and how it did."""

    case: Case
    error: BaseException


def batch(target: Target, count: int, number: int | None = None) -> Failure | None:
    """Check `count` cases, the same ones for the same seed `number` (None: for the same version of everything).

    Return the failure, shrunk.
    """
    last = Case(b"")

    @settings(
        max_examples=count,
        derandomize=number is None,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(target.cases)
    def run(case: Case) -> None:
        nonlocal last
        last = case
        target.check(case)

    if number is not None:
        run = seed(number)(run)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Generating overly large repr")  # it would replace the failure itself
        try:
            run()
        except Exception as error:  # noqa: BLE001 - any exception that escapes is a finding
            return Failure(last, error)
    return None
