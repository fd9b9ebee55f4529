"""Cases of a test. The quick suite runs some cases, and the whole suite runs all cases."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


def named_quick(cases: Iterable[Any], quick: Iterable[Any]) -> list[ParameterSet]:
    """Return cases for `parametrize`. The cases in `quick` are quick. The other cases are marked slow. Raise
    AssertionError for an unknown case in `quick`.
    """
    listed, chosen = list(cases), list(quick)
    assert all(case in listed for case in chosen), chosen
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in chosen else pytest.mark.slow)
        for case in listed
    ]


def first_quick(cases: Iterable[Any], quick: int) -> list[ParameterSet]:
    """Return cases for `parametrize`. The first cases are quick. The other cases are marked slow."""
    listed = list(cases)
    return named_quick(listed, listed[:quick])


def examples(quick: int, whole: int) -> int:
    """Return the number of examples of a property, if this number differs from the profile's."""
    return whole if settings.get_current_profile_name() == "whole" else quick


def played_in(request: pytest.FixtureRequest, fixture: str = "playing") -> list[str]:
    """Return the cases of the selected tests of this file that use this fixture."""
    names = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and fixture in item.fixturenames
        if hasattr(item, "callspec")
    ]
    return list(dict.fromkeys(names))
