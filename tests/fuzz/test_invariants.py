"""The short run: the same cases each time (derandomised), so that the suite never meets a new one by chance."""

import pytest

from tests.fuzz.found import Found, kept
from tests.fuzz.running import batch
from tests.fuzz.target import Target
from tests.fuzz.targets import PURE, SERVED

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
