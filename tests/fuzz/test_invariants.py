"""The short run: the same cases each time (derandomised), so that the suite never meets a new one by chance."""

from pathlib import Path

import pytest

from tests.fuzz.found import Found, kept, save
from tests.fuzz.running import batch
from tests.fuzz.seeds import EVENTS
from tests.fuzz.target import Case, Target
from tests.fuzz.targets import PURE, SERVED
from tests.fuzz.trees import tree, write

CASES = 250
FOUND = tuple(kept())
BY_NAME = {target.name: target for target in PURE}


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", PURE, ids=lambda target: target.name)
def test_invariants_hold(target: Target) -> None:
    failure = batch(target, CASES)
    assert failure is None, failure


@pytest.mark.parametrize("item", [item for item in FOUND if item.target not in SERVED], ids=lambda item: item.name)
def test_what_broke_an_invariant_once_does_not_again(item: Found) -> None:
    BY_NAME[item.target].check(item.case)


def test_a_failure_is_found_shrunk_and_kept(tmp_path: Path) -> None:
    """The search itself, against an invariant that does not hold: no event has a brand."""

    def check(case: Case) -> None:
        assert b"brand" not in case.body, "it has a brand"

    failure = batch(BY_NAME["event"]._replace(check=check), CASES)
    assert failure is not None
    assert b"brand" in failure.case.body
    assert len(failure.case.body) <= len(write(tree(EVENTS[0]))), "it was not shrunk"
    save("event", failure.case, str(failure.error), tmp_path)
    (again,) = kept(tmp_path)
    assert (again.target, again.case) == ("event", failure.case)
