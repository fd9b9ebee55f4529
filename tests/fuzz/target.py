"""Targets of fuzzing. A target makes cases and checks the invariants of each case."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

#: Errors by which a function may refuse its input. The empty tuple stands for a function without errors.
Refusal: TypeAlias = type[Exception] | tuple[()]


class Case(NamedTuple):
    """One input. `given` has the values beside the body."""

    body: bytes
    given: tuple[Any, ...] = ()


class Target(NamedTuple):
    """A target: the strategy that makes cases, and the function `check`. `check` raises AssertionError if an invariant
    does not hold. Any other exception is a fault too.
    """

    cases: SearchStrategy[Case]
    check: Callable[[Case], None]


def beside(bodies: SearchStrategy[bytes], *given: SearchStrategy[Any]) -> SearchStrategy[Case]:
    """Make cases of bodies and of values beside the bodies."""
    return st.builds(Case, bodies, st.tuples(*given))


def refused_alone(error: Refusal, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function twice. Check that both calls have the same result: the same value, or a permitted error. Return
    the value, or None after an error. The second call runs deep in the stack, close to the recursion limit. The depth
    must not change the result.
    """
    first = _call(error, function, *arguments)
    second = _deeper(DEEPER, lambda: _call(error, function, *arguments))
    assert first[1] != "", f"{function.__name__} gives no reason for its refusal"
    assert first == second, f"{function.__name__} is not deterministic: {first!r}, then {second!r}"
    return first[0]


#: Frames between the two calls of a function. The daemon handles a request some 60 frames deep.
DEEPER = 150


def _call(error: Refusal, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    try:
        return function(*arguments), None
    except error as raised:
        return None, str(raised)


def _deeper(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else _deeper(frames - 1, call)
