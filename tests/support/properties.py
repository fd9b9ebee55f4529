"""Properties of generated cases: a few of them in the quick run, many in the whole one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings


def generated(
    *strategies: Any, few: int, many: int, **named: Any
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Return a decorator: the test holds of so many examples of the strategies. The larger run is marked slow."""

    def decorate(holds: Callable[..., None]) -> Callable[[int], None]:
        def of(count: int) -> Callable[[], None]:
            return settings(max_examples=count, deadline=None)(given(*strategies, **named)(holds))

        runs = {few: of(few), many: of(many)}

        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            runs[examples]()

        test.__name__, test.__doc__, test.__module__ = holds.__name__, holds.__doc__, holds.__module__
        return test

    return decorate
