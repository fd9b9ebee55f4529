"""Files, lines of code, imports and circles of `posd/`, read from its source. No module of posd is imported."""

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of posd or of its tests: its dotted name, its syntax tree, and its numbers of code lines."""

    name: str
    path: Path
    #: All nodes of the syntax tree in the order of `ast.walk`. The list is kept, because a walk takes longer than
    #: parsing.
    nodes: tuple[ast.AST, ...]
    code: frozenset[int]

    @property
    def folder(self) -> str:
        """Return the first folder below posd/ or tests/, or "" for a file in posd/ or tests/ itself."""
        return "".join(self.path.relative_to(REPOSITORY).parts[1:-1][:1])


@functools.cache
def modules(top: str = "posd") -> dict[str, Module]:
    """Return all modules of posd, or of the tests, by dotted name."""
    files = (path for path in sorted((REPOSITORY / top).rglob("*.py")) if "node_modules" not in path.parts)
    return {module.name: module for module in map(_read, files)}


class Size(NamedTuple):
    """Numbers of files, code lines (no blanks, comments, docstrings) and classes."""

    files: int
    lines: int
    classes: int


def folders(modules: Mapping[str, Module]) -> dict[str, Size]:
    """Return the size of each folder. "" stands for posd or tests itself."""
    found: dict[str, Size] = {}
    for module in modules.values():
        classes = sum(isinstance(node, ast.ClassDef) for node in module.nodes)
        before = found.get(module.folder, Size(0, 0, 0))
        found[module.folder] = Size(*map(sum, zip(before, (1, len(module.code), classes), strict=True)))
    return found


def _read(path: Path) -> Module:
    text = path.read_text()
    nodes = tuple(ast.walk(ast.parse(text)))
    written = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
    code = (written | set(_lines(filter(_is_string, nodes)))) - set(_lines(_docstrings(nodes)))
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, nodes, frozenset(code))


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for node in nodes:
        if isinstance(node, _Documented) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0]


def _is_string(node: ast.AST) -> bool:
    """Return whether a node is a text. In a text, blank lines and signs # count as code."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _lines(nodes: Iterable[Any]) -> Iterator[int]:
    for node in nodes:
        yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def imported(module: Module, known: Iterable[str]) -> set[str]:
    """Return the modules of posd that a module imports, including imports inside functions."""
    names = set(known)
    found = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return (found & names) - {module.name}


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return each set of modules that import each other, directly or through other modules, sorted by name."""
    reached = {name: _reached(graph, name) for name in graph}
    inside = (name for name in graph if name in reached[name])
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in inside}
    return sorted(groups)


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting.extend(new)
    return reached
