"""The log lines in the source code: module, line, event, level, fields."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import posd
from posd.payments.rows import PAYMENT
from posd.printing.rows import PRINT_JOB

PACKAGE = Path(posd.__file__).parent
#: Folders that are not part of the daemon.
APART = ("cli", "simulator", "client")
#: Names of the loggers in a module. A module that logs for two parts has two loggers.
LOGGERS = ("log", "listener_log")
#: Method of a logger -> level of its lines.
LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}
#: First word of the events of a kind of record -> field with the record's id.
KINDS = {kind.word: kind.name for kind in (PAYMENT, PRINT_JOB)}
#: Calls that pass the field of the id.
NAMED = re.compile(r"\w+(\.\w+)*\.named\(")
#: Keywords that are not fields of a line.
NO_FIELDS = {"exc_info"}


@dataclass(frozen=True)
class Line:
    """A call that logs. `open`: whether the call passes fields that its source does not name (`**`)."""

    place: str
    event: str
    levels: frozenset[str]
    fields: frozenset[str]
    open: bool


class NotPlain(AssertionError):
    """Error for a log call that cannot be compared with the table."""


def modules() -> Iterator[Path]:
    """Yield the files of the daemon."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in APART:
            yield path


def lines(text: str, name: str) -> Iterator[Line]:
    """Yield the log lines of a module. Raise NotPlain if `log` is used in another way."""
    tree = ast.parse(text)
    plain = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if (methods := _methods(node.func)) is None:
            continue
        place = f"{name}:{node.lineno}"
        plain |= {id(user) for user in ast.walk(node.func) if isinstance(user, ast.Name) and user.id in LOGGERS}
        events = _events(node.args[0]) if len(node.args) == 1 else {}
        if not events:
            raise NotPlain(f"{place}: the event of a log line is one literal text, its fields are keywords")
        levels = frozenset(LEVELS[method] for method in methods)
        names = {keyword.arg for keyword in node.keywords if keyword.arg is not None} - NO_FIELDS
        loose = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg is None]
        for event, kinds in events.items():
            named = kinds if any(NAMED.match(text) for text in loose) else ()
            is_open = any(not NAMED.match(text) for text in loose)
            yield Line(place, event, levels, frozenset({*names, *named}), open=is_open)
    for node in ast.walk(tree):
        is_used = isinstance(node, ast.Name) and node.id in LOGGERS and isinstance(node.ctx, ast.Load)
        if is_used and id(node) not in plain:
            raise NotPlain(f"{name}:{node.lineno}: call log.LEVEL(…) here, or (log.A if … else log.B)(…)")


def _events(text: ast.expr) -> dict[str, tuple[str, ...]]:
    """Return the possible events of an expression. Each event has the fields of a record's id. Return None if the
    events are unclear.
    """
    match text:
        case ast.Constant(value=str() as event):
            return {event: tuple(KINDS.values())}
        case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Attribute(attr="word")), ast.Constant(value=rest)]):
            return {f"{word}{rest}": (name,) for word, name in KINDS.items()}
        case _:
            return {}


def _methods(function: ast.expr) -> set[str] | None:
    """Return the methods of `log` that a call may use, or None for another call."""
    match function:
        case ast.Attribute(value=ast.Name(id=name), attr=method) if name in LOGGERS and method in LEVELS:
            return {method}
        case ast.IfExp(body=one, orelse=other):
            found = _methods(one), _methods(other)
            return None if found[0] is None or found[1] is None else found[0] | found[1]
        case _:
            return None
