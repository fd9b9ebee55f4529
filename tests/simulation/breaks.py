"""Deliberate faults of the product. A programmer could make each of these mistakes.

The simulation must find each fault.

A break changes the product in this process only, for one run. The break edits the text of a function and compiles the
function again. The table (breaks.toml) therefore shows the mistake itself. A text that is not in the product is an
error, so the table must follow the product.
"""

import builtins
import dis
import inspect
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, FunctionType
from typing import Any, Final


def _broken(function: FunctionType, changes: Sequence[Mapping[str, str]]) -> CodeType:
    """Return the changed code of a function. Raise ValueError if the text is not in the function's source."""
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if source.count(change["old"]) != 1:
            raise ValueError(f"{function.__qualname__} does not have once: {change['old']!r}")
        source = source.replace(change["old"], change["new"])
    names: dict[str, Any] = {}
    exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, names)
    broken = _plain(names[function.__name__]).__code__
    if unknown := {*_globals(broken)}.difference(function.__globals__, dir(builtins)):
        raise ValueError(f"{function.__qualname__} does not know {unknown}")
    return broken


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function and its inner functions use."""
    yield from (item.argval for item in dis.get_instructions(code) if item.opname == "LOAD_GLOBAL")
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _globals(item)


def _plain(function: Any) -> FunctionType:
    """Return the function of a property, a method or a decorated function."""
    if isinstance(function, property):
        function = function.fget
    function = inspect.unwrap(getattr(function, "__func__", function))
    assert isinstance(function, FunctionType), function
    return function


#: All breaks, by name: the part of the product, the effect (`says`), and the changes. A change has the name of a
#: function, a part of its source, and the replacement.
BREAKS: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply a mistake to the product of this process for the block. Raise KeyError, ValueError."""
    with ExitStack() as stack:
        by_function: dict[FunctionType, list[Mapping[str, str]]] = {}
        for change in BREAKS[name]["changes"]:
            by_function.setdefault(_plain(resolve_name(change["function"])), []).append(change)
        for function, changes in by_function.items():
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = _broken(function, changes)  # also for modules that have imported the function
        yield
