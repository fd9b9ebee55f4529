"""The mutations. A mutation changes one place in a function. The function is then compiled with the other code of its
module.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tests.mutants.change import Place

#: Form of a name in messages or in a table. A text with a space is a sentence or SQL. Python ignores the `_` that a
#: mutant adds to the name of an encoding.
WORD = re.compile(r"(?!ascii$)[a-z][a-z_]+")
COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
#: Parts of the tree that are not changed: types, and code that runs at the import of the module.
SKIPPED = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "type_params", "bases"}
#: Functions whose calls are not changed: their arguments are sentences for people, types, or names of crash points.
SPEAKING = {"debug", "info", "warning", "error", "exception", "cast", "assert_never", "crash_point"}
#: Argument of `zip` that asserts equal lengths. Assertions are not changed.
STRICT = "strict"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One mutation, with the function, the original, the replacement, and the new code."""

    function: str
    place: Place | None  # this value is the place of the function's code, or None for all places
    line: int
    statement: int  # line of the statement that has the original
    change: str
    code: CodeType

    @property
    def name(self) -> str:
        """Return the name of the mutation in the list of accepted survivors."""
        return f"{self.function}: {self.change}"


def mutants(path: Path, lines: set[int] | None = None) -> Iterator[Mutant]:
    """Yield every mutant of the functions of a module, or of the functions with one of these lines."""
    tree = ast.parse(path.read_text())
    for name, function in functions(tree):
        if lines is not None and lines.isdisjoint(range(_first_line(function), (function.end_lineno or 0) + 1)):
            continue
        for index, statement in enumerate(function.body):
            if not (index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                for line, within, change in _changes(function, "body", index):
                    place = name, _first_line(function)
                    yield Mutant(name, place, line, within, change, compile(tree, path, "exec"))


def watched(path: Path, first: int) -> tuple[CodeType, list[tuple[str, int]]]:
    """Return the code of a module that calls `__reached__` with a number before each statement of a function.

    Return also the function and the line of each statement. `first`: the number of the first statement.
    """
    tree = ast.parse(path.read_text())
    found: list[tuple[str, int]] = []
    for name, function in functions(tree):
        for node in [*ast.walk(function)]:
            for block in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
                if isinstance(block, list) and block:
                    documented = isinstance(node, Function) and ast.get_docstring(node) is not None
                    told = block[:documented]
                    for statement in block[documented:]:
                        call = ast.parse(f"__reached__({first + len(found)})").body[0]
                        told += [ast.copy_location(call, statement), statement]
                        found.append((name, statement.lineno))
                    block[:] = told
    return compile(ast.fix_missing_locations(tree), path, "exec"), found


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the outermost functions of a tree and the methods of its classes, by qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{inside}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{inside}{node.name}.")
        elif isinstance(node, ast.stmt):
            yield from functions(node, inside)


def _first_line(function: Function) -> int:
    return min([function.lineno, *(item.lineno for item in function.decorator_list)])


def _changes(parent: ast.AST, field: str, index: int | None, within: int = 0) -> Iterator[tuple[int, int, str]]:
    """Make each change at a node and below the node in turn. Undo each change before the next change.

    Yield its line, the line of its statement, and its text. `within`: line of the statement around the node.
    """
    values = getattr(parent, field)
    node = values if index is None else values[index]
    within = node.lineno if isinstance(node, ast.stmt) else within
    for other in _others(node, parent):
        ast.copy_location(other, node)
        ast.fix_missing_locations(other)
        _put(parent, field, index, other)
        yield getattr(node, "lineno", within), within, f"{_text(node)} -> {_text(other)}"
    _put(parent, field, index, node)
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert) or _name(node) in SPEAKING:
        return
    if isinstance(node, ast.keyword) and node.arg == STRICT:
        return
    for name, value in ast.iter_fields(node):
        if name in SKIPPED or (isinstance(node, ast.match_case) and name == "pattern"):
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.match_case):
                yield from _never_matches(child)
            if isinstance(child, ast.expr | ast.stmt | ast.comprehension | ast.match_case | ast.keyword):
                yield from _changes(node, name, place, within)


def _never_matches(case: ast.match_case) -> Iterator[tuple[int, int, str]]:
    only = case.body[0]
    if isinstance(only, ast.Pass) or (isinstance(only, ast.Expr) and _name(only.value) == "assert_never"):
        return
    guard = case.guard
    case.guard = ast.copy_location(ast.Constant(False), case.body[0])
    yield case.body[0].lineno, case.body[0].lineno, f"case {_text(case.pattern)} -> never"
    case.guard = guard


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _others(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that a programmer could write by mistake in place of this node."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in COMPARISONS[type(operator)]:
                yield ast.Compare(left, [other()], [right])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
            for dropped in range(len(values)):
                left = [value for at, value in enumerate(values) if at != dropped]
                yield left[0] if len(left) == 1 else ast.BoolOp(operator, left)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.IfExp(_, one, other):
            yield from (one, other)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value) if WORD.fullmatch(value) and not isinstance(parent, ast.Expr):
            yield ast.Constant(f"{value}_")
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(called) if _name(called) in SPEAKING:
            return
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Expr(ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.If() | ast.While() if not isinstance(node.test, ast.BoolOp | ast.Constant):
            for value in (True, False)[isinstance(node, ast.While) :]:
                yield type(node)(ast.Constant(value), node.body, node.orelse)
        case ast.comprehension(target, source, [_, *_], is_async):
            yield ast.comprehension(target, source, [], is_async)
        case ast.Call(called, arguments, keywords) if _name(node) not in SPEAKING:
            for dropped, keyword in enumerate(keywords):
                if keyword.arg != STRICT:
                    yield ast.Call(called, arguments, keywords[:dropped] + keywords[dropped + 1 :])


def _name(node: ast.AST) -> str:
    """Return the last name of the called expression."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        return " ".join(["for", ast.unparse(node.target), *(f"if {ast.unparse(item)}" for item in node.ifs)])
    return " ".join(ast.unparse(node).split())
