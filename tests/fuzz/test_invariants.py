"""Generated input for the functions that read data from outside. Stored inputs that broke an invariant are repeated."""

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

TARGETS = {"event": EVENT, "acknowledgement": ACKNOWLEDGEMENT, "search": SEARCH, "configuration": CONFIGURATION}


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_invariants_hold_for_generated_input(target: Target, data: st.DataObject) -> None:
    target.check(data.draw(target.cases))


def found() -> Iterator[Any]:
    """Yield each stored case with its target."""
    for file in sorted(Path(vectors.HERE, "found").glob("*.json")):
        given = vectors.load(file).given
        beside = tuple(vectors.content(item["bytes"]) if isinstance(item, dict) else item for item in given["beside"])
        yield pytest.param(given["target"], Case(vectors.content(given["body"]), beside), id=file.stem)


@pytest.mark.parametrize(("target", "case"), tuple(found()))
def test_the_invariants_hold_for_inputs_that_once_failed(target: str, case: Case) -> None:
    TARGETS[target].check(case)
