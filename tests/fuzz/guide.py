"""Coverage as a guide: which arcs (line to line) of some files an input reaches, and what was reached in all."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]

#: File, line before (negative: the function begins), line after (negative: the function ends).
Arc = tuple[str, int, int]


class Arcs:
    """Watches the functions of some files. `seen` are all arcs so far."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._files = {str(ROOT / module) for module in modules}
        self._now: set[Arc] = set()
        self.seen: set[Arc] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the block."""
        self._now = set()
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def reached_new(self) -> bool:
        """Whether the block that was watched last reached an arc for the first time; it counts as seen from then on."""
        new = not self._now <= self.seen
        self.seen |= self._now
        return new

    def lines(self) -> tuple[int, int]:
        """Return how many lines of the functions in these files were reached, and how many there are."""
        reached = {(file, line) for file, _, line in self.seen if line > 0}
        there = {(file, line) for file in self._files for line in _lines(_compiled(file), inside=False)}
        return len(reached & there), len(there)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        last = -frame.f_code.co_firstlineno

        def local(inner: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            if event in ("line", "return"):
                line = inner.f_lineno if event == "line" else -frame.f_code.co_firstlineno
                self._now.add((file, last, line))
                last = line
            return local

        return local


def _compiled(file: str) -> CodeType:
    return compile(Path(file).read_text(), file, "exec")


def _lines(code: CodeType, *, inside: bool) -> set[int]:
    """Return the lines of all functions in a module's code; `inside` is whether this is one of them."""
    found = {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno} if inside else set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _lines(constant, inside=inside or _is_function(constant))
    return found


def _is_function(code: CodeType) -> bool:
    """Whether it is a function's code: that of a class runs at import, and has no fast locals."""
    return bool(code.co_flags & 0x02)
