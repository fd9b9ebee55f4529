"""Cases of a test. The quick suite runs some cases, and the whole suite runs all cases."""

from collections.abc import Container, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings


def first_quick(cases: Iterable[Any], quick: int) -> list[ParameterSet]:
    """Return cases for `parametrize`. The first cases are quick. The other cases are marked slow."""
    return _cases(cases, range(quick))


def named_quick(names: Iterable[str], quick: Container[str]) -> list[ParameterSet]:
    """Return names as cases for `parametrize`. The names in `quick` are quick. The other cases are marked slow."""
    listed = list(names)
    return _cases(listed, [number for number, name in enumerate(listed) if name in quick])


def examples(quick: int, whole: int) -> int:
    """Return the number of examples of a property, if this number differs from the profile's."""
    return whole if settings.get_current_profile_name() == "whole" else quick


def _cases(cases: Iterable[Any], quick: Container[int]) -> list[ParameterSet]:
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if number in quick else pytest.mark.slow,
        )
        for number, case in enumerate(cases)
    ]


def played_in(request: pytest.FixtureRequest, fixture: str = "playing") -> list[str]:
    """Return the cases of the selected tests of this file that use this fixture."""
    names = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and fixture in item.fixturenames
        if hasattr(item, "callspec")
    ]
    return list(dict.fromkeys(names))
