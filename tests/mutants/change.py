"""Changes of functions, in this process and in the processes that the tests fork (see `tests.rig.fork_server`)."""

import gc
import marshal
import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

#: Place of a code object in its file. The place is the same for every change of the module.
Place = tuple[str, int]
#: Environment variable with the file of the change for the forked processes.
VARIABLE = "TESTS_CHANGE"


def functions(sources: Mapping[str, CodeType]) -> list[FunctionType]:
    """Return the functions of modules (name -> code) that exist in this process."""
    files = {code.co_filename for code in sources.values()}
    gc.unfreeze()
    return [item for item in gc.get_objects() if type(item) is FunctionType and item.__code__.co_filename in files]


def make(
    changed: Sequence[FunctionType],
    sources: Mapping[str, CodeType],
    place: Place | None = None,
    flags: Path | None = None,
) -> None:
    """Replace the code of functions of modules (name -> new code), or of the functions within one place.

    `flags`: the file in which `__reached__(number)` sets a byte.
    """
    if flags is not None:
        with flags.open("r+b") as file:
            flag = mmap.mmap(file.fileno(), 0).__setitem__
        for name in sources.keys() & sys.modules.keys():
            sys.modules[name].__dict__["__reached__"] = lambda number: flag(number, 1)
    found = {code.co_filename: dict(codes(code)) for code in sources.values()}
    for function in changed:
        new = found.get(function.__code__.co_filename, {})
        at = function.__code__.co_qualname, function.__code__.co_firstlineno
        inside = place is None or at == place or at[0].startswith(f"{place[0]}.<locals>.")
        if inside and at in new:
            function.__code__ = new[at]


def write(path: Path, sources: Mapping[str, CodeType], place: Place | None = None, flags: Path | None = None) -> None:
    """Write a change for the processes that this process and its tests fork from now on."""
    path.write_bytes(marshal.dumps((dict(sources), place, flags and str(flags))))
    os.environ[VARIABLE] = str(path)


def make_written(path: str) -> None:
    """Make a written change in this process."""
    sources, place, flags = marshal.loads(Path(path).read_bytes())
    make(functions(sources), sources, place, flags and Path(flags))


def codes(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    """Yield the code objects inside a code object, and the place of each."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from codes(constant)
