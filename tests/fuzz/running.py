"""Running a target: one batch of cases, whose failure is shrunk; and batch after batch, guided by coverage."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.fuzz.guide import Arcs
from tests.fuzz.target import Case, Target

#: Cases of one batch: the corpus grows after it.
BATCH = 250
#: Bodies of the corpus; the newest ones, where there are more.
MAX_CORPUS = 1000


class Failure(NamedTuple):
    """The smallest case that was found to break an invariant, and how it did."""

    case: Case
    error: BaseException


class Report(NamedTuple):
    """What running a target for some time came to."""

    target: str
    cases: int
    batches: int
    corpus: int
    lines: tuple[int, int]
    arcs: int
    failure: Failure | None


def batch(
    target: Target,
    count: int,
    corpus: Sequence[bytes] = (),
    number: int | None = None,
    watch: Callable[[Case], None] | None = None,
) -> tuple[int, Failure | None]:
    """Check `count` cases, the same ones for the same seed `number` (None: for the same version of everything).

    `watch` is called instead of the target's check. Returns how many were checked, and the failure, shrunk.
    """
    check, checked, last = watch or target.check, 0, Case(b"")

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
    @given(target.cases(corpus))
    def run(case: Case) -> None:
        nonlocal checked, last
        checked, last = checked + 1, case
        check(case)

    if number is not None:
        run = seed(number)(run)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Generating overly large repr")  # it would stand for the failure itself
        try:
            run()
        except Exception as error:  # noqa: BLE001 - any exception that escapes is a finding
            return checked, Failure(last, error)
    return checked, None


def search(target: Target, seconds: float, number: int) -> Report:
    """Run batches for some time, each from the bodies that reached something new in those before; stop at a failure."""
    arcs, corpus, cases, batches = Arcs(target.modules), list[bytes](), 0, 0
    failure: Failure | None = None
    end = time.monotonic() + seconds
    while failure is None and time.monotonic() < end:
        fresh: list[bytes] = []

        def watched(case: Case, fresh: list[bytes] = fresh) -> None:
            if not target.modules:
                target.check(case)
                return
            with arcs.watching():
                target.check(case)
            if arcs.reached_new():
                fresh.append(case.body)

        checked, failure = batch(target, BATCH, tuple(corpus), number + batches, watched)
        cases, batches = cases + checked, batches + 1
        corpus = [*corpus, *fresh][-MAX_CORPUS:]
    return Report(target.name, cases, batches, len(corpus), arcs.lines(), len(arcs.seen), failure)
