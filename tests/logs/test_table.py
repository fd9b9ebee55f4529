"""The table of events agrees with the code, and the page is generated from the table."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import posd
from manual.logs import markdown
from posd.cli.explain.catalogue import LogEvent, events
from posd.logs.output import FIELDS, LIMITS
from posd.payments.rows import PAYMENT
from posd.printing.rows import PRINT_JOB
from tests.rig.tables import every, try_each

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
    """Return the events that an expression may name, each with the log fields of its records' ids.

    Return no events if the names are unclear.
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


#: Events that the daemon can log.
EVENTS = events()


def wanted(event: str, found: list[Line]) -> str:
    """Return the row of an event that the code requires, in the form of the table."""
    levels = {level for line in found for level in line.levels}
    fields = {field for line in found for field in line.fields}
    return f'[event."{event}"]\n    levels = {sorted(levels)}\n    fields = "{" ".join(sorted(fields))}"'


def check_row(event: str, found: list[Line]) -> None:
    places = ", ".join(line.place for line in found)
    if event not in EVENTS:
        row = wanted(event, found)
        pytest.fail(f"{places} logs an event without a row; add to posd/cli/explain/en.toml and es.toml:\n    {row}")
    if not found:
        pytest.fail(f"nothing logs {event}; remove its row from posd/cli/explain/en.toml and es.toml")
    row = EVENTS[event]
    levels = {level for line in found for level in line.levels}
    fields = {field for line in found for field in line.fields}
    says = f"in posd/cli/explain/en.toml, by {places}, the row begins:\n    {wanted(event, found)}"
    assert set(row.levels) == levels, says
    if any(line.open for line in found):
        assert fields <= set(row.fields), says
    else:
        assert set(row.fields) == fields, says


def test_the_row_of_each_log_event_has_the_levels_and_fields_of_the_code() -> None:
    found: dict[str, list[Line]] = defaultdict(list)
    for module in modules():
        for line in lines(module.read_text(), str(module.relative_to(PACKAGE.parent))):
            found[line.event].append(line)
    table = ((event, {"event": event, "found": found.get(event, [])}) for event in sorted(found.keys() | EVENTS.keys()))
    try_each(table, check_row)


@every(("event", "row"), EVENTS.items(), ids=EVENTS)
def test_each_row_is_used(event: str, row: LogEvent) -> None:
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", event), "the name of an event has words with dots between them"
    assert set(row.fields) <= FIELDS, "no line may have this field: add the field to FIELDS in posd/logs/output.py"
    assert set(re.findall(r"{(\w*)}", row.says)) <= set(row.fields)
    assert re.fullmatch(r"([^][]|\[[^][]*{[^][]*\])+", row.says), "a part in [ ] must have a field and no other part"
    assert row.do or not {"warning", "error", "critical"} & set(row.levels), (
        "`do` must say what people do after the event"
    )
    assert len(set(row.fields)) == len(row.fields)


def test_every_permitted_field_is_used_by_a_line() -> None:
    assert {field for row in EVENTS.values() for field in row.fields} == FIELDS


def test_limits_belong_to_existing_events() -> None:
    for event, limit in LIMITS.items():
        assert event in EVENTS
        assert set(limit.by) & set(EVENTS[event].fields) or not limit.by


def test_the_page_is_generated_from_the_table() -> None:
    page = PACKAGE.parent / "docs" / "reference" / "logs.md"
    assert page.read_text() == markdown(), f"write the page again: PYTHONPATH=packaging python -m manual --logs {page}"


def test_every_logger_has_a_name_by_which_its_lines_are_found() -> None:
    for module in modules():
        for line in module.read_text().splitlines():
            assert "structlog.get_logger(" not in line or line.partition(" = structlog.")[0] in LOGGERS, module


@pytest.mark.parametrize(
    "text",
    [
        "log.info(name)",
        "log.info(f'a.{b}')",
        "log.info('a.b', 'c')",
        "tell = log.info",
        "write = log.error if x else log.info\nwrite('a.b')",
        "log.bind(a=1).info('a.b')",
        "f(log)",
    ],
)
def test_log_calls_without_a_literal_name_and_keywords_are_found(text: str) -> None:
    with pytest.raises(NotPlain):
        list(lines(text, "x.py"))


def test_log_lines_are_found_in_the_source() -> None:
    text = "(log.error if a else log.warning)('a.b', c=1, exc_info=e)\ndef f():\n    log.exception('c.d', **g)\n"
    assert list(lines(text, "x.py")) == [
        Line("x.py:1", "a.b", frozenset({"error", "warning"}), frozenset({"c"}), open=False),
        Line("x.py:3", "c.d", frozenset({"error"}), frozenset(), open=True),
    ]


def test_a_line_shared_by_payments_and_print_jobs_is_found_for_each_kind() -> None:
    assert list(lines('log.info(f"{kind.word}.sent", **self.kind.named(identity), terminal=t)', "x.py")) == [
        Line("x.py:1", "payment.sent", frozenset({"info"}), frozenset({"transaction", "terminal"}), open=False),
        Line("x.py:1", "print.sent", frozenset({"info"}), frozenset({"print_job", "terminal"}), open=False),
    ]
