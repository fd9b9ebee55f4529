"""Generated input for the functions that read from outside, and the cases that broke an invariant once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.codec import ACKNOWLEDGEMENT, EVENT, SEARCH
from tests.fuzz.configuration import CONFIGURATION
from tests.fuzz.target import Case, Target
from tests.vectors import case as vectors

TARGETS = {target.name: target for target in (EVENT, ACKNOWLEDGEMENT, SEARCH, CONFIGURATION)}


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_invariants_hold(target: Target, data: st.DataObject) -> None:
    target.check(data.draw(target.cases))


def found() -> Iterator[Any]:
    """Yield each kept case: `given` is the target and its case, the expectation is the invariants of the target."""
    for file in sorted(Path(vectors.HERE, "found").glob("*.json")):
        given = vectors.load(file).given
        beside = tuple(vectors.content(item["bytes"]) if isinstance(item, dict) else item for item in given["beside"])
        yield pytest.param(given["target"], Case(vectors.content(given["body"]), beside), id=file.stem)


@pytest.mark.parametrize(("target", "case"), tuple(found()))
def test_what_broke_an_invariant_once_does_not_again(target: str, case: Case) -> None:
    TARGETS[target].check(case)
