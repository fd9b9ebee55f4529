"""What is fuzzed: a target makes cases, and checks the invariants that hold for each of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


class Case(NamedTuple):
    """One input; `given` holds the values beside the body."""

    body: bytes
    given: tuple[Any, ...] = ()


class Target(NamedTuple):
    """A way to make cases, and `check`, which raises AssertionError if an invariant does not hold. Any other exception
    is a fault too.
    """

    name: str
    cases: SearchStrategy[Case]
    check: Callable[[Case], None]


def beside(bodies: SearchStrategy[bytes], *given: SearchStrategy[Any]) -> SearchStrategy[Case]:
    """Make cases of bodies and the values beside them."""
    return st.builds(Case, bodies, st.tuples(*given))


def refused_alone(error: type[Exception], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a total function twice: both times the same value, or both times the one error that it may raise (None).

    A nearer recursion limit must make no difference: the second call is made from deep in the stack.
    """
    first = _call(error, function, *arguments)
    second = _deeper(DEEPER, lambda: _call(error, function, *arguments))
    assert first[1] != "", f"{function.__name__} gives no reason for its refusal"
    assert first == second, f"{function.__name__} is not deterministic: {first!r}, then {second!r}"
    return first[0]


#: Frames between two calls of one function; a request of the daemon is handled some 60 frames down.
DEEPER = 150


def _call(error: type[Exception], function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    try:
        return function(*arguments), None
    except error as raised:
        return None, str(raised)


def _deeper(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else _deeper(frames - 1, call)
